//! What a record says of its call is what the call asked for, on each kernel: at
//! every step of the chain, and in the documented view.

use anyhow::{Context, Result, ensure};
use rdmesh_client::tracer::TracerClient;
use rdmesh_guest::Exec;
use rdmesh_lab::forks;
use rdmesh_lab::host::Host;
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::lab::{Lab, Task, TracedHost};
use rdmesh_lab::progress::Progress;
use rdmesh_lab::until;
use rdmesh_lab::verbs::{Report, Verbs};
use rdmesh_proto::tracer::v1 as tracer;
use rdmesh_proto::tracer::v1::record_arguments::Verb;
use rdmesh_proto::tracer::v1::tracer_service_client::TracerServiceClient;
use rdmesh_proto::tracer::v1::watch_failures_response::Event;
use rdmesh_proto::tracer::v1::{ObservedFailure, WatchFailuresRequest, WatchFailuresResponse};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::fmt::Write as _;
use std::net::Ipv6Addr;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// A snapshot leaves every five seconds; a busy machine is given several.
const SEEN: Duration = Duration::from_secs(60);

const EFAULT: i32 = 14;
const EINVAL: i32 = 22;
const ENOMEM: i32 = 12;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

/// A scenario, its errno, and what its records say beside what the program says that
/// it asked for.
struct Case {
    verbs: Verbs,
    errno: i32,
    also: Value,
    /// What no function of the chain knows.
    untold: &'static [&'static str],
    limited: bool,
}

fn case(scenario: &str, errno: i32, also: Value) -> Case {
    Case {
        verbs: Verbs::new(scenario),
        errno,
        also,
        untold: &[],
        limited: false,
    }
}

fn cases(kernel: Kernel) -> Vec<Case> {
    let unmapped = json!({ "mapping": "none", "mapping_of_end": "none" });
    let anonymous = json!({ "mapping": "anonymous", "mapping_of_end": "anonymous" });
    let mut all = Vec::new();
    if kernel == Kernel::V7_3 {
        all.push(case("method-reg-mr-efault", EFAULT, unmapped.clone()));
    }
    all.extend([
        case("reg-mr-efault", EFAULT, unmapped.clone()),
        case("write-reg-mr-efault", EFAULT, unmapped.clone()),
        case("reg-mr-access", EINVAL, unmapped),
        case("modify-qp-bad-transition", EINVAL, json!({})),
        case("write-modify-qp-einval", EINVAL, json!({})),
        // Soft-RoCE has RoCE v2 alone.
        case("modify-qp-path", EINVAL, json!({ "gid_type": 2 })),
        // The driver, which alone knows the state, is never reached.
        Case {
            untold: &["current_state"],
            ..case("modify-qp-empty-gid", ENODATA, json!({}))
        },
        case("create-qp-over-limits", EINVAL, json!({})),
        case("create-cq-over-limits", EINVAL, json!({})),
        case("create-ah-empty-gid", ENODATA, json!({})),
        // From the attributes of the ioctl method: the driver is never reached.
        case("reg-dmabuf-mr", EOPNOTSUPP, json!({})),
    ]);
    all.push(Case {
        limited: true,
        ..case("reg-mr-memlock", ENOMEM, anonymous)
    });
    for mapping in [
        "nothing",
        "anonymous",
        "file",
        "huge-page",
        "device",
        "short",
    ] {
        let mut case = case("reg-mr-mapping", EFAULT, json!({}));
        case.verbs = case.verbs.arg("--mapping").arg(mapping);
        all.push(case);
    }
    all
}

/// What one step says.
fn fields(arguments: &tracer::RecordArguments) -> Map<String, Value> {
    let gid = |bytes: &[u8]| {
        let bytes = <[u8; 16]>::try_from(bytes).ok()?;
        Some(Ipv6Addr::from(bytes).to_string().into())
    };
    let mapping = |mapping: tracer::Mapping| {
        let name = mapping.as_str_name().trim_start_matches("MAPPING_");
        (mapping != tracer::Mapping::Unspecified).then(|| name.to_lowercase().into())
    };
    let number = |value: Option<u32>| value.map(Value::from);
    let said: Vec<(&str, Option<Value>)> = match &arguments.verb {
        None | Some(Verb::Devx(_)) => Vec::new(),
        Some(Verb::RegMr(a)) => vec![
            ("address", a.address.map(Value::from)),
            ("length_bytes", a.length_bytes.map(Value::from)),
            ("access_flags", number(a.access_flags)),
            ("mapping", mapping(a.mapping())),
            ("mapping_of_end", mapping(a.mapping_of_end())),
            ("dmabuf_fd", a.dmabuf_fd.map(Value::from)),
            (
                "dmabuf_offset_bytes",
                a.dmabuf_offset_bytes.map(Value::from),
            ),
        ],
        Some(Verb::ModifyQp(a)) => vec![
            ("qp_number", number(a.qp_number)),
            ("current_state", number(a.current_state)),
            ("asked_state", number(a.asked_state)),
            ("attribute_mask", number(a.attribute_mask)),
            ("port", number(a.port)),
            ("gid_index", number(a.gid_index)),
            ("gid_type", number(a.gid_type)),
            ("destination_gid", gid(&a.destination_gid)),
        ],
        Some(Verb::AddressHandle(a)) => vec![
            ("port", number(a.port)),
            ("gid_index", number(a.gid_index)),
            ("gid_type", number(a.gid_type)),
            ("destination_gid", gid(&a.destination_gid)),
        ],
        Some(Verb::Create(a)) => vec![
            ("cqe", number(a.cqe)),
            ("max_send_wr", number(a.max_send_wr)),
            ("max_recv_wr", number(a.max_recv_wr)),
            ("max_send_sge", number(a.max_send_sge)),
            ("max_recv_sge", number(a.max_recv_sge)),
            ("max_inline_data_bytes", number(a.max_inline_data_bytes)),
            ("completion_vector", number(a.completion_vector)),
            ("qp_type", number(a.qp_type)),
        ],
        Some(Verb::FirmwareCommand(a)) => vec![("opcode", number(a.opcode))],
    };
    said.into_iter()
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

type Watch = tonic::Streaming<WatchFailuresResponse>;

async fn watch(host: &TracedHost) -> Result<Watch> {
    let address = format!("http://{}", host.tracer_address());
    let mut client = TracerServiceClient::connect(address).await?;
    let request = WatchFailuresRequest {
        include_expected: true,
    };
    Ok(client.watch_failures(request).await?.into_inner())
}

/// The failure of a process.
async fn failure_of(watch: &mut Watch, tgid: u32) -> Result<ObservedFailure> {
    let found = tokio::time::timeout(SEEN, async {
        while let Some(response) = watch.message().await? {
            match response.event {
                Some(Event::Failure(failure)) if failure.tgid == tgid => return Ok(failure),
                _ => {}
            }
        }
        anyhow::bail!("tracer-svc ended")
    });
    found.await.context("no failure was told")?
}

/// The memory limit holds for an unprivileged user alone.
fn exec(case: &Case) -> Exec {
    let exec = case.verbs.clone().exec();
    if !case.limited {
        return exec;
    }
    Exec {
        uid: Some(1000),
        gid: Some(1000),
        memlock_bytes: Some(64 * 1024),
        ..exec
    }
}

/// Each step agrees with what was asked for, and together they say all of it.
fn check_steps(seen: &ObservedFailure, wanted: &Map<String, Value>) -> Result<()> {
    ensure!(
        seen.steps.len() == seen.step_arguments.len(),
        "{} steps, {} of arguments",
        seen.steps.len(),
        seen.step_arguments.len()
    );
    let mut together = Map::new();
    for (step, arguments) in seen.steps.iter().zip(&seen.step_arguments) {
        for (name, value) in fields(arguments) {
            if let Some(wanted) = wanted.get(&name) {
                ensure!(
                    value == *wanted,
                    "{} says {name} {value}, asked was {wanted}",
                    step.function
                );
            }
            together.insert(name, value);
        }
    }
    for name in wanted.keys() {
        ensure!(together.contains_key(name), "no step says {name}");
    }
    Ok(())
}

/// The names that the view gives to numbers.
fn as_stored(wanted: &Map<String, Value>) -> Value {
    let states = ["RESET", "INIT", "RTR", "RTS"];
    let mut stored = Map::new();
    let mut create = Map::new();
    for (name, value) in wanted {
        let number = value.as_u64().unwrap_or(0);
        let state = || states[usize::try_from(number).unwrap_or(0)];
        let stored_value: Value = match name.as_str() {
            "address" => format!("{number:#x}").into(),
            "current_state" | "asked_state" => state().into(),
            "gid_type" => "RoCE v2".into(),
            _ => value.clone(),
        };
        if name == "cqe" || name == "completion_vector" || name.starts_with("max_") {
            create.insert(name.clone(), stored_value);
        } else if name == "qp_type" {
            create.insert(name.clone(), value.clone());
        } else {
            stored.insert(name.clone(), stored_value);
        }
    }
    if !create.is_empty() {
        stored.insert("create".to_owned(), create.into());
    }
    stored.into()
}

/// Whether all that is wanted is in what there is.
fn holds(all: &Value, wanted: &Value) -> bool {
    match (all, wanted) {
        (Value::Object(all), Value::Object(wanted)) => wanted.iter().all(|(name, value)| {
            let found = all.get(name);
            found.is_some_and(|found| holds(found, value))
        }),
        _ => all == wanted,
    }
}

#[derive(Debug, Deserialize)]
struct Stored {
    arguments: Option<Value>,
}

async fn check_stored(lab: &Lab, job: &str, wanted: &Map<String, Value>) -> Result<()> {
    let query = format!("SELECT arguments FROM rdmesh.failures WHERE job_id = '{job}'");
    let rows = until::some(&format!("rows of job {job}"), SEEN, || async {
        let rows: Vec<Stored> = lab.sql().rows(&query).await?;
        Ok((!rows.is_empty()).then_some(rows))
    })
    .await?;
    let wanted = as_stored(wanted);
    let found = rows.iter().filter_map(|row| row.arguments.as_ref());
    let found: Vec<&Value> = found.collect();
    ensure!(
        found.iter().any(|stored| holds(stored, &wanted)),
        "stored is {found:?}, asked was {wanted}"
    );
    Ok(())
}

/// What each probe says that it reads.
fn told(report: &tracer::ProbeReport) -> Result<String> {
    let mut out = String::new();
    for probe in &report.probes {
        if probe.arguments.is_empty() && probe.arguments_absent.is_empty() {
            continue;
        }
        writeln!(out, "{} {}", probe.hook, probe.function)?;
        writeln!(out, "  {}", probe.arguments.join(" "))?;
        for absent in &probe.arguments_absent {
            writeln!(out, "  not {absent}")?;
        }
    }
    Ok(out)
}

async fn asked_is_told(kernel: Kernel) -> Result<()> {
    let lab = Lab::start(Progress::Quiet).await?;
    let host = lab.host("gpu-01", kernel).await?;
    println!(
        "kernel {} ({})",
        host.kernel_version(),
        host.ready().release
    );
    let mut watch = watch(&host).await?;
    let mut jobs = Vec::new();
    for (number, case) in cases(kernel).iter().enumerate() {
        let job = format!("asked-{number}");
        let exit = host
            .run_task(&Task::of(&job), exec(case), LIMIT)
            .await
            .with_context(|| format!("{:?}", case.verbs))?;
        let report = Report::parse(&exit).with_context(|| format!("{:?}", case.verbs))?;
        ensure!(
            report.failures == [(case.errno, 1)].into(),
            "{:?}: {report:?}",
            case.verbs
        );
        let asked = report.asked.context("the scenario does not say")?;
        let mut wanted = asked.as_object().cloned().unwrap_or_default();
        wanted.extend(case.also.as_object().cloned().unwrap_or_default());
        for name in case.untold {
            wanted.remove(*name);
        }
        let seen = failure_of(&mut watch, report.pid).await?;
        check_steps(&seen, &wanted).with_context(|| format!("{:?}: {seen:?}", case.verbs))?;
        jobs.push((job, wanted, format!("{:?}", case.verbs)));
    }
    // At the end: each wait for a snapshot would cost seconds.
    for (job, wanted, verbs) in &jobs {
        check_stored(&lab, job, wanted)
            .await
            .with_context(|| verbs.clone())?;
    }
    let name = format!("arguments_{}", kernel.series());
    insta::assert_snapshot!(name, told(&host.probe_report().await?)?);
    match kernel {
        Kernel::V6_12 => some_forks(&host, kernel).await,
        _ => Ok(()),
    }
}

/// Of two scenarios that a seed chooses: all of them, on each kernel, by `make probes`.
async fn some_forks(host: &Host, kernel: Kernel) -> Result<()> {
    let seed = match std::env::var("FORKS_SEED") {
        Ok(seed) => seed.parse().context("FORKS_SEED")?,
        Err(_) => u64::from(std::process::id()),
    };
    let broken = forks::sample(seed, 2);
    println!("FORKS_SEED={seed} chooses {broken:?}");
    let client = TracerClient::connect(&host.tracer_address(), LIMIT).await?;
    let mut verbs: Vec<&str> = broken.iter().map(|broken| broken.verb).collect();
    verbs.dedup();
    forks::record(host, &client, &verbs).await?;
    let named = forks::diff(host, &client, &broken).await?;
    ensure!(named.len() == broken.len(), "{named:?}");
    forks::check(kernel, &named)
}

#[tokio::test]
async fn asked_is_told_on_6_1() -> Result<()> {
    asked_is_told(Kernel::V6_1).await
}

#[tokio::test]
async fn asked_is_told_on_6_12() -> Result<()> {
    asked_is_told(Kernel::V6_12).await
}

#[tokio::test]
async fn asked_is_told_on_7_3() -> Result<()> {
    asked_is_told(Kernel::V7_3).await
}
