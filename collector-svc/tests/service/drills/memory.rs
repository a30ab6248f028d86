//! Drills in which registering memory fails.

use rdmesh_proto::collector::v1::VerdictClass as Class;
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{
    ChainMark, CoSignalKind, FirmwareCommandArguments, Limits, Mapping, PeerMemory, RegMrArguments,
};

use super::snapshot::{Fail, Sign, Step};
use super::{Drill, Told, Truth, one, says, truth};

const EPERM: u32 = 1;
const EINTR: u32 = 4;
const EBADF: u32 = 9;
const EAGAIN: u32 = 11;
const ENOMEM: u32 = 12;
const EFAULT: u32 = 14;
const EINVAL: u32 = 22;
const EOPNOTSUPP: u32 = 95;
const EREMOTEIO: u32 = 121;

const MLX5: (&str, &str) = ("mlx5_ib", "mlx5_ib_reg_user_mr");

const APPLICATION: &str = "application owner";
const GPU_TEAM: &str = "host team (GPU and NIC drivers)";
const LIMITS_TEAM: &str = "host team (limits)";
const DRIVER_TEAM: &str = "host team (NIC driver), then the NIC vendor";
const FIRMWARE_TEAM: &str = "NIC vendor, with the firmware's status and syndrome";

fn umem(errno: u32) -> Step {
    ("ib_umem_get", "ib_uverbs", Layer::Memory, errno)
}

fn driver(errno: u32) -> Step {
    ("mlx5_ib_reg_user_mr", "mlx5_ib", Layer::Driver, errno)
}

fn uverbs(errno: u32) -> Step {
    ("ib_uverbs_reg_mr", "ib_uverbs", Layer::Uverbs, errno)
}

/// umem, driver, uverbs, all with one errno.
fn three(errno: u32) -> Fail {
    let steps = [umem(errno), driver(errno), uverbs(errno)];
    Fail::new(Verb::RegMr, "mlx5_ib", &steps)
}

pub(super) fn three_efault() -> Fail {
    three(EFAULT)
}

/// umem did not fail: the driver did.
fn two(errno: u32) -> Fail {
    Fail::new(Verb::RegMr, "mlx5_ib", &[driver(errno), uverbs(errno)])
}

/// The out-of-tree stack's path: nobody took the GPU address.
pub(super) fn four_levels((module, register): (&'static str, &'static str)) -> Fail {
    let steps = [
        ("ib_peer_umem_get", "ib_core", Layer::Memory, EFAULT),
        ("ib_umem_get_peer", "ib_core", Layer::Memory, EFAULT),
        (register, module, Layer::Driver, EFAULT),
        uverbs(EFAULT),
    ];
    Fail::new(Verb::RegMr, module, &steps)
}

pub(super) fn range(mapping: Mapping, length_bytes: u64) -> Read {
    Read::RegMr(RegMrArguments {
        address: Some(0x7f00_dead_0000),
        length_bytes: Some(length_bytes),
        mapping: mapping.into(),
        ..RegMrArguments::default()
    })
}

fn dmabuf(fd: i32) -> Read {
    Read::RegMr(RegMrArguments {
        dmabuf_fd: Some(fd),
        length_bytes: Some(4_096),
        ..RegMrArguments::default()
    })
}

/// What the firmware answered to CREATE_MKEY.
fn command(status: u32, syndrome: u32) -> Read {
    Read::FirmwareCommand(FirmwareCommandArguments {
        opcode: Some(0x200),
        status: Some(status),
        syndrome: Some(syndrome),
        object_type: None,
    })
}

pub(super) fn drills() -> Vec<Drill> {
    let mut drills = addresses();
    drills.extend(limits());
    drills.extend(drivers());
    drills.extend(gpu());
    drills.extend(swallowed());
    drills
}

fn addresses() -> Vec<Drill> {
    let application = truth(
        Class::ApplicationArguments,
        Layer::Memory,
        EFAULT,
        APPLICATION,
    );
    vec![
        one(
            "an unmapped CPU pointer",
            three(EFAULT).read(2, range(Mapping::None, 4_096)),
            says(application, &["in no mapping"]),
        ),
        Drill::new(
            "the same EFAULT of a GPU address that no peer-memory client takes",
            vec![
                Told::new("a").fails(three(EFAULT).read(2, range(Mapping::DevicePfn, 1 << 20))),
                Told::new("b"),
            ],
            says(
                truth(Class::GpuPeerMemory, Layer::Memory, EFAULT, GPU_TEAM),
                &["as a GPU driver maps them"],
            ),
        ),
        one(
            "four levels of EFAULT of the out-of-tree stack",
            four_levels(MLX5),
            says(
                truth(Class::GpuPeerMemory, Layer::Memory, EFAULT, GPU_TEAM),
                &["no peer-memory client took the address"],
            ),
        ),
    ]
}

fn limits() -> Vec<Drill> {
    let limited = |told: Told| {
        told.is(|inventory| {
            inventory.limits = Some(Limits {
                memlock_bytes: Some(8 << 20),
                ..Limits::default()
            });
        })
    };
    let fail = three(ENOMEM).read(2, range(Mapping::Anonymous, 1 << 30));
    vec![
        Drill::new(
            "ENOMEM that is RLIMIT_MEMLOCK",
            vec![limited(Told::new("a")).fails(fail), Told::new("b")],
            says(
                truth(Class::MemoryLimits, Layer::Memory, ENOMEM, LIMITS_TEAM),
                &["RLIMIT_MEMLOCK", "8388608"],
            ),
        ),
        one(
            "EAGAIN of keys that crashed jobs leaked",
            three(EAGAIN).read(2, range(Mapping::Anonymous, 4_096)),
            truth(Class::MemoryLimits, Layer::Memory, EAGAIN, LIMITS_TEAM),
        ),
    ]
}

fn drivers() -> Vec<Drill> {
    let exec = |errno| ("mlx5_cmd_exec", "mlx5_core", Layer::Firmware, errno);
    let by_firmware = |errno| {
        let steps = [exec(errno), driver(errno), uverbs(errno)];
        Fail::new(Verb::RegMr, "mlx5_ib", &steps)
    };
    let changed = [exec(EREMOTEIO), driver(EINVAL), uverbs(EINVAL)];
    vec![
        one(
            "ENOMEM that is a limit of the firmware, in the driver",
            by_firmware(ENOMEM).read(0, command(0xf, 0x5c_7e81)),
            says(
                truth(Class::Firmware, Layer::Firmware, ENOMEM, FIRMWARE_TEAM),
                &["status 0xf", "0x5c7e81"],
            ),
        ),
        one(
            "an errno that the driver changes on its way up",
            Fail::new(Verb::RegMr, "mlx5_ib", &changed).read(0, command(0x3, 0x1234)),
            says(
                truth(Class::Firmware, Layer::Firmware, EREMOTEIO, FIRMWARE_TEAM),
                &["mlx5_ib_reg_user_mr"],
            ),
        ),
        one(
            "ENOMEM of a length that a driver cuts to 32 bits",
            two(ENOMEM).read(0, range(Mapping::Anonymous, (6 << 30) + 4_096)),
            says(
                truth(Class::Driver, Layer::Driver, ENOMEM, DRIVER_TEAM),
                &["32 bits", "6442455040"],
            ),
        ),
        one(
            "the same ENOMEM of huge pages with a GPU driver",
            two(ENOMEM).read(0, range(Mapping::HugePage, 1 << 30)),
            says(
                truth(Class::GpuPeerMemory, Layer::Driver, ENOMEM, GPU_TEAM),
                &["huge pages", "nvidia"],
            ),
        ),
    ]
}

fn gpu() -> Vec<Drill> {
    let reg_dmabuf = |errno| {
        (
            "mlx5_ib_reg_user_mr_dmabuf",
            "mlx5_ib",
            Layer::Driver,
            errno,
        )
    };
    let entry = |errno| {
        (
            "ib_uverbs_handler_UVERBS_METHOD_REG_DMABUF_MR",
            "ib_uverbs",
            Layer::Uverbs,
            errno,
        )
    };
    let get = |errno| ("ib_umem_dmabuf_get", "ib_uverbs", Layer::Memory, errno);
    let of_dmabuf = |steps: &[Step]| Fail::new(Verb::RegDmabufMr, "mlx5_ib", steps);
    let probe = of_dmabuf(&[get(EBADF), reg_dmabuf(EBADF), entry(EBADF)]).ago(40.0);
    let unsupported = of_dmabuf(&[reg_dmabuf(EOPNOTSUPP), entry(EOPNOTSUPP)]).ago(40.0);
    let nothing = Truth {
        host: "",
        ..truth(
            Class::CannotTell,
            Layer::Unspecified,
            0,
            "application owner, with the job's own log",
        )
    };
    vec![
        one(
            "EPERM of a driver on the dmabuf path",
            of_dmabuf(&[reg_dmabuf(EPERM), entry(EPERM)]).read(0, dmabuf(17)),
            says(
                truth(Class::Driver, Layer::Driver, EPERM, DRIVER_TEAM),
                &["dmabuf"],
            ),
        ),
        Drill::new(
            "no dmabuf, so that the peer-memory path is taken",
            vec![
                Told::new("a")
                    .is(|inventory| {
                        inventory.peer_memory = Some(PeerMemory::default());
                    })
                    .fails(unsupported.marked(ChainMark::Expected))
                    .fails(four_levels(MLX5)),
                Told::new("b"),
            ],
            says(
                truth(Class::GpuPeerMemory, Layer::Memory, EFAULT, GPU_TEAM),
                &["no dmabuf", "peer-memory path"],
            ),
        ),
        one(
            "a dmabuf capability probe, which is normal",
            probe
                .clone()
                .read(0, dmabuf(-1))
                .marked(ChainMark::Expected),
            says(nothing, &["part of normal work"]),
        ),
        one(
            "a capability probe that no rule of its tracer marks, before a failure",
            probe.read(0, dmabuf(-1)),
            Truth {
                says: &["part of normal work"],
                host: "",
                ..truth(
                    Class::CannotTell,
                    Layer::Unspecified,
                    0,
                    "application owner, with the job's own log",
                )
            },
        ),
        one(
            "a dmabuf of a closed descriptor",
            of_dmabuf(&[get(EBADF), reg_dmabuf(EBADF), entry(EBADF)]).read(0, dmabuf(23)),
            says(
                truth(
                    Class::ApplicationArguments,
                    Layer::Memory,
                    EBADF,
                    APPLICATION,
                ),
                &["descriptor was 23"],
            ),
        ),
    ]
}

fn swallowed() -> Vec<Drill> {
    let modify = [
        ("mlx5_ib_modify_qp", "mlx5_ib", Layer::Driver, EINVAL),
        ("ib_uverbs_modify_qp", "ib_uverbs", Layer::Uverbs, EINVAL),
    ];
    let lost = || {
        Fail::new(Verb::RegMr, "mlx5_ib", &[umem(ENOMEM)])
            .ago(20.5)
            .marked(ChainMark::Swallowed)
    };
    let killed = Sign {
        seconds_ago: 30.4,
        kind: CoSignalKind::Host,
        independent: true,
        name: "oom_kill",
        detail: "process 103 (python3) of the cgroup /slurm/step",
    };
    vec![
        one(
            "a swallowed memory error before an unrelated modify_qp failure",
            lost(),
            truth(Class::SwallowedError, Layer::Memory, ENOMEM, DRIVER_TEAM),
        )
        .also("a", Fail::new(Verb::ModifyQp, "mlx5_ib", &modify).ago(20.0)),
        one(
            "an error that never reached the application",
            lost(),
            says(
                truth(Class::SwallowedError, Layer::Memory, ENOMEM, DRIVER_TEAM),
                &["did not reach user space"],
            ),
        ),
        Drill::new(
            "pinning that was interrupted when the kernel killed the rank for its memory",
            vec![
                Told::new("a").sees(killed).fails(three(EINTR)),
                Told::new("b"),
            ],
            says(
                truth(Class::Host, Layer::Memory, EINTR, "host team"),
                &["oom_kill"],
            ),
        ),
    ]
}

impl Drill {
    /// The host fails in this too.
    pub(super) fn also(mut self, host: &str, fail: Fail) -> Self {
        let told = self.hosts.iter_mut().find(|told| told.name == host);
        told.unwrap().fails.push(fail);
        self
    }
}
