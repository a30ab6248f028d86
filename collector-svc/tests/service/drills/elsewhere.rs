//! Drills whose cause is no failing call: the network, a host, a process, a shaped wire,
//! or nothing that anybody saw.

use rdmesh_proto::collector::v1::{JobState, VerdictClass as Class};
use rdmesh_proto::common::v1::Layer;
use rdmesh_proto::shaper::v1::{InvalidCause, WireWindow};
use rdmesh_proto::tracer::v1::{CoSignalKind, Mapping};

use super::memory::{range, three_efault};
use super::snapshot::Sign;
use super::{Drill, Told, Truth, says};
use crate::made::seconds_ago;

const EFAULT: u32 = 14;

const NETWORK_LOG: &str = "gpu-1:7:8 [0] NCCL INFO ordinary\n\
[rank3]:gpu-1:7:8 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<5> with status=12 \
opcode=0 len=0 vendor err 129 (Send)\n";

const HANG_LOG: &str = "[rank0]:[E1130 09:00:00.000000000 ProcessGroupNCCL.cpp:616] [Rank 0] \
Watchdog caught collective operation timeout: WorkNCCL(SeqNum=17, OpType=ALLREDUCE, \
NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600016 milliseconds before timing out.\n";

fn truth(class: Class, host: &'static str, route: &'static str) -> Truth {
    Truth {
        class,
        layer: Layer::Unspecified,
        errno: 0,
        host,
        route,
        says: &[],
    }
}

fn sign(seconds_ago: f64, kind: CoSignalKind, name: &'static str, detail: &'static str) -> Sign {
    Sign {
        seconds_ago,
        kind,
        independent: true,
        name,
        detail,
    }
}

fn echo(sign: Sign) -> Sign {
    Sign {
        independent: false,
        ..sign
    }
}

fn link_down(seconds_ago: f64) -> Sign {
    let detail = "port 1 of mlx5_0 went from ACTIVE to DOWN";
    sign(seconds_ago, CoSignalKind::Network, "port_down", detail)
}

fn healthy() -> Vec<Told> {
    vec![Told::new("a"), Told::new("b")]
}

/// Windows of the last minute; `invalid`: the port dropped in each.
fn windows(rate_bps: u64, invalid: bool) -> Vec<WireWindow> {
    let window = |from: u64| WireWindow {
        wire: "w0".into(),
        host: "b".into(),
        virtual_function: "vf0".into(),
        from: Some(seconds_ago(from)),
        to: Some(seconds_ago(from - 5)),
        rate_bps,
        configured_rate_bps: rate_bps,
        sent_bits: 1_000,
        engine_version: "1".into(),
        configuration_hash: "h".into(),
        invalid: match invalid {
            true => vec![InvalidCause::PortDropped.into()],
            false => Vec::new(),
        },
        ..WireWindow::default()
    };
    (1..=12).rev().map(|number| window(number * 5)).collect()
}

pub(super) fn drills() -> Vec<Drill> {
    let mut drills = network();
    drills.extend(hosts());
    drills.extend(shaped());
    drills.extend(nothing());
    drills
}

fn network() -> Vec<Drill> {
    let application = || Truth {
        layer: Layer::Memory,
        errno: EFAULT,
        ..truth(Class::ApplicationArguments, "a", "application owner")
    };
    let fails = || three_efault().read(2, range(Mapping::None, 4_096));
    vec![
        Drill::new(
            "a link that goes down",
            vec![Told::new("a"), Told::new("b").sees(link_down(30.0))],
            says(truth(Class::Network, "b", "network team"), &["port_down"]),
        )
        .logged(NETWORK_LOG),
        Drill::new(
            "a failure and a link flap at once",
            vec![
                Told::new("a").sees(link_down(30.2)).fails(fails()),
                Told::new("b"),
            ],
            says(
                application(),
                &["0.200 s before the first failure", "port_down"],
            ),
        ),
        Drill::new(
            "a failure whose log blames the network",
            vec![Told::new("a").fails(fails()), Told::new("b")],
            says(application(), &["misattribution"]),
        )
        .logged(NETWORK_LOG),
    ]
}

fn hosts() -> Vec<Drill> {
    let killed = sign(
        30.0,
        CoSignalKind::Host,
        "oom_kill",
        "process 103 (python3) of the cgroup /slurm/step",
    );
    let ended = sign(
        29.9,
        CoSignalKind::Process,
        "killed",
        "rank 3 ended by SIGKILL",
    );
    let crashed = sign(
        30.0,
        CoSignalKind::Process,
        "killed",
        "rank 3 ended by SIGSEGV",
    );
    let fatal = sign(
        30.0,
        CoSignalKind::Device,
        "device_fatal",
        "mlx5_0 gave the asynchronous event DEVICE_FATAL",
    );
    vec![
        Drill::new(
            "a rank that the kernel killed for its memory",
            vec![
                Told::new("a"),
                Told::new("b").sees(killed).sees(echo(ended)),
            ],
            says(truth(Class::Host, "b", "host team"), &["oom_kill"]),
        )
        .logged(HANG_LOG),
        Drill::new(
            "a rank that crashed",
            vec![Told::new("a"), Told::new("b").sees(crashed)],
            says(
                truth(Class::Process, "b", "application owner"),
                &["SIGSEGV"],
            ),
        ),
        Drill::new(
            "a fatal event of a device",
            vec![Told::new("a"), Told::new("b").sees(fatal)],
            says(
                truth(Class::Device, "b", "hardware team"),
                &["DEVICE_FATAL"],
            ),
        ),
        Drill::new(
            "memory that ran out, by the scheduler's word alone",
            healthy(),
            says(truth(Class::Host, "", "host team"), &["out of memory"]),
        )
        .ended(JobState::OutOfMemory),
        Drill::new(
            "a node that failed, by the scheduler's word alone",
            healthy(),
            says(truth(Class::Host, "", "host team"), &["node failed"]),
        )
        .ended(JobState::NodeFail),
    ]
}

fn shaped() -> Vec<Drill> {
    vec![
        Drill::new(
            "a straggler that was made by shaping",
            healthy(),
            says(
                truth(Class::InjectedStraggler, "b", "whoever shapes the wire"),
                &["was shaped to"],
            ),
        )
        .ended(JobState::Timeout)
        .shaped(windows(1_000_000_000, false)),
        Drill::new(
            "a link that goes down beside a shaper that lost frames",
            vec![Told::new("a").sees(link_down(30.0)), Told::new("b")],
            says(
                truth(Class::Network, "a", "network team"),
                &["its port dropped frames", "can look like a network fault"],
            ),
        )
        .shaped(windows(0, true)),
    ]
}

fn nothing() -> Vec<Drill> {
    let unknown = || {
        truth(
            Class::CannotTell,
            "",
            "application owner, with the job's own log",
        )
    };
    let retries = echo(sign(
        30.0,
        CoSignalKind::Network,
        "retries",
        "packet_seq_err of mlx5_0 rose by 7",
    ));
    let silent = Told {
        silent: true,
        ..Told::new("a")
    };
    vec![
        Drill::new("nothing that anybody saw", healthy(), unknown()),
        Drill::new(
            "retry counters alone, which are an echo",
            vec![Told::new("a").sees(retries), Told::new("b")],
            unknown(),
        ),
        Drill::new(
            "a host without a tracer",
            vec![silent],
            Truth {
                route: "host team (tracers), then application owner, with the job's own log",
                ..says(unknown(), &["never reported"])
            },
        ),
    ]
}
