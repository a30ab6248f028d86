//! The Report call with requests that are encoded already: an item is encoded once,
//! when it is queued, however often it is sent.

use prost::bytes::{BufMut, Bytes};
use rdmesh_proto::collector::v1::{ReportRequest, ReportResponse, ingest_service_server};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codec::{Codec, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Request, Status, Streaming};
use tonic_prost::{ProstCodec, ProstDecoder};

use super::MAX_RESPONSE_BYTES;

/// Opens the stream. `requests` begins with an encoded Hello.
pub(crate) async fn report(
    channel: Channel,
    requests: ReceiverStream<Bytes>,
) -> Result<Streaming<ReportResponse>, Status> {
    let path = format!("/{}/Report", ingest_service_server::SERVICE_NAME);
    let path = PathAndQuery::try_from(path)
        .map_err(|e| Status::internal(format!("path of the Report call: {e}")))?;
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(MAX_RESPONSE_BYTES);
    grpc.ready()
        .await
        .map_err(|e| Status::unavailable(crate::causes::with_causes(&e)))?;
    let response = grpc
        .streaming(Request::new(requests), path, EncodedRequests)
        .await?;
    Ok(response.into_inner())
}

/// Requests as bytes, responses as messages.
#[derive(Clone, Copy, Debug)]
struct EncodedRequests;

impl Codec for EncodedRequests {
    type Encode = Bytes;
    type Decode = ReportResponse;
    type Encoder = Verbatim;
    type Decoder = ProstDecoder<ReportResponse>;

    fn encoder(&mut self) -> Verbatim {
        Verbatim
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<ReportRequest, ReportResponse>::default().decoder()
    }
}

#[derive(Clone, Copy, Debug)]
struct Verbatim;

impl Encoder for Verbatim {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put(item);
        Ok(())
    }
}
