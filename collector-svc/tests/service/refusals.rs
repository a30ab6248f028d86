//! Calls that are forbidden: each is refused with the right code, none leaves a secret in the
//! log, none slows others.

use std::future::Future;
use std::io::Write;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rdmesh_proto::collector::v1::baseline_service_client::BaselineServiceClient;
use rdmesh_proto::collector::v1::job_service_client::JobServiceClient;
use rdmesh_proto::collector::v1::query_service_client::QueryServiceClient;
use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::reset_wires_request::Which;
use rdmesh_proto::collector::v1::statistics_service_client::StatisticsServiceClient;
use rdmesh_proto::collector::v1::submit_job_log_request::Item as LogItem;
use rdmesh_proto::collector::v1::wire_service_client::WireServiceClient;
use rdmesh_proto::collector::v1::{
    DiagnoseRequest, FinishWindowRequest, GetClassesRequest, GetJobRequest, JobLogSource,
    LeaseWindowRequest, ListAgentsRequest, ListFailuresRequest, ListWiresRequest, PlaceJobRequest,
    ReportRequest, ResetWiresRequest, SetBypassRequest, SetRateRequest, SubmitJobLogRequest,
    WindowPurpose,
};
use rdmesh_tls::authority::Issued;
use rdmesh_tls::{Role, now};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use crate::bad_input::Raw;
use crate::made::Host;
use crate::rights::{attempt, end, placed, start};
use crate::running::Agent;
use crate::secured::{SecuredCollector, Site};

/// What must not be in any log, planted where a careless line would pick it up.
const SECRET: &str = "s3cr3t-planted";

/// Who calls.
enum Who {
    /// With a proper certificate.
    As(Role, &'static str),
    /// With whatever it shows, over TLS that knows nothing of identities.
    Showing(Option<Issued>),
    /// Without TLS.
    Plain,
}

type Answer = Pin<Box<dyn Future<Output = Result<(), Status>> + Send>>;
type Call = Box<dyn Fn(Channel) -> Answer + Send + Sync>;

struct Case {
    name: &'static str,
    who: Who,
    call: Call,
    code: Code,
}

fn case<F>(
    name: &'static str,
    who: Who,
    code: Code,
    call: impl Fn(Channel) -> F + Send + Sync + 'static,
) -> Case
where
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    Case {
        name,
        who,
        call: Box::new(move |channel| Box::pin(call(channel))),
        code,
    }
}

/// With a secret where clients put theirs.
fn with_secret<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    let value = format!("Bearer {SECRET}").parse().unwrap();
    request.metadata_mut().insert("authorization", value);
    request
}

async fn health(channel: Channel) -> Result<(), Status> {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let asked = with_secret(HealthCheckRequest::default());
    HealthClient::new(channel).check(asked).await.map(drop)
}

async fn hello(channel: Channel, host: &str) -> Result<(), Status> {
    let first = ReportRequest {
        sequence: 0,
        item: Some(Item::Hello(Host::new(host).hello())),
    };
    Agent::open(channel, first).await.map(drop)
}

async fn start_job(channel: Channel) -> Result<(), Status> {
    let mut asked = start("1", "");
    asked.name = SECRET.to_owned();
    JobServiceClient::new(channel)
        .start_job(with_secret(asked))
        .await
        .map(drop)
}

async fn log_of(channel: Channel, job_id: &'static str) -> Result<(), Status> {
    let source = JobLogSource {
        attempt: attempt(job_id),
        ..JobLogSource::default()
    };
    let items = [LogItem::Source(source), LogItem::Data(SECRET.into())];
    let items = items.map(|item| SubmitJobLogRequest { item: Some(item) });
    let log = tokio_stream::iter(items);
    JobServiceClient::new(channel)
        .submit_job_log(log)
        .await
        .map(drop)
}

async fn set_rate(channel: Channel) -> Result<(), Status> {
    let asked = SetRateRequest {
        request_id: SECRET.to_owned(),
        ..SetRateRequest::default()
    };
    WireServiceClient::new(channel)
        .set_rate(asked)
        .await
        .map(drop)
}

async fn reset_all(channel: Channel) -> Result<(), Status> {
    let asked = ResetWiresRequest {
        which: Some(Which::All(true)),
        ..ResetWiresRequest::default()
    };
    WireServiceClient::new(channel)
        .reset_wires(asked)
        .await
        .map(drop)
}

async fn bypass(channel: Channel) -> Result<(), Status> {
    let asked = SetBypassRequest::default();
    WireServiceClient::new(channel)
        .set_bypass(asked)
        .await
        .map(drop)
}

async fn lease(channel: Channel, host: &str) -> Result<(), Status> {
    let asked = LeaseWindowRequest {
        host: host.to_owned(),
        run_id: Host::new(host).run_id,
        driver: "mlx5_ib".into(),
        kernel_release: "6.12".into(),
        purpose: WindowPurpose::Record.into(),
        verbs: vec!["reg_mr".into()],
        ..LeaseWindowRequest::default()
    };
    BaselineServiceClient::new(channel)
        .lease_window(asked)
        .await
        .map(drop)
}

async fn finish(channel: Channel, host: &str) -> Result<(), Status> {
    let asked = FinishWindowRequest {
        host: host.to_owned(),
        lease_id: "6f1f4e4e-8a52-4b53-9c0a-0a0f9a6d7c11".into(),
        failure: "x".into(),
        ..FinishWindowRequest::default()
    };
    BaselineServiceClient::new(channel)
        .finish_window(asked)
        .await
        .map(drop)
}

/// Bytes in place of a message, to any method, with any `grpc-encoding`.
async fn bytes(
    channel: Channel,
    path: &'static str,
    message: Vec<u8>,
    encoding: Option<&'static str>,
) -> Result<(), Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client
        .ready()
        .await
        .map_err(|e| Status::unavailable(e.to_string()))?;
    let mut request = Request::new(message);
    if let Some(encoding) = encoding {
        let value = encoding.parse().unwrap();
        request.metadata_mut().insert("grpc-encoding", value);
    }
    client
        .unary(request, PathAndQuery::from_static(path), Raw)
        .await
        .map(drop)
}

const START_JOB: &str = "/rdmesh.collector.v1.JobService/StartJob";

fn who_is_not_let_in(site: &Site, other: &Site) -> Vec<Case> {
    let agent = Role::Agent;
    let odd = |uris: &[&str]| Who::Showing(Some(site.odd(uris, true)));
    let told = |name, who| case(name, who, Code::Unauthenticated, health);
    let closed = |name, who| case(name, who, Code::Unavailable, health);
    let (_, self_signed) = rdmesh_tls::authority::Authority::create("s", now(), 2).unwrap();
    vec![
        closed("no TLS", Who::Plain),
        closed("no certificate", Who::Showing(None)),
        closed("self-signed", Who::Showing(Some(self_signed))),
        closed(
            "another authority",
            Who::Showing(Some(other.issue(agent, "gpu-01", &[]))),
        ),
        closed(
            "another authority's operator",
            Who::Showing(Some(other.issue(Role::Operator, "ada", &[]))),
        ),
        closed(
            "expired",
            Who::Showing(Some(site.timed(agent, "gpu-01", -90, -30))),
        ),
        closed(
            "not yet valid",
            Who::Showing(Some(site.timed(agent, "gpu-01", 3_600, 7_200))),
        ),
        closed(
            "for servers alone",
            Who::Showing(Some(site.odd(&["rdmesh://s/agent/gpu-01"], false))),
        ),
        closed("the authority itself", Who::Showing(Some(site.own.clone()))),
        told("nobody", odd(&[])),
        told("another scheme", odd(&["spiffe://s/agent/gpu-01"])),
        told("another site", odd(&["rdmesh://t/operator/ada"])),
        told("no such role", odd(&["rdmesh://s/root/ada"])),
        told("a path in the name", odd(&["rdmesh://s/agent/../../etc"])),
        told(
            "SQL in the name",
            odd(&["rdmesh://s/agent/x';DROP TABLE y"]),
        ),
        told(
            "two roles",
            odd(&["rdmesh://s/agent/gpu-01", "rdmesh://s/operator/ada"]),
        ),
        told(
            "two sites",
            odd(&["rdmesh://s/agent/gpu-01", "rdmesh://t/agent/gpu-01"]),
        ),
    ]
}

fn what_a_role_may_not() -> Vec<Case> {
    const AGENT: Who = Who::As(Role::Agent, "gpu-01");
    const READER: Who = Who::As(Role::Reader, "grafana");
    const SCHEDULER: Who = Who::As(Role::Scheduler, "b");
    const COLLECTOR: Who = Who::As(Role::Collector, "c2");
    let no = Code::PermissionDenied;
    vec![
        case("an agent starts a job", AGENT, no, start_job),
        case("an agent ends a job", AGENT, no, async |c: Channel| {
            JobServiceClient::new(c).end_job(end("7")).await.map(drop)
        }),
        case("an agent places a job", AGENT, no, async |c: Channel| {
            let asked = PlaceJobRequest::default();
            JobServiceClient::new(c).place_job(asked).await.map(drop)
        }),
        case("an agent sends a log", AGENT, no, |c| log_of(c, "7")),
        case("an agent reads failures", AGENT, no, async |c: Channel| {
            let asked = ListFailuresRequest::default();
            QueryServiceClient::new(c)
                .list_failures(asked)
                .await
                .map(drop)
        }),
        case("an agent diagnoses", AGENT, no, async |c: Channel| {
            let asked = DiagnoseRequest::default();
            QueryServiceClient::new(c).diagnose(asked).await.map(drop)
        }),
        case("an agent lists agents", AGENT, no, async |c: Channel| {
            let asked = ListAgentsRequest::default();
            QueryServiceClient::new(c)
                .list_agents(asked)
                .await
                .map(drop)
        }),
        case("an agent lists wires", AGENT, no, async |c: Channel| {
            let asked = ListWiresRequest::default();
            WireServiceClient::new(c).list_wires(asked).await.map(drop)
        }),
        case("an agent shapes", AGENT, no, set_rate),
        case("an agent of another host reports", AGENT, no, |c| {
            hello(c, "gpu-02")
        }),
        case("an agent reports in another case", AGENT, no, |c| {
            hello(c, "GPU-01")
        }),
        case("an agent reports for a path", AGENT, no, |c| {
            hello(c, "../gpu-01")
        }),
        case("an agent leases for another host", AGENT, no, |c| {
            lease(c, "gpu-02")
        }),
        case("an agent finishes for another host", AGENT, no, |c| {
            finish(c, "gpu-02")
        }),
        case("a reader reports", READER, no, |c| hello(c, "grafana")),
        case("a reader starts a job", READER, no, start_job),
        case("a reader sends a log", READER, no, |c| log_of(c, "7")),
        case("a reader shapes", READER, no, set_rate),
        case("a reader resets wires", READER, no, reset_all),
        case("a reader bypasses", READER, no, bypass),
        case("a reader leases", READER, no, |c| lease(c, "grafana")),
        case("a scheduler reports", SCHEDULER, no, |c| hello(c, "b")),
        case("a scheduler leases", SCHEDULER, no, |c| lease(c, "b")),
        case(
            "a scheduler reads statistics",
            SCHEDULER,
            no,
            async |c: Channel| {
                let asked = GetClassesRequest::default();
                StatisticsServiceClient::new(c)
                    .get_classes(asked)
                    .await
                    .map(drop)
            },
        ),
        case("a scheduler resets every wire", SCHEDULER, no, reset_all),
        case(
            "a scheduler ends another's job",
            SCHEDULER,
            no,
            async |c: Channel| JobServiceClient::new(c).end_job(end("7")).await.map(drop),
        ),
        case(
            "a scheduler starts as another",
            SCHEDULER,
            no,
            async |c: Channel| {
                JobServiceClient::new(c)
                    .start_job(start("8", "a"))
                    .await
                    .map(drop)
            },
        ),
        case("a scheduler logs for another's job", SCHEDULER, no, |c| {
            log_of(c, "7")
        }),
        case("a collector reports", COLLECTOR, no, |c| hello(c, "c2")),
        case("a collector starts a job", COLLECTOR, no, start_job),
    ]
}

fn what_nobody_may() -> Vec<Case> {
    const ADA: Who = Who::As(Role::Operator, "ada");
    let bad = Code::InvalidArgument;
    vec![
        case("a huge message", ADA, Code::OutOfRange, |c| {
            bytes(c, START_JOB, vec![b'x'; 5 << 20], None)
        }),
        // What it unpacks to is never seen: no encoding is taken.
        case("a decompression bomb", ADA, Code::Unimplemented, |c| {
            bytes(c, START_JOB, vec![0; 64 << 10], Some("gzip"))
        }),
        case("an encoding of its own", ADA, Code::Unimplemented, |c| {
            bytes(c, START_JOB, b"x".to_vec(), Some("zstd"))
        }),
        // Field 2, the name: three bytes that are no UTF-8.
        case("invalid UTF-8", ADA, bad, |c| {
            bytes(c, START_JOB, vec![0x12, 3, 0xff, 0xfe, 0xfd], None)
        }),
        case("a message that is cut", ADA, bad, |c| {
            bytes(c, START_JOB, vec![0x12, 200, b'x'], None)
        }),
        case("a path in a host's name", ADA, bad, async |c: Channel| {
            let mut asked = start("1", "");
            asked.placements = vec![placed("../../etc/passwd")];
            JobServiceClient::new(c).start_job(asked).await.map(drop)
        }),
        case("SQL in a host's name", ADA, bad, async |c: Channel| {
            let mut asked = start("1", "");
            asked.placements = vec![placed("x'; DROP TABLE rdmesh_store.jobs; --")];
            JobServiceClient::new(c).start_job(asked).await.map(drop)
        }),
        case("control characters", ADA, bad, async |c: Channel| {
            let mut asked = start("1", "");
            asked.name = "a\u{1b}[2J".into();
            JobServiceClient::new(c).start_job(asked).await.map(drop)
        }),
        case("a job without a name", ADA, bad, |c| {
            let asked = start("", "");
            async move { JobServiceClient::new(c).start_job(asked).await.map(drop) }
        }),
        case("no such method", ADA, Code::Unimplemented, |c| {
            bytes(
                c,
                "/rdmesh.collector.v1.JobService/DropAll",
                Vec::new(),
                None,
            )
        }),
        case("no such service", ADA, Code::Unimplemented, |c| {
            bytes(c, "/x/../../etc/passwd", Vec::new(), None)
        }),
        // An endless stream that never says who it is.
        case(
            "a stream without a hello",
            ADA,
            Code::DeadlineExceeded,
            async |c: Channel| {
                use rdmesh_proto::collector::v1::ingest_service_client::IngestServiceClient;
                let silent = tokio_stream::pending::<ReportRequest>();
                IngestServiceClient::new(c).report(silent).await.map(drop)
            },
        ),
    ]
}

async fn refused(collector: &SecuredCollector, case: &Case) -> Code {
    let channel = match &case.who {
        Who::As(role, name) => Ok(collector.caller(*role, name).await),
        Who::Showing(issued) => collector.raw(issued.as_ref()).await,
        Who::Plain => {
            let address = format!("http://{}", collector.address);
            let endpoint = Channel::from_shared(address).unwrap();
            let connected = endpoint.connect().await;
            connected.map_err(|error| format!("{error:?}"))
        }
    };
    let Ok(channel) = channel else {
        return Code::Unavailable;
    };
    match (case.call)(channel).await {
        Ok(()) => Code::Ok,
        // A connection that was closed under the call.
        Err(status) if std::error::Error::source(&status).is_some() => Code::Unavailable,
        Err(status) => {
            assert!(
                !status.message().contains(SECRET),
                "{}: {status}",
                case.name
            );
            status.code()
        }
    }
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The median of some calls of a client that behaves.
async fn usual(channel: &Channel, calls: usize) -> Duration {
    let mut took = Vec::new();
    for _ in 0..calls {
        let began = Instant::now();
        let asked = GetJobRequest {
            job_id: "7".into(),
            ..GetJobRequest::default()
        };
        JobServiceClient::new(channel.clone())
            .get_job(asked)
            .await
            .unwrap();
        took.push(began.elapsed());
    }
    took.sort();
    took[took.len() / 2]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forbidden_calls_are_refused_tell_no_secret_and_slow_nobody() {
    let log = Log::default();
    let writer = log.clone();
    tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_writer(move || writer.clone())
        .init();
    let collector = SecuredCollector::start(|_| {}).await;
    let other = Site::new("s");
    let scheduler = collector.caller(Role::Scheduler, "a").await;
    let mut jobs = JobServiceClient::new(scheduler.clone());
    jobs.start_job(start("7", "a")).await.unwrap();
    usual(&scheduler, 50).await;
    let before = usual(&scheduler, 200).await;

    let mut cases = who_is_not_let_in(&collector.site, &other);
    cases.extend(what_a_role_may_not());
    cases.extend(what_nobody_may());
    assert!(cases.len() >= 55, "{} cases", cases.len());
    // Some who shake no hands at all, all the while.
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(TcpStream::connect(collector.address).await.unwrap());
    }
    let mut wrong = Vec::new();
    let refusing = async {
        for case in &cases {
            let code = refused(&collector, case).await;
            if code != case.code {
                wrong.push(format!("{}: {code:?} and not {:?}", case.name, case.code));
            }
        }
    };
    let timing = usual(&scheduler, 1_000);
    let ((), meanwhile) = tokio::join!(refusing, timing);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(
        meanwhile < before * 25,
        "a call takes {meanwhile:?} where it took {before:?}"
    );
    // Nothing of what was refused is stored.
    assert_eq!(collector.read("SELECT count(*) FROM rdmesh.agents"), "0");
    assert_eq!(
        collector.read("SELECT string_agg(job_id, ',') FROM rdmesh.jobs"),
        "7"
    );
    // Those that said nothing are closed by and by.
    for mut stream in silent {
        let _ = stream.write_all(b"late").await;
        let mut rest = Vec::new();
        let _ = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut rest))
            .await
            .expect("closed within the deadline");
    }
    let log = String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!(
        log.contains("call refused") && log.contains("handshake refused"),
        "{log}"
    );
    assert!(!log.contains(SECRET), "a secret is in the log");
    assert!(!log.contains("PRIVATE KEY"), "a key is in the log");
    let key_lines = collector
        .site
        .own
        .key
        .lines()
        .filter(|line| line.len() == 64);
    for line in key_lines {
        assert!(!log.contains(line), "a part of a key is in the log");
    }
    collector.stop().await;
}
