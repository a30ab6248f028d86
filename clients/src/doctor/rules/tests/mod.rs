//! Rules against facts that are made up.

mod single;

use std::path::PathBuf;

use proptest::prelude::*;
use rdmesh_tls::inspect::Inspection;

use super::*;
use crate::doctor::facts::*;

/// 2026-01-31 14:09:05 UTC.
const NOW: i64 = 1_769_868_545;

/// All 41 capabilities.
const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

/// The checks as lines, and under each what to do.
fn shown(facts: &Facts) -> String {
    let line = |check: Check| {
        let Check {
            topic,
            name,
            status,
            found,
            next,
        } = check;
        let next = next.map_or_else(String::new, |next| format!("    -> {next}\n"));
        format!("{status:?} {topic:?} [{name}] {found}\n{next}")
    };
    examine(facts).into_iter().map(line).collect()
}

fn process(name: &str, pid: u32) -> Process {
    Process {
        pid,
        name: name.to_owned(),
        unit: String::new(),
        uid: 0,
        gids: vec![0],
        effective: Some(ALL_CAPABILITIES),
        bounding: Some(ALL_CAPABILITIES),
        memlock: Some(Limit::Unlimited),
        open_files: Some(Limit::At(65_536)),
    }
}

fn facts_of(identities: &[&str], days: i64) -> rdmesh_tls::Facts {
    rdmesh_tls::Facts {
        identities: identities.iter().map(|&uri| uri.to_owned()).collect(),
        addresses: Vec::new(),
        not_before: NOW - DAY,
        not_after: NOW + days * DAY,
        is_authority: identities.is_empty(),
        organization: String::new(),
        subject: "CN=rdmesh authority of site-a".to_owned(),
        issuer: "CN=rdmesh authority of site-a".to_owned(),
        serial: "01".to_owned(),
    }
}

fn certificate(identities: &[&str], days: i64) -> Certificate {
    let own = facts_of(identities, days);
    let file = |path: &str, mode| KeyFile {
        path: path.into(),
        owner: Looked::Found(Owner {
            uid: 998,
            gid: 998,
            mode,
        }),
        unreadable: None,
    };
    Certificate {
        files: [
            file("/etc/rdmesh/ca.crt", 0o644),
            file("/etc/rdmesh/agent.crt", 0o644),
            file("/etc/rdmesh/agent.key", 0o600),
        ],
        inspection: Some(Inspection {
            peer: own.peer().map_err(|error| error.to_string()),
            own: Ok(own),
            authorities: Ok(vec![facts_of(&[], 3_000)]),
            key: Ok(()),
            chain: Ok(()),
        }),
    }
}

fn port(state: &str) -> Port {
    Port {
        number: 1,
        state: Looked::Found(state.to_owned()),
        physical: "LinkUp".to_owned(),
        link_layer: "Ethernet".to_owned(),
        rate: "400 Gb/sec (4X NDR)".to_owned(),
        netdev: "ens1np0".to_owned(),
        gids: vec![0, 1, 2, 3],
    }
}

fn device(name: &str, port: Port) -> Device {
    Device {
        name: name.to_owned(),
        ports: vec![port],
    }
}

fn answered(ahead_ms: i64) -> Outcome {
    Outcome::Answered(Answer {
        serves: true,
        has_tls: true,
        ahead_ms: Some(ahead_ms),
    })
}

fn service(service: Service) -> ServiceFacts {
    let is_agent = service.reports();
    let spool = PathBuf::from(format!("/var/lib/rdmesh/{}/spool", service.short()));
    ServiceFacts {
        service,
        file: format!("/etc/rdmesh/{}.toml", service.short()).into(),
        has_file: true,
        settings: Looked::Found(Settings {
            reports_of: match service {
                Service::Tracer => vec!["gpu-01".to_owned()],
                Service::Shaper => vec!["dpu-01".to_owned(), "gpu-01".to_owned()],
                Service::Collector => Vec::new(),
            },
            listen: format!("0.0.0.0:{}", service.port()),
            collectors: match is_agent {
                true => vec!["collector:7400".to_owned()],
                false => Vec::new(),
            },
            wires: 1,
            ..Settings::default()
        }),
        verdict: Looked::Found(Verdict::Valid),
        preflight: Vec::new(),
        running: vec![Process {
            unit: format!("{}.service", service.unit()),
            uid: 998,
            gids: vec![998],
            ..process(service.program(), 812)
        }],
        user: Looked::Found((998, vec![998])),
        certificate: Some(match service {
            Service::Tracer => certificate(&["rdmesh://site-a/agent/gpu-01"], 300),
            Service::Shaper => certificate(
                &[
                    "rdmesh://site-a/agent/dpu-01",
                    "rdmesh://site-a/agent/gpu-01",
                ],
                300,
            ),
            Service::Collector => certificate(&["rdmesh://site-a/collector/c1"], 300),
        }),
        spool: is_agent.then(|| Spool {
            place: Looked::Found(Place {
                is_it: true,
                path: spool.clone(),
                owner: Owner {
                    uid: 998,
                    gid: 998,
                    mode: 0o700,
                },
                is_read_only: false,
                free_bytes: 40 << 30,
            }),
            directory: spool,
            max_mib: 256,
            is_named: false,
        }),
    }
}

fn dial(whom: Dialled, address: &str, outcome: Outcome) -> Dial {
    Dial {
        whom,
        address: address.to_owned(),
        outcome,
    }
}

/// A GPU host as it should be.
fn well() -> Facts {
    let module = |name: &str| Module {
        name: name.to_owned(),
        has_btf: true,
    };
    Facts {
        host: "gpu-01".to_owned(),
        now: NOW,
        kernel: Looked::Found(Kernel {
            release: "6.12.48+deb13-amd64".to_owned(),
            machine: "x86_64".to_owned(),
            btf: Looked::Found(5_900_000),
            modules: vec![module("ib_core"), module("ib_uverbs"), module("mlx5_ib")],
            has_rdma_core: true,
            lockdown: Looked::Found("none".to_owned()),
            kptr_restrict: Some(1),
        }),
        shell: Looked::Found(process("bash", 9)),
        services: Looked::Found(vec![service(Service::Tracer)]),
        devices: Looked::Found(vec![
            device("mlx5_0", port("ACTIVE")),
            device("mlx5_1", port("ACTIVE")),
        ]),
        launchers: Looked::Found(vec![process("slurmd", 700)]),
        nccl: Nccl {
            settings: vec![setting("NCCL_IB_HCA", "mlx5", "/etc/nccl.conf")],
            unread: Vec::new(),
            shaped: Some(false),
            interfaces: Some(vec!["lo".to_owned(), "ens1np0".to_owned()]),
        },
        clock: Clock {
            synchronized: Looked::Found(true),
            daemons: vec!["chronyd".to_owned()],
        },
        own: None,
        unusable: None,
        dials: vec![
            dial(Dialled::Own(Service::Tracer), "0.0.0.0:7401", answered(3)),
            dial(
                Dialled::CollectorOf(Service::Tracer),
                "collector:7400",
                answered(-400),
            ),
        ],
    }
}

fn setting(name: &str, value: &str, from: &str) -> NcclSetting {
    NcclSetting {
        name: name.to_owned(),
        value: value.to_owned(),
        from: from.to_owned(),
    }
}

#[test]
fn a_host_as_it_should_be() {
    let facts = well();
    assert!(
        examine(&facts)
            .iter()
            .all(|c| c.status == Status::Ok && c.next.is_none())
    );
    insta::assert_snapshot!(shown(&facts));
}

#[test]
fn a_host_with_everything_wrong() {
    let mut facts = well();
    let mut tracer = service(Service::Tracer);
    tracer.verdict = Looked::Found(Verdict::Refused(
        "tracer-svc: /etc/rdmesh/tracer.toml:7: unknown field `hots`; did you mean `host`?".into(),
    ));
    tracer.running[0].effective = Some(1 << 21);
    tracer.certificate = Some(certificate(&["rdmesh://site-a/reader/ada"], -3));
    let inspection = tracer.certificate.as_mut().unwrap();
    inspection.files[2].owner = Looked::Found(Owner {
        uid: 0,
        gid: 0,
        mode: 0o604,
    });
    inspection.files[0].owner = Looked::Found(Owner {
        uid: 0,
        gid: 0,
        mode: 0o600,
    });
    tracer.spool.as_mut().unwrap().place = Looked::Found(Place {
        is_it: true,
        path: "/var/lib/rdmesh/tracer/spool".into(),
        owner: Owner::default(),
        ..Place::default()
    });
    facts.services = Looked::Found(vec![tracer]);
    facts.kernel = Looked::Found(Kernel {
        release: "5.10.0-30-amd64".to_owned(),
        machine: "x86_64".to_owned(),
        btf: Looked::Absent,
        modules: vec![Module {
            name: "mlx5_ib".to_owned(),
            has_btf: false,
        }],
        has_rdma_core: true,
        lockdown: Looked::Found("confidentiality".to_owned()),
        kptr_restrict: Some(2),
    });
    facts.shell = Looked::Found(Process {
        memlock: Some(Limit::At(8 << 20)),
        ..process("bash", 9)
    });
    facts.launchers = Looked::Found(vec![Process {
        memlock: Some(Limit::At(64 << 10)),
        ..process("slurmd", 700)
    }]);
    let nameless = Port {
        netdev: String::new(),
        gids: Vec::new(),
        ..port("DOWN")
    };
    facts.devices = Looked::Found(vec![
        device("mlx5_0", nameless),
        device(
            "mlx5_1",
            Port {
                link_layer: "InfiniBand".to_owned(),
                physical: "Polling".to_owned(),
                ..port("INIT")
            },
        ),
    ]);
    facts.nccl = Nccl {
        settings: vec![
            setting("NCCL_IB_DISABLE", "1", "the environment"),
            setting("NCCL_IB_ECE_ENABLE", "1", "the environment"),
            setting("NCCL_IB_GID_INDEX", "three", "the environment"),
            setting("NCCL_IB_HCA", "=mlx5_7:1,mlx5_0", "/etc/nccl.conf"),
            setting("NCCL_IB_TIMEOUT", "6", "/etc/nccl.conf"),
            setting("NCCL_SOCKET_IFNAME", "eth9", "/etc/nccl.conf"),
        ],
        shaped: Some(true),
        ..facts.nccl
    };
    facts.clock = Clock {
        synchronized: Looked::Found(false),
        daemons: Vec::new(),
    };
    facts.unusable = Some("cannot read /etc/rdmesh/cli.toml: unknown key".to_owned());
    facts.dials = vec![
        dial(
            Dialled::Own(Service::Tracer),
            "0.0.0.0:7401",
            Outcome::Nobody("Connection refused (os error 111)".to_owned()),
        ),
        dial(
            Dialled::CollectorOf(Service::Tracer),
            "collector:7400",
            Outcome::Refused("TLS: the certificate has expired".to_owned()),
        ),
        dial(
            Dialled::CollectorOf(Service::Tracer),
            "collector-2:7400",
            answered(-90_000),
        ),
        dial(
            Dialled::Collector,
            "other:7400",
            Outcome::Nobody("no answer within 5 s".to_owned()),
        ),
    ];
    insta::assert_snapshot!(shown(&facts));
}

#[test]
fn a_dpu_whose_shaper_does_not_run() {
    let mut facts = well();
    let mut shaper = service(Service::Shaper);
    shaper.running = Vec::new();
    shaper.user = Looked::Found((0, vec![0]));
    shaper.preflight = vec![
        Preflight {
            is_refused: true,
            text: "0000:03:00.0: no such PCI device".to_owned(),
        },
        Preflight {
            is_refused: false,
            text: "core 2 is not isolated".to_owned(),
        },
    ];
    shaper.spool = None;
    facts.services = Looked::Found(vec![shaper]);
    facts.dials = vec![dial(
        Dialled::Own(Service::Shaper),
        "0.0.0.0:7402",
        Outcome::Refused("something speaks no gRPC".to_owned()),
    )];
    insta::assert_snapshot!(shown(&facts));
}

#[test]
fn a_collectors_machine_needs_nothing_of_a_host() {
    let mut facts = well();
    let mut collector = service(Service::Collector);
    collector.running[0].open_files = Some(Limit::At(1_024));
    facts.services = Looked::Found(vec![collector]);
    facts.kernel = Looked::Found(Kernel::default());
    facts.devices = Looked::Absent;
    facts.dials = vec![dial(
        Dialled::Own(Service::Collector),
        "0.0.0.0:7400",
        Outcome::Answered(Answer::default()),
    )];
    insta::assert_snapshot!(shown(&facts));
}

#[test]
fn what_could_not_be_looked_at_is_said_and_is_no_problem() {
    let why = || "Permission denied (os error 13)".to_owned();
    let mut tracer = service(Service::Tracer);
    tracer.settings = Looked::Unknown(why());
    tracer.verdict = Looked::Unknown(why());
    tracer.certificate = None;
    tracer.spool = None;
    let facts = Facts {
        kernel: Looked::Unknown(why()),
        shell: Looked::Unknown(why()),
        services: Looked::Found(vec![tracer]),
        devices: Looked::Unknown("the kernel did not give it within 10 s".to_owned()),
        launchers: Looked::Unknown(why()),
        clock: Clock::default(),
        ..Facts::default()
    };
    let none = Facts {
        services: Looked::Unknown(why()),
        ..facts.clone()
    };
    for facts in [&facts, &none] {
        assert!(examine(facts).iter().all(|c| c.status != Status::Problem));
    }
    insta::assert_snapshot!(shown(&facts));
}

fn tracer(facts: &mut Facts) -> &mut ServiceFacts {
    match &mut facts.services {
        Looked::Found(services) => &mut services[0],
        _ => unreachable!("it has one"),
    }
}

proptest! {
    /// Whatever stands in the files, the rules end and every problem says what to do.
    #[test]
    fn no_text_breaks_a_rule(texts in proptest::collection::vec(any::<String>(), 9), number in any::<i64>()) {
        let mut facts = well();
        let [release, lockdown, state, name, value, host, reason, address, unit] =
            <[String; 9]>::try_from(texts).unwrap();
        facts.host = host.clone();
        facts.now = number;
        facts.kernel = Looked::Found(Kernel {
            release,
            lockdown: Looked::Found(lockdown),
            btf: Looked::Found(number.unsigned_abs()),
            ..Kernel::default()
        });
        facts.devices = Looked::Found(vec![device(&name, port(&state))]);
        for variable in [
            "NCCL_IB_HCA",
            "NCCL_SOCKET_IFNAME",
            "NCCL_IB_GID_INDEX",
            "NCCL_IB_TIMEOUT",
            "NCCL_IB_DISABLE",
        ] {
            facts.nccl.settings.push(setting(variable, &value, &name));
        }
        tracer(&mut facts).running[0].unit = unit;
        tracer(&mut facts).settings = Looked::Found(Settings {
            reports_of: vec![host],
            listen: address.clone(),
            collectors: vec![address.clone()],
            ..Settings::default()
        });
        facts.dials = vec![
            dial(Dialled::Collector, &address, Outcome::Refused(reason.clone())),
            dial(Dialled::Collector, &value, answered(number)),
            dial(Dialled::Own(Service::Tracer), &address, Outcome::NotTried(reason)),
        ];
        for check in examine(&facts) {
            prop_assert!(check.status != Status::Problem || check.next.is_some());
        }
    }
}
