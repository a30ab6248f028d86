//! Drills in which making or connecting a queue fails.

use rdmesh_proto::collector::v1::VerdictClass as Class;
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{
    ChainMark, CoSignalKind, CreateArguments, ModifyQpArguments, RdmaDevice, RdmaPort,
};

use super::snapshot::{Fail, Sign};
use super::{Drill, Told, Truth, one, says, truth};

const EIO: u32 = 5;
const EPERM: u32 = 1;
const EINVAL: u32 = 22;
const ENODATA: u32 = 61;
const ETIMEDOUT: u32 = 110;
const ENOTSUPP: u32 = 524;

/// NCCL tries modify_qp so often before it gives up.
const NCCL_TRIES: u64 = 34;

/// Nobody answered for the neighbour's address; the driver is never reached.
fn neighbour(peer: u8) -> Fail {
    let steps = [
        ("ib_resolve_eth_dmac", "ib_core", Layer::Core, ETIMEDOUT),
        ("_ib_modify_qp", "ib_core", Layer::Core, ETIMEDOUT),
        ("ib_modify_qp_with_udata", "ib_core", Layer::Core, ETIMEDOUT),
        ("modify_qp", "ib_uverbs", Layer::Uverbs, ETIMEDOUT),
        ("ib_uverbs_modify_qp", "ib_uverbs", Layer::Uverbs, ETIMEDOUT),
    ];
    let gid = gid(peer);
    let read = Read::ModifyQp(ModifyQpArguments {
        qp_number: Some(77),
        current_state: Some(1),
        asked_state: Some(2),
        destination_gid: gid,
        gid_index: Some(3),
        ..ModifyQpArguments::default()
    });
    Fail::new(Verb::ModifyQp, "mlx5_ib", &steps)
        .read(4, read)
        .ago(50.0)
        .times(NCCL_TRIES, 34.0)
}

/// An IPv4 address as a GID.
fn gid(peer: u8) -> Vec<u8> {
    let mut gid = vec![0; 10];
    gid.extend([0xff, 0xff, 10, 0, 0, peer]);
    gid
}

/// A host whose second port has an address too.
fn two_rails(name: &'static str, addresses: [u8; 2]) -> Told {
    Told::new(name).is(|inventory| {
        let ports = addresses.map(|address| RdmaPort {
            number: 1,
            addresses: vec![gid(address)],
            ..RdmaPort::default()
        });
        let first = inventory.devices[0].clone();
        let devices = ports.into_iter().zip(["mlx5_0", "mlx5_1"]);
        inventory.devices = devices
            .map(|(port, name)| RdmaDevice {
                name: name.into(),
                ports: vec![port],
                ..first.clone()
            })
            .collect();
    })
}

fn step(current: u32, asked: u32) -> Read {
    Read::ModifyQp(ModifyQpArguments {
        qp_number: Some(77),
        current_state: Some(current),
        asked_state: Some(asked),
        attribute_mask: Some(1),
        ..ModifyQpArguments::default()
    })
}

pub(super) fn drills() -> Vec<Drill> {
    let mut drills = reachability();
    drills.extend(arguments());
    drills.extend(devices());
    drills
}

fn unreachable() -> Truth {
    truth(Class::Reachability, Layer::Core, ETIMEDOUT, "network team")
}

fn port_down(seconds_ago: f64) -> Sign {
    Sign {
        seconds_ago,
        kind: CoSignalKind::Network,
        independent: true,
        name: "port_down",
        detail: "port 1 of mlx5_0 went from ACTIVE to DOWN",
    }
}

fn reachability() -> Vec<Drill> {
    vec![
        one(
            "ETIMEDOUT in neighbour resolution, repeated by NCCL",
            neighbour(9),
            says(unreachable(), &["the driver was never reached", "34 times"]),
        ),
        Drill::new(
            "many hosts that do not reach one",
            vec![
                Told::new("a").fails(neighbour(9)),
                Told::new("b").fails(neighbour(9).ago(49.0).rank(8)),
                Told::new("c").fails(neighbour(9).ago(48.0).device("mlx5_1")),
            ],
            says(
                unreachable(),
                &["3 hosts fail to reach one destination, ::ffff:10.0.0.9"],
            ),
        ),
        Drill::new(
            "connections that fail only from one rail to another",
            vec![
                two_rails("a", [211, 212])
                    .fails(neighbour(222))
                    .fails(neighbour(221).ago(49.0).device("mlx5_1")),
                two_rails("b", [221, 222]).fails(neighbour(212).ago(48.0)),
            ],
            says(
                truth(
                    Class::Configuration,
                    Layer::Core,
                    ETIMEDOUT,
                    "host team (RDMA configuration)",
                ),
                &[
                    "all 3 connections that fail lead from one rail to another",
                    "{}a mlx5_0 to {}b mlx5_1",
                ],
            ),
        ),
        one(
            "one host that reaches nobody",
            neighbour(8),
            says(
                unreachable(),
                &["fails to reach 2 destinations", "its own port"],
            ),
        )
        .also("a", neighbour(7).ago(49.0)),
        Drill::new(
            "a neighbour that is not reached after the host's own port went down",
            vec![
                Told::new("a").sees(port_down(52.0)).fails(neighbour(9)),
                Told::new("b"),
            ],
            says(unreachable(), &["port_down", "look there first"]),
        ),
        one(
            "an empty slot of the GID table",
            Fail::new(
                Verb::ModifyQp,
                "mlx5_ib",
                &[
                    ("rdma_fill_sgid_attr", "ib_core", Layer::Core, ENODATA),
                    ("_ib_modify_qp", "ib_core", Layer::Core, ENODATA),
                    ("ib_uverbs_modify_qp", "ib_uverbs", Layer::Uverbs, ENODATA),
                ],
            ),
            truth(
                Class::Configuration,
                Layer::Core,
                ENODATA,
                "host team (RDMA configuration)",
            ),
        ),
    ]
}

fn arguments() -> Vec<Drill> {
    let application = |layer, errno| {
        truth(
            Class::ApplicationArguments,
            layer,
            errno,
            "application owner",
        )
    };
    let create = Read::Create(CreateArguments {
        cqe: Some(1 << 30),
        ..CreateArguments::default()
    });
    vec![
        one(
            "a step that the state machine does not have",
            Fail::new(
                Verb::ModifyQp,
                "mlx5_ib",
                &[
                    ("mlx5_ib_modify_qp", "mlx5_ib", Layer::Driver, EINVAL),
                    ("_ib_modify_qp", "ib_core", Layer::Core, EINVAL),
                    ("ib_uverbs_modify_qp", "ib_uverbs", Layer::Uverbs, EINVAL),
                ],
            )
            .read(2, step(1, 3)),
            says(application(Layer::Driver, EINVAL), &["INIT to RTS"]),
        ),
        one(
            "a completion queue beyond the device's limits",
            Fail::new(
                Verb::CreateCq,
                "mlx5_ib",
                &[
                    ("mlx5_ib_create_cq", "mlx5_ib", Layer::Driver, EINVAL),
                    (
                        "ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE",
                        "ib_uverbs",
                        Layer::Uverbs,
                        EINVAL,
                    ),
                ],
            )
            .read(0, create),
            says(application(Layer::Driver, EINVAL), &["1073741824"]),
        ),
        one(
            "a feature that the driver does not have, with the kernel's inner errno",
            Fail::new(
                Verb::CreateQp,
                "mlx5_ib",
                &[
                    ("mlx5_ib_create_qp", "mlx5_ib", Layer::Driver, ENOTSUPP),
                    ("ib_create_qp_user", "ib_core", Layer::Core, ENOTSUPP),
                    (
                        "ib_uverbs_handler_UVERBS_METHOD_QP_CREATE",
                        "ib_uverbs",
                        Layer::Uverbs,
                        ENOTSUPP,
                    ),
                ],
            ),
            application(Layer::Driver, ENOTSUPP),
        ),
        one(
            "a cgroup that rations the device",
            Fail::new(
                Verb::CreateQp,
                "mlx5_ib",
                &[(
                    "ib_uverbs_handler_UVERBS_METHOD_QP_CREATE",
                    "ib_uverbs",
                    Layer::Uverbs,
                    EPERM,
                )],
            ),
            truth(
                Class::Configuration,
                Layer::Uverbs,
                EPERM,
                "host team (RDMA configuration)",
            ),
        ),
    ]
}

fn devices() -> Vec<Drill> {
    let gone = || {
        Fail::new(
            Verb::CreateQp,
            "mlx5_ib",
            &[
                ("mlx5_ib_create_qp", "mlx5_ib", Layer::Driver, EIO),
                ("ib_create_qp_user", "ib_core", Layer::Core, EIO),
            ],
        )
    };
    let mut drills = vec![
        one(
            "a device in its error state, by tasks that name no job",
            gone().nameless(),
            truth(Class::Device, Layer::Driver, EIO, "hardware team"),
        ),
        // By its own clock, two hours behind, b would be the first.
        Drill::new(
            "two hosts whose clocks are hours apart",
            vec![
                Told {
                    clock_off_ns: -2 * 3_600 * 1_000_000_000,
                    ..Told::new("b")
                }
                .fails(gone().ago(10.0)),
                Told::new("a").fails(neighbour(9)),
            ],
            unreachable(),
        ),
        Drill::new(
            "records that were dropped, so that no chain decides",
            vec![
                Told {
                    drops: 9_000,
                    ..Told::new("a")
                }
                .fails(gone().marked(ChainMark::Incomplete)),
                Told::new("b"),
            ],
            Truth {
                host: "",
                ..says(
                    truth(
                        Class::CannotTell,
                        Layer::Unspecified,
                        0,
                        "application owner, with the job's own log",
                    ),
                    &["9000 records were dropped", "decides nothing"],
                )
            },
        ),
    ];
    let blind = Told {
        without: &["driver.create_qp"],
        ..Told::new("a")
    };
    let entry = [(
        "ib_uverbs_handler_UVERBS_METHOD_QP_CREATE",
        "ib_uverbs",
        Layer::Uverbs,
        EINVAL,
    )];
    drills.push(Drill::new(
        "a driver without its probe",
        vec![
            blind.fails(Fail::new(Verb::CreateQp, "mlx5_ib", &entry)),
            Told::new("b"),
        ],
        says(
            truth(
                Class::ApplicationArguments,
                Layer::Uverbs,
                EINVAL,
                "application owner",
            ),
            &[
                "was not watched on {}a",
                "hooks without a probe: driver.create_qp",
            ],
        ),
    ));
    drills
}
