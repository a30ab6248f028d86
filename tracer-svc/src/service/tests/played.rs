//! A kernel and outputs that a test plays.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex};

use rdmesh_proto::common::v1::ClockPair;
use rdmesh_services::uplink::Item;
use tokio::sync::Notify;

use crate::automatic::Offers;
use crate::catalogue::{Catalogue, ExpectedRules};
use crate::config::CostConfig;
use crate::counters::{Counters, ErrorCount, ProbeLosses};
use crate::host::Roots;
use crate::loader::LoadError;
use crate::record::{
    ARG_WORDS, ArgsKind, COMM_BYTES, DEVICE_BYTES, DecodeError, Event, Identity, ProbeId, Record,
    STACK_DEPTH,
};
use crate::resolve::{Found, HookReport, HookState, Mechanism, Missing, Probe, ProbeState, Report};
use crate::service::kernel::Kernel;
use crate::service::pipeline::{Outputs, Settings};
use crate::service::{Feed, Figures};

pub(super) const UMEM: u16 = 0;
pub(super) const DRIVER: u16 = 1;
pub(super) const UVERBS: u16 = 2;

pub(super) fn report() -> Report {
    let hooks = Catalogue::built_in().unwrap().hooks;
    let find = |name: &str| hooks.iter().find(|h| h.name == name).unwrap().clone();
    let probe = |id: u16, hook: &str, module: &str, function: &str, found| Probe {
        id: ProbeId(id),
        hook: find(hook),
        module: module.to_owned(),
        function: function.to_owned(),
        role: crate::catalogue::Role::Main,
        found,
        state: ProbeState::Attached(Mechanism::Fexit),
        not_by_fexit: None,
        address_hidden: false,
        arguments: Vec::new(),
    };
    let served = |id: u16, hook: &str| HookReport {
        hook: find(hook),
        state: HookState::Attached,
        probes: vec![ProbeId(id)],
        gaps: Vec::new(),
    };
    Report {
        resolution: String::new(),
        probes: vec![
            probe(
                UMEM,
                "memory.umem",
                "ib_core",
                "ib_umem_get_desc",
                Found::Name,
            ),
            probe(
                DRIVER,
                "driver.reg_mr",
                "rdma_rxe",
                "rxe_reg_user_mr",
                Found::OpsTable,
            ),
            probe(
                UVERBS,
                "uverbs.reg_mr",
                "ib_uverbs",
                "ib_uverbs_reg_mr",
                Found::Name,
            ),
        ],
        hooks: vec![
            served(UVERBS, "uverbs.reg_mr"),
            served(DRIVER, "driver.reg_mr"),
            HookReport {
                hook: find("driver.reg_dmabuf_mr"),
                state: HookState::Missing(vec![Missing::NoOperation {
                    module: "rdma_rxe".to_owned(),
                    operation: "reg_user_mr_dmabuf".to_owned(),
                }]),
                probes: Vec::new(),
                gaps: Vec::new(),
            },
            HookReport {
                hook: find("memory.umem"),
                state: HookState::Replaced {
                    by: vec!["ib_core:ib_umem_get_desc".to_owned()],
                },
                probes: vec![ProbeId(UMEM)],
                gaps: Vec::new(),
            },
        ],
    }
}

pub(super) fn record(probe: u16, boot_ns: u64) -> Record {
    let mut device = [0; DEVICE_BYTES];
    device[..4].copy_from_slice(b"rxe0");
    Record {
        boot_ns,
        probe: ProbeId(probe),
        errno: 14,
        tgid: 4_000_000,
        tid: 4_000_001,
        start_boot_ns: 5,
        comm: *b"python\x1b\0\0\0\0\0\0\0\0\0",
        cgroup_id: 44,
        device,
        object: 0,
        entry: 7,
        sleeps: 0,
        drops_so_far: 0,
        stack: [0; STACK_DEPTH],
        args_kind: ArgsKind::None,
        args: [0; ARG_WORDS],
    }
}

pub(super) fn failing_call(boot_ns: u64) -> Vec<Event> {
    [UMEM, DRIVER, UVERBS]
        .into_iter()
        .zip(boot_ns..)
        .map(|(probe, at)| Event::Record(record(probe, at)))
        .collect()
}

pub(super) fn identity() -> Event {
    Event::Identity(Box::new(Identity {
        boot_ns: 1,
        tgid: 4_000_000,
        start_boot_ns: 5,
        comm: [0; COMM_BYTES],
        cgroup_id: 44,
        environ: b"AWS_SECRET=hidden\0RDMESH_JOB_ID=demo\0RDMESH_ATTEMPT=1\0RANK=3\0".to_vec(),
        environ_cut: false,
        cgroup_path: b"/work/demo".to_vec(),
        cgroup_cut: false,
    }))
}

/// A kernel that a test plays.
#[derive(Clone, Default)]
pub(super) struct Played {
    pub(super) state: Arc<Mutex<PlayedState>>,
    woken: Arc<Notify>,
    report: Report,
}

#[derive(Default)]
pub(super) struct PlayedState {
    events: VecDeque<Event>,
    pub(super) counters: Counters,
    pub(super) after_refresh: Option<Report>,
    pub(super) timed: bool,
    pub(super) exits_left_out: u64,
    /// What was done to the probes, in order.
    pub(super) done: Vec<String>,
}

impl Played {
    pub(super) fn new(report: Report) -> Self {
        Self {
            report,
            ..Self::default()
        }
    }

    pub(super) fn fail(&self, events: Vec<Event>) {
        self.state.lock().unwrap().events.extend(events);
        self.woken.notify_one();
    }

    pub(super) fn count(&self, count: u64, dropped: u64) {
        let dropped = ProbeLosses {
            records_dropped: dropped,
            ..ProbeLosses::default()
        };
        self.state.lock().unwrap().counters = Counters {
            by_errno: vec![ErrorCount {
                probe: ProbeId(UVERBS),
                errno: 14,
                count,
            }],
            losses: vec![ProbeLosses::default(), ProbeLosses::default(), dropped],
            ..Counters::default()
        };
    }
}

impl Played {
    fn take_off(&mut self, module: Option<&str>, why: &Missing) -> usize {
        let mut probes = std::mem::take(&mut self.report.probes);
        let mut off = 0;
        for probe in &mut probes {
            let attached = matches!(probe.state, ProbeState::Attached(_));
            if attached && module.is_none_or(|m| m == probe.module) {
                probe.state = ProbeState::Missing(why.clone());
                off += 1;
            }
        }
        self.report = Report::new(&Catalogue::built_in().unwrap(), probes, &[]);
        off
    }
}

impl Kernel for Played {
    async fn ready(&mut self) -> io::Result<()> {
        self.woken.notified().await;
        Ok(())
    }

    fn next(&mut self) -> Option<Result<Event, DecodeError>> {
        self.state.lock().unwrap().events.pop_front().map(Ok)
    }

    fn counters(&self) -> Result<Counters, LoadError> {
        Ok(self.state.lock().unwrap().counters.clone())
    }

    fn renew_exits(&mut self) -> Result<u64, LoadError> {
        Ok(self.state.lock().unwrap().exits_left_out)
    }

    fn report(&self) -> &Report {
        &self.report
    }

    fn refresh(&mut self) -> Result<bool, LoadError> {
        let found = self.state.lock().unwrap().after_refresh.take();
        let changed = found.is_some();
        if let Some(found) = found {
            self.report = found;
        }
        Ok(changed)
    }

    fn time_programs(&mut self, on: bool) -> io::Result<()> {
        self.state.lock().unwrap().timed = on;
        Ok(())
    }

    fn are_programs_timed(&self) -> bool {
        self.state.lock().unwrap().timed
    }

    fn stop(&mut self, why: &Missing) {
        self.state.lock().unwrap().done.push("stop".to_owned());
        self.take_off(None, why);
    }

    fn is_stopped(&self) -> bool {
        let done = &self.state.lock().unwrap().done;
        done.last().is_some_and(|last| last == "stop")
    }

    fn detach(&mut self, module: Option<&str>) -> usize {
        let done = format!("detach {}", module.unwrap_or("all"));
        self.state.lock().unwrap().done.push(done);
        let why = Missing::Detached(module.unwrap_or("all").to_owned());
        self.take_off(module, &why)
    }

    fn allow(&mut self, module: Option<&str>) {
        let mut state = self.state.lock().unwrap();
        state
            .done
            .push(format!("allow {}", module.unwrap_or("all")));
        state.after_refresh = Some(report());
    }
}

/// Keeps what was sent.
#[derive(Clone, Default)]
pub(super) struct Kept(pub(super) Arc<Mutex<Vec<Item>>>);

impl Outputs for Kept {
    fn push(&mut self, item: Item) {
        self.0.lock().unwrap().push(item);
    }

    fn given_up(&self) -> u64 {
        3
    }
}

pub(super) fn settings(root: &std::path::Path) -> Settings {
    Settings {
        roots: Roots {
            proc: root.join("proc"),
            sys: root.join("sys"),
            kernel_log: root.join("kmsg"),
        },
        clock: Box::new(|| ClockPair {
            boottime_ns: 10_000_000_000,
            realtime_ns: 1_800_000_000_000_000_000,
        }),
        rules: ExpectedRules::built_in().unwrap(),
        signal_rules: crate::signals::Rules::built_in().unwrap(),
        feed: Feed::default(),
        offers: Offers::default(),
        figures: Figures::new("6.1.0-test"),
        cost: CostConfig::default(),
        process_ns: Box::new(|| 0),
    }
}
