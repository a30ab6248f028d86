//! Agents of a fleet: each with a stream of its own to the collector, sending messages that
//! were encoded before as fast as they are taken.

use anyhow::{Context, Result, bail, ensure};
use prost::bytes::BufMut;
use rdmesh_proto::collector::v1::{ReportResponse, report_response};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstDecoder;

use super::fleet::{Encoded, Fleet};

/// Connections that all streams share: a fleet has one for each agent, and what is measured
/// is not how sockets are woken.
const CONNECTIONS: usize = 8;

/// Messages of a stream on their way; beyond, it waits for an acknowledgement, as agents do.
const IN_FLIGHT: usize = 256;

/// As large as the collector takes them at once, so that streams wait for the collector and
/// not for the network's window.
const WINDOW_BYTES: u32 = 4 << 20;

/// A collector that acknowledges nothing for so long is stuck.
const SILENT: Duration = Duration::from_secs(120);

/// Takes messages as the bytes that they are.
#[derive(Debug, Default, Clone, Copy)]
struct Bytes;

impl Codec for Bytes {
    type Encode = Vec<u8>;
    type Decode = ReportResponse;
    type Encoder = Self;
    type Decoder = ProstDecoder<ReportResponse>;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstDecoder::default()
    }
}

impl Encoder for Bytes {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), tonic::Status> {
        to.put_slice(&item);
        Ok(())
    }
}

/// The stream of one host.
#[derive(Debug)]
struct Stream {
    to: mpsc::Sender<Vec<u8>>,
    from: tonic::Streaming<ReportResponse>,
    sent: u64,
    acknowledged: u64,
}

/// All streams.
#[derive(Debug)]
pub(super) struct Feed {
    channels: Vec<Channel>,
    streams: BTreeMap<u32, Stream>,
}

impl Feed {
    /// Connects.
    pub(super) async fn connect(collector: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{collector}"))?
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES);
        let mut channels = Vec::new();
        for _ in 0..CONNECTIONS {
            channels.push(endpoint.connect().await?);
        }
        Ok(Self {
            channels,
            streams: BTreeMap::new(),
        })
    }

    async fn open(&mut self, fleet: &Fleet, host: u32) -> Result<()> {
        let (to, requests) = mpsc::channel(IN_FLIGHT);
        to.send(fleet.hello(host)).await?;
        let channel = self.channels[host as usize % CONNECTIONS].clone();
        let mut client = tonic::client::Grpc::new(channel);
        client.ready().await?;
        let path = "/rdmesh.collector.v1.IngestService/Report";
        let request = tonic::Request::new(ReceiverStream::new(requests));
        let response = client
            .streaming(request, path.parse()?, Bytes)
            .await
            .context("the collector does not take a stream")?;
        let stream = Stream {
            to,
            from: response.into_inner(),
            sent: 0,
            acknowledged: 0,
        };
        self.streams.insert(host, stream);
        Ok(())
    }

    /// Sends all messages; returns how long it took until the last of them was acknowledged,
    /// which is after its commit.
    pub(super) async fn send(&mut self, fleet: &Fleet, messages: Vec<Encoded>) -> Result<Duration> {
        let mut of_hosts: BTreeMap<u32, Vec<Vec<u8>>> = BTreeMap::new();
        for Encoded { host, message } in messages {
            of_hosts.entry(host).or_default().push(message);
        }
        for host in of_hosts.keys() {
            if !self.streams.contains_key(host) {
                self.open(fleet, *host).await?;
            }
        }
        let started = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for (host, messages) in of_hosts {
            let Some(mut stream) = self.streams.remove(&host) else {
                continue;
            };
            tasks.spawn(async move {
                stream.send_all(messages).await?;
                anyhow::Ok((host, stream))
            });
        }
        while let Some(done) = tasks.join_next().await {
            let (host, stream) = done??;
            self.streams.insert(host, stream);
        }
        Ok(started.elapsed())
    }
}

impl Stream {
    async fn send_all(&mut self, messages: Vec<Vec<u8>>) -> Result<()> {
        let mut waiting = messages.into_iter();
        let mut next = waiting.next();
        let in_flight = u64::try_from(IN_FLIGHT)?;
        while next.is_some() || self.acknowledged < self.sent {
            let room = next.is_some() && self.sent - self.acknowledged < in_flight;
            if room && let Some(message) = next.take() {
                self.to
                    .send(message)
                    .await
                    .context("the stream has ended")?;
                self.sent += 1;
                next = waiting.next();
                continue;
            }
            self.next_ack().await?;
        }
        Ok(())
    }

    async fn next_ack(&mut self) -> Result<()> {
        let response = tokio::time::timeout(SILENT, self.from.message())
            .await
            .context("the collector acknowledges nothing")??;
        let item = response.context("the collector ended the stream")?.item;
        let Some(report_response::Item::Ack(ack)) = item else {
            bail!("an answer that is no acknowledgement");
        };
        ensure!(ack.rejected.is_empty(), "rejected: {:?}", ack.rejected);
        self.acknowledged = ack.sequence;
        Ok(())
    }
}
