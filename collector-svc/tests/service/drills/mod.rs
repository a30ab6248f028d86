//! Ground truth: attempts whose cause is known by construction, told by agents and a
//! scheduler over real sockets, stored in a real Postgres, and diagnosed.
//!
//! The verdict must be right in all of them: class, layer, errno, host, whom to call.

mod connect;
mod elsewhere;
mod fleet;
mod memory;
mod run;
mod snapshot;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use rdmesh_proto::collector::v1::{JobState, Verdict, VerdictClass};
use rdmesh_proto::common::v1::Layer;
use rdmesh_proto::shaper::v1::WireWindow;
use rdmesh_proto::tracer::v1::{
    GpuDriver, HugePages, Inventory, Kernel, Limits, PeerMemory, RdmaDevice,
};

use self::snapshot::{Fail, Sign};
use crate::running::Running;

/// A host of an attempt, and what its tracer tells.
#[derive(Clone)]
struct Told {
    name: &'static str,
    fails: Vec<Fail>,
    signs: Vec<Sign>,
    drops: u64,
    inventory: Inventory,
    /// What it was before.
    earlier: Option<Inventory>,
    /// Hooks without a probe.
    without: &'static [&'static str],
    /// Host clock minus true time, nanoseconds.
    clock_off_ns: i64,
    /// No tracer runs there.
    silent: bool,
}

impl Told {
    /// A healthy GPU host on which nothing failed.
    fn new(name: &'static str) -> Self {
        Self {
            name,
            fails: Vec::new(),
            signs: Vec::new(),
            drops: 0,
            inventory: usual(),
            earlier: None,
            without: &[],
            clock_off_ns: 0,
            silent: false,
        }
    }

    fn fails(mut self, fail: Fail) -> Self {
        self.fails.push(fail);
        self
    }

    fn sees(mut self, sign: Sign) -> Self {
        self.signs.push(sign);
        self
    }

    fn is(mut self, change: impl FnOnce(&mut Inventory)) -> Self {
        change(&mut self.inventory);
        self
    }
}

/// What a GPU host mostly is: unlimited RLIMIT_MEMLOCK, a GPU, dmabuf, no peer memory.
fn usual() -> Inventory {
    Inventory {
        id: "inv".into(),
        kernel: Some(Kernel {
            release: "6.12.0".into(),
            ..Kernel::default()
        }),
        devices: vec![RdmaDevice {
            name: "mlx5_0".into(),
            driver: "mlx5_ib".into(),
            driver_version: "24.10".into(),
            firmware_version: "28.43.1014".into(),
            ..RdmaDevice::default()
        }],
        gpu: Some(GpuDriver {
            name: "nvidia".into(),
            version: "570.86".into(),
        }),
        peer_memory: Some(PeerMemory {
            modules: Vec::new(),
            dmabuf: true,
        }),
        huge_pages: Some(HugePages {
            page_size_bytes: 2 << 20,
            ..HugePages::default()
        }),
        limits: Some(Limits::default()),
        ..Inventory::default()
    }
}

/// What must come out.
#[derive(Clone, Copy)]
struct Truth {
    class: VerdictClass,
    layer: Layer,
    /// 0: none decides.
    errno: u32,
    /// The first that failed, without the drill's prefix; empty: none is named.
    host: &'static str,
    route: &'static str,
    /// Each must stand somewhere in the summary, the evidence, against it, or in what was
    /// not watched.
    says: &'static [&'static str],
}

/// An attempt whose cause is known.
struct Drill {
    name: &'static str,
    hosts: Vec<Told>,
    state: JobState,
    log: Option<&'static str>,
    windows: Vec<WireWindow>,
    truth: Truth,
}

impl Drill {
    fn new(name: &'static str, hosts: Vec<Told>, truth: Truth) -> Self {
        Self {
            name,
            hosts,
            state: JobState::Failed,
            log: None,
            windows: Vec::new(),
            truth,
        }
    }

    fn ended(mut self, state: JobState) -> Self {
        self.state = state;
        self
    }

    fn logged(mut self, log: &'static str) -> Self {
        self.log = Some(log);
        self
    }

    fn shaped(mut self, windows: Vec<WireWindow>) -> Self {
        self.windows = windows;
        self
    }

    /// What is wrong with the verdict; empty: nothing.
    fn wrong(&self, verdict: &Verdict, prefix: &str) -> Vec<String> {
        let truth = &self.truth;
        let mut wrong = Vec::new();
        let mut must = |what: &str, is: String, should: String| {
            if is != should {
                wrong.push(format!("{what} is {is}, and should be {should}"));
            }
        };
        must(
            "class",
            format!("{:?}", verdict.class()),
            format!("{:?}", truth.class),
        );
        must(
            "layer",
            format!("{:?}", verdict.layer()),
            format!("{:?}", truth.layer),
        );
        must("errno", verdict.errno.to_string(), truth.errno.to_string());
        let host = verdict.hosts.first().cloned().unwrap_or_default();
        let should = match truth.host {
            "" => String::new(),
            host => format!("{prefix}{host}"),
        };
        must("host", host, should);
        must("route", verdict.route_to.clone(), truth.route.to_owned());
        let said = [
            std::slice::from_ref(&verdict.summary),
            &verdict.evidence,
            &verdict.against,
            &verdict.unwatched,
        ]
        .concat()
        .join("\n");
        for says in truth.says {
            if !said.contains(&says.replace("{}", prefix)) {
                wrong.push(format!("nothing says {says:?}:\n{said}"));
            }
        }
        wrong
    }
}

fn class(class: VerdictClass) -> String {
    let name = class.as_str_name().trim_start_matches("VERDICT_CLASS_");
    name.to_lowercase()
}

/// Rows: what the cause was; columns: what the verdict was.
fn confusion(outcomes: &[(VerdictClass, VerdictClass)]) -> String {
    let mut cells: BTreeMap<(i32, i32), u32> = BTreeMap::new();
    for (truth, got) in outcomes {
        *cells.entry(((*truth).into(), (*got).into())).or_default() += 1;
    }
    let classes: Vec<VerdictClass> = (1..=15)
        .filter_map(|number| VerdictClass::try_from(number).ok())
        .collect();
    let mut table = format!("{:<24}", "cause \\ verdict");
    for column in &classes {
        write!(table, "{:>4}", i32::from(*column)).unwrap();
    }
    table.push('\n');
    for row in &classes {
        write!(table, "{:>2} {:<21}", i32::from(*row), class(*row)).unwrap();
        for column in &classes {
            match cells.get(&((*row).into(), (*column).into())) {
                Some(count) => write!(table, "{count:>4}").unwrap(),
                None => write!(table, "{:>4}", ".").unwrap(),
            }
        }
        table.push('\n');
    }
    table
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_drill_has_its_cause_as_verdict() {
    let collector = Running::start().await;
    let drills: Vec<Drill> = [memory::drills(), connect::drills(), elsewhere::drills()]
        .into_iter()
        .flatten()
        .collect();
    assert!(drills.len() >= 24, "{}", drills.len());
    let mut outcomes = Vec::new();
    let mut wrong = Vec::new();
    run::tell_all(&collector, &drills).await;
    for (number, drill) in drills.iter().enumerate() {
        let job = run::job(number);
        let verdict = run::diagnose(&collector, &job).await;
        outcomes.push((drill.truth.class, verdict.class()));
        for fault in drill.wrong(&verdict, &run::prefix(number)) {
            wrong.push(format!("{job} ({}): {fault}", drill.name));
        }
    }
    let looped = fleet::crash_loop(&collector).await;
    let incident = fleet::incident(&collector).await;
    outcomes.push((VerdictClass::Device, looped.class()));
    outcomes.push((VerdictClass::GpuPeerMemory, incident.class()));
    wrong.extend(fleet::wrong(&looped, &incident));
    println!("{} drills\n{}", outcomes.len(), confusion(&outcomes));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What is true of a failure on host `a`.
fn truth(class: VerdictClass, layer: Layer, errno: u32, route: &'static str) -> Truth {
    Truth {
        class,
        layer,
        errno,
        host: "a",
        route,
        says: &[],
    }
}

/// The same, with words that the verdict must have.
fn says(truth: Truth, says: &'static [&'static str]) -> Truth {
    Truth { says, ..truth }
}

/// Host `a` fails so, host `b` is well.
fn one(name: &'static str, fail: Fail, truth: Truth) -> Drill {
    let hosts = vec![Told::new("a").fails(fail), Told::new("b")];
    Drill::new(name, hosts, truth)
}
