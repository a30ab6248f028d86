//! Every bad item gets an answer that names the field; nothing else suffers.

use rdmesh_proto::collector::v1::ReportRequest;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::tracer::v1::{Snapshot, StackColumns};
use tokio_stream::StreamExt;
use tonic::Code;
use tonic::codegen::http::uri::PathAndQuery;

use crate::made::Host;
use crate::running::{Running, Sent};

/// Stacks of one address.
fn stacks(frames: &[u32], symbol: &[u32]) -> StackColumns {
    StackColumns {
        frames: frames.to_vec(),
        address: vec![0xffff_ffff_8100_0000],
        symbol: symbol.to_vec(),
    }
}

#[tokio::test]
async fn each_bad_item_is_refused_by_itself_with_its_field() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    type Break = fn(&mut Snapshot);
    let broken: [(Break, &str); 21] = [
        (|s| s.clock = None, "clock is missing"),
        (
            |s| s.interval_start_boot_ns = u64::MAX,
            "interval_start_boot_ns is 18446744073709551615",
        ),
        (|s| s.interval_end_boot_ns = 0, "interval_start_boot_ns is "),
        (
            |s| s.chains.as_mut().unwrap().task = vec![9],
            "chains.task[0] is 9",
        ),
        (
            |s| s.chains.as_mut().unwrap().count = vec![0],
            "chains.count[0] is 0",
        ),
        (
            |s| s.chains.as_mut().unwrap().count.clear(),
            "chains.count has 0 entries",
        ),
        (
            |s| s.chains.as_mut().unwrap().first_after_start_ns = vec![i64::MIN],
            "chains.first_after_start_ns[0] is -9223372036854775808",
        ),
        (
            |s| s.chains.as_mut().unwrap().span_ns = vec![u64::MAX],
            "chains.span_ns[0] is 18446744073709551615",
        ),
        (
            |s| s.signatures.as_mut().unwrap().steps = vec![9],
            "signatures.steps[0] is 9",
        ),
        (
            |s| s.signatures.as_mut().unwrap().step_errno = vec![0, 1, 1],
            "signatures.step_errno[0] is 0",
        ),
        (
            |s| s.tasks.as_mut().unwrap().comm = vec![99],
            "tasks.comm[0] is 99",
        ),
        (
            |s| s.samples.as_mut().unwrap().chain = vec![7],
            "samples.chain[0] is 7",
        ),
        (
            |s| s.samples.as_mut().unwrap().records = vec![4],
            "samples.records[0] is 4",
        ),
        (
            |s| s.samples.as_mut().unwrap().records = vec![2],
            "samples.after_first_ns is 3",
        ),
        (
            |s| s.samples.as_mut().unwrap().errno.clear(),
            "samples.errno has 0 entries",
        ),
        (
            |s| s.samples.as_mut().unwrap().probe[1] = 3,
            "samples.probe[1] is 3",
        ),
        (
            |s| s.samples.as_mut().unwrap().stack_plus_one[0] = 1,
            "samples.stack_plus_one[0] is 1",
        ),
        (
            |s| s.samples.as_mut().unwrap().arguments_plus_one[2] = 2,
            "samples.arguments_plus_one[2] is 2",
        ),
        (
            |s| s.stacks = Some(stacks(&[2], &[])),
            "stacks.address is 1",
        ),
        (
            |s| s.stacks = Some(stacks(&[1], &[11])),
            "stacks.symbol[0] is 11",
        ),
        (
            |s| s.strings = vec![Vec::new(); 70_000],
            "strings has 70000 entries",
        ),
    ];
    for (sequence, (damage, _)) in (1..).zip(&broken) {
        let mut snapshot = host.snapshot("7");
        damage(&mut snapshot);
        agent.send(sequence, Item::Snapshot(snapshot)).await;
    }
    let last = broken.len() as u64 + 1;
    agent.send(last, host.failing("7")).await;
    agent.acknowledged(last).await;
    agent.rejected.sort();
    assert_eq!(agent.rejected.len(), broken.len());
    for ((_, reason), (_, expected)) in agent.rejected.iter().zip(&broken) {
        assert!(
            reason.starts_with(expected),
            "{reason:?} should start with {expected:?}"
        );
    }
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.failures"), "1");
    assert_eq!(
        collector.read("SELECT rejected, snapshots FROM rdmesh.agents"),
        format!("{}|1", broken.len())
    );
}

#[tokio::test]
async fn items_that_are_none_are_answered_and_the_stream_goes_on() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    agent.send(1, Item::Hello(host.hello())).await;
    agent.send(2, Sent(None)).await;
    agent.send(0, host.heartbeat()).await;
    agent.send(u64::MAX, host.heartbeat()).await;
    agent.send(3, host.heartbeat()).await;
    agent.refused(4).await;
    agent.acknowledged(3).await;
    let reason = |sequence: u64| {
        let found = agent.rejected.iter().find(|(s, _)| *s == sequence);
        found.map(|(_, reason)| reason.as_str()).unwrap_or_default()
    };
    assert!(reason(1).contains("a second hello"), "{:?}", agent.rejected);
    assert!(reason(2).contains("item"), "{:?}", agent.rejected);
    assert!(reason(0).contains("counted from 1"), "{:?}", agent.rejected);
    assert!(
        reason(u64::MAX).contains("counted from 1"),
        "{:?}",
        agent.rejected
    );
}

#[tokio::test]
async fn a_stream_without_a_proper_hello_is_refused() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let first = ReportRequest {
        sequence: 1,
        item: Some(host.heartbeat()),
    };
    let refused = collector.open(first).await.err().unwrap();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().contains("first item is no hello"),
        "{}",
        refused.message()
    );

    let mut nameless = host.hello();
    nameless.host = "a b".into();
    let refused = collector.try_agent(nameless).await.err().unwrap();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(
        refused.message().starts_with("hello.host is \"a b\""),
        "{}",
        refused.message()
    );
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.agents"), "0");
}

#[tokio::test]
async fn a_comm_and_a_path_that_are_no_text_are_kept_with_a_mark() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut snapshot = host.snapshot("7");
    snapshot.strings[6] = b"ra\xFFnk".to_vec();
    snapshot.strings[7] = b"/job\0\xC3".to_vec();
    agent.send(1, Item::Snapshot(snapshot)).await;
    agent.acknowledged(1).await;
    assert!(agent.rejected.is_empty());
    let row = collector
        .read("SELECT comm, cgroup_path, array_length(marks, 1), marks[1] FROM rdmesh.failures");
    assert_eq!(
        collector.read("SELECT array_length(marks, 1) FROM rdmesh.snapshots"),
        "2"
    );
    assert!(
        row.starts_with("ra\u{FFFD}nk|/job\u{FFFD}\u{FFFD}|2|comm was not storable"),
        "{row}"
    );
}

#[tokio::test]
async fn what_is_odd_about_a_snapshot_is_marked_on_its_rows() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let mut odd = host.snapshot("7");
    odd.probes.as_mut().unwrap().layer[1] = 99;
    odd.tasks.as_mut().unwrap().source[0] = 55;
    odd.chains.as_mut().unwrap().marks[0] = 4 + 64;
    odd.strings[1] = b"ib_umem\x07get".to_vec();
    odd.strings[5] = b"rdma\x1b[2Jrxe".to_vec();
    odd.strings[9] = b"rxe\x9b0".to_vec();
    agent.send(1, Item::Snapshot(odd)).await;
    let mut outside = host.snapshot("7");
    let chains = outside.chains.as_mut().unwrap();
    let rest = outside.interval_end_boot_ns - outside.interval_start_boot_ns;
    chains.span_ns[0] = rest - chains.first_after_start_ns[0].cast_unsigned() + 1;
    agent.send(2, Item::Snapshot(outside)).await;
    let mut early = host.snapshot("7");
    let chains = early.chains.as_mut().unwrap();
    chains.first_after_start_ns[0] = -30_000_000_000;
    chains.span_ns[0] = 33_000_000_000;
    agent.send(3, Item::Snapshot(early)).await;
    agent.acknowledged(3).await;
    assert!(agent.rejected.is_empty(), "{:?}", agent.rejected);
    let changed =
        "was not storable text (not UTF-8, control characters, or too long); it was changed";
    let unknown = "is not known to this collector (is the agent newer?); stored as unknown";
    let expected = [
        format!("function {changed}"),
        format!("module {changed}"),
        format!("layer 99 {unknown}"),
        format!("driver {changed}"),
        format!("identity source 55 {unknown}"),
        format!("device {changed}"),
        format!("mark 64 {unknown}"),
    ];
    let marks = |sequence: u32| {
        collector.read(&format!(
            "SELECT array_to_string(marks, E'\\n') FROM rdmesh.failures WHERE sequence = {sequence}"
        ))
    };
    assert_eq!(marks(1), expected.join("\n"));
    assert_eq!(
        collector
            .read("SELECT function, layers[2], incomplete FROM rdmesh.failures WHERE sequence = 1"),
        "ib_umem\u{FFFD}get|unknown|t"
    );
    assert_eq!(
        collector.read("SELECT array_length(marks, 1) FROM rdmesh.snapshots WHERE sequence = 1"),
        "6"
    );
    assert_eq!(marks(2), "it lies after the end of its snapshot's interval");
    assert_eq!(marks(3), "");
}

/// Bytes in place of messages.
#[derive(Clone, Copy)]
pub(crate) struct Raw;

impl tonic::codec::Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl tonic::codec::Encoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn encode(
        &mut self,
        item: Vec<u8>,
        to: &mut tonic::codec::EncodeBuf<'_>,
    ) -> Result<(), tonic::Status> {
        prost::bytes::BufMut::put_slice(to, &item);
        Ok(())
    }
}

impl tonic::codec::Decoder for Raw {
    type Item = Vec<u8>;
    type Error = tonic::Status;

    fn decode(
        &mut self,
        from: &mut tonic::codec::DecodeBuf<'_>,
    ) -> Result<Option<Vec<u8>>, tonic::Status> {
        use prost::bytes::Buf;
        let mut bytes = vec![0; from.remaining()];
        from.copy_to_slice(&mut bytes);
        Ok(Some(bytes))
    }
}

/// What the collector answers to a Hello and then `bytes`.
async fn answer_to(collector: &Running, host: &Host, bytes: Vec<u8>) -> tonic::Status {
    use prost::Message;
    let hello = ReportRequest {
        sequence: 0,
        item: Some(Item::Hello(host.hello())),
    };
    answer_to_messages(collector, vec![hello.encode_to_vec(), bytes]).await
}

async fn answer_to_messages(collector: &Running, messages: Vec<Vec<u8>>) -> tonic::Status {
    let stream = tokio_stream::iter(messages).chain(tokio_stream::pending());
    let mut grpc = tonic::client::Grpc::new(collector.channel.clone());
    grpc.ready().await.unwrap();
    let path = PathAndQuery::from_static("/rdmesh.collector.v1.IngestService/Report");
    let answer = grpc.streaming(tonic::Request::new(stream), path, Raw).await;
    let mut responses = match answer {
        Ok(response) => response.into_inner(),
        Err(status) => return status,
    };
    loop {
        match responses.message().await {
            Ok(Some(_)) => {}
            Ok(None) => return tonic::Status::ok("ended"),
            Err(status) => return status,
        }
    }
}

#[tokio::test]
async fn bytes_that_are_no_message_and_messages_that_are_too_large_are_told_so() {
    let collector = Running::start().await;
    let (bad, good) = (Host::new("gpu-01"), Host::new("gpu-02"));
    let mut agent = collector.agent(good.hello()).await;

    let status = answer_to(&collector, &bad, vec![0xFF; 64]).await;
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    assert!(status.message().contains("no ReportRequest"), "{status:?}");

    let status = answer_to(&collector, &bad, vec![0; (4 << 20) + 1]).await;
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert!(
        status.message().contains("report fewer chains"),
        "{status:?}"
    );

    agent.send(1, good.failing("7")).await;
    agent.acknowledged(1).await;
    assert_eq!(collector.read("SELECT host FROM rdmesh.failures"), "gpu-02");
}

#[tokio::test]
async fn a_first_message_that_does_not_decode_is_the_callers_fault() {
    let collector = Running::start().await;
    // No field at all, and a Hello whose host is no UTF-8.
    let no_text = b"\x12\x04\x12\x02\xff\xfe".to_vec();
    for bytes in [vec![0xFF; 64], no_text] {
        let status = answer_to_messages(&collector, vec![bytes]).await;
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        let told = status.message();
        assert!(told.contains("is the client of another version?"), "{told}");
    }
    // Every call of the server, its health included.
    for call in [
        "/rdmesh.collector.v1.QueryService/Diagnose",
        "/rdmesh.collector.v1.WireService/WatchWires",
        "/grpc.health.v1.Health/Check",
    ] {
        let mut grpc = tonic::client::Grpc::new(collector.channel.clone());
        grpc.ready().await.unwrap();
        let request = tonic::Request::new(vec![0xFF; 64]);
        let path = PathAndQuery::from_static(call);
        let status = grpc.unary(request, path, Raw).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{call}: {status:?}");
    }
}

#[tokio::test]
async fn a_job_id_that_is_none_names_no_job_and_the_row_says_so() {
    let collector = Running::start().await;
    let host = Host::new("gpu-01");
    let mut agent = collector.agent(host.hello()).await;
    let long = "x".repeat(4_000);
    for (sequence, job) in (1..).zip(["a/b", "a\nb", long.as_str()]) {
        agent.send(sequence, host.failing(job)).await;
    }
    agent.acknowledged(3).await;
    assert!(agent.rejected.is_empty());
    assert_eq!(
        collector.read(
            "SELECT count(*) FROM rdmesh.failures WHERE job_id IS NULL \
             AND marks[1] LIKE 'the job id that its task names %'"
        ),
        "3"
    );
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.jobs"), "0");
}
