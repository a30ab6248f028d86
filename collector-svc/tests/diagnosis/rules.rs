//! One test for each rule, by cause known by construction.

use std::time::Duration;

use rdmesh_collector::diagnosis::{
    Arguments, Case, Chain, ChainFlags, CreateSizes, FirmwareAnswer, Mapping, ProbeState, Shaping,
    Signal, Total, diagnose,
};
use rdmesh_proto::collector::v1::{Confidence, JobState, VerdictClass as Class};
use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::CoSignalKind;

use crate::made::{REG_MR, T0, UMEM, UVERBS_REG_MR, after, case, chain, modify_qp, reg_mr, step};

/// Class, rule, confidence.
pub(crate) fn judged(case: &Case) -> (Class, &'static str, Confidence) {
    let verdict = diagnose(case);
    (verdict.class, verdict.rule, verdict.confidence)
}

pub(crate) fn with(mut chain: Chain, arguments: Arguments) -> Chain {
    chain.arguments = arguments;
    chain
}

pub(crate) fn mapping(mapping: Mapping) -> Arguments {
    Arguments {
        mapping: Some(mapping),
        ..Arguments::default()
    }
}

#[test]
fn firmware_command_failed() {
    let command = ("mlx5_cmd_exec", "mlx5_core", Layer::Firmware);
    let below = chain(Verb::RegMr, 121, &[command, REG_MR, UVERBS_REG_MR]);
    assert_eq!(
        judged(&case(vec![below])),
        (
            Class::Firmware,
            "firmware-command-failed",
            Confidence::Medium
        )
    );
    let answer = FirmwareAnswer {
        opcode: 0x200,
        status: 0x3,
        syndrome: 0x5e9bb1,
        object_type: None,
    };
    let arguments = Arguments {
        firmware: Some(answer),
        ..Arguments::default()
    };
    let answered = with(
        chain(Verb::RegMr, 121, &[command, REG_MR, UVERBS_REG_MR]),
        arguments,
    );
    let verdict = diagnose(&case(vec![answered]));
    assert_eq!(verdict.confidence, Confidence::High);
    assert!(
        verdict.evidence[1].contains("syndrome 0x5e9bb1"),
        "{:?}",
        verdict.evidence
    );
}

/// The peer's queue pair was left out; the step itself is in order.
#[test]
fn a_step_that_is_allowed_is_not_called_wrong() {
    let mut lacking = modify_qp(22, "mlx5_ib_modify_qp");
    lacking.arguments.current_state = Some("INIT".into());
    lacking.arguments.asked_state = Some("RTR".into());
    lacking.arguments.attribute_mask = Some(1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17);
    let verdict = diagnose(&case(vec![lacking]));
    assert!(
        verdict
            .summary
            .contains("an attribute of the change is missing"),
        "{}",
        verdict.summary
    );
    let lacks = "what an RC queue pair needs for that was not given: IBV_QP_DEST_QPN";
    assert!(
        verdict.evidence.iter().any(|e| e.contains(lacks)),
        "{:?}",
        verdict.evidence
    );
    assert!(verdict.next_steps[0].contains("attribute mask"));
}

#[test]
fn driver_refused_arguments() {
    let mut wrong = modify_qp(22, "mlx5_ib_modify_qp");
    wrong.arguments.current_state = Some("RESET".into());
    wrong.arguments.asked_state = Some("RTS".into());
    let verdict = diagnose(&case(vec![wrong]));
    assert_eq!(verdict.rule, "driver-refused-arguments");
    assert_eq!(
        (verdict.class, verdict.layer),
        (Class::ApplicationArguments, Layer::Driver)
    );
    assert!(
        verdict
            .evidence
            .iter()
            .any(|e| e.contains("from RESET to RTS, which the state machine does not have"))
    );
    assert!(
        verdict.summary.contains("may not change its state"),
        "{}",
        verdict.summary
    );
    assert!(verdict.against.is_empty(), "{:?}", verdict.against);
    for errno in [95, 524] {
        let refused = chain(Verb::RegMr, errno, &[REG_MR, UVERBS_REG_MR]);
        assert_eq!(
            judged(&case(vec![refused])).0,
            Class::ApplicationArguments,
            "errno {errno}"
        );
    }
    let mut over = chain(
        Verb::CreateCq,
        22,
        &[
            ("rxe_create_cq", "rdma_rxe", Layer::Driver),
            (
                "ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE",
                "ib_uverbs",
                Layer::Uverbs,
            ),
        ],
    );
    over.arguments.create = Some(CreateSizes {
        cqe: 1 << 30,
        ..CreateSizes::default()
    });
    let verdict = diagnose(&case(vec![over]));
    assert!(
        verdict
            .evidence
            .iter()
            .any(|e| e.contains("1073741824 completion"))
    );
}

#[test]
fn driver_other_errno() {
    let failed = chain(Verb::RegMr, 12, &[REG_MR, UVERBS_REG_MR]);
    assert_eq!(
        judged(&case(vec![failed.clone()])),
        (Class::Driver, "driver-other-errno", Confidence::Low)
    );
    let mut blind = case(vec![failed]);
    blind.hosts[0]
        .probes
        .as_mut()
        .unwrap()
        .probes
        .retain(|p| p.layer == Layer::Driver);
    let against = diagnose(&blind).against;
    assert!(
        against[0].contains("commands to the firmware were not watched"),
        "{against:?}"
    );
    assert!(
        against[1].contains("pinning of memory was not watched"),
        "{against:?}"
    );
}

#[test]
fn device_gone() {
    let gone = chain(Verb::RegMr, 5, &[UVERBS_REG_MR]);
    assert_eq!(
        judged(&case(vec![gone])),
        (Class::Device, "device-gone", Confidence::Medium)
    );
}

#[test]
fn neighbour_not_resolved() {
    let silent = |host: &str, gid: &str| {
        let mut chain = modify_qp(110, "ib_resolve_eth_dmac");
        chain.host = host.into();
        chain.arguments.destination_gid = Some(gid.into());
        chain
    };
    let one = case(vec![silent("gpu-01", "::ffff:10.0.0.9")]);
    assert_eq!(
        judged(&one),
        (
            Class::Reachability,
            "neighbour-not-resolved",
            Confidence::High
        )
    );
    let many_to_one = case(vec![
        silent("gpu-01", "::ffff:10.0.0.9"),
        silent("gpu-02", "::ffff:10.0.0.9"),
    ]);
    let evidence = diagnose(&many_to_one).evidence;
    assert!(
        evidence
            .iter()
            .any(|e| e.contains("2 hosts fail to reach one destination"))
    );
    let one_to_many = case(vec![
        silent("gpu-01", "::ffff:10.0.0.8"),
        silent("gpu-01", "::ffff:10.0.0.9"),
    ]);
    let evidence = diagnose(&one_to_many).evidence;
    assert!(
        evidence
            .iter()
            .any(|e| e.contains("fails to reach 2 destinations")),
        "{evidence:?}"
    );
    // In the driver it is the driver's.
    assert_eq!(
        judged(&case(vec![modify_qp(110, "mlx5_ib_modify_qp")])).1,
        "driver-other-errno"
    );
}

#[test]
fn gid_slot_empty() {
    for chain in [
        modify_qp(61, "rdma_fill_sgid_attr"),
        chain(
            Verb::CreateAh,
            61,
            &[
                ("rdma_create_user_ah", "ib_core", Layer::Core),
                ("ib_uverbs_create_ah", "ib_uverbs", Layer::Uverbs),
            ],
        ),
    ] {
        assert_eq!(
            judged(&case(vec![chain])),
            (Class::Configuration, "gid-slot-empty", Confidence::High)
        );
    }
}

#[test]
fn kernel_entry_refused() {
    let core = modify_qp(22, "_ib_modify_qp");
    assert_eq!(
        judged(&case(vec![core.clone()])),
        (
            Class::ApplicationArguments,
            "kernel-entry-refused",
            Confidence::Medium
        )
    );
    let mut blind = case(vec![core]);
    for probe in &mut blind.hosts[0].probes.as_mut().unwrap().probes {
        probe.state = ProbeState::Missing;
    }
    let verdict = diagnose(&blind);
    assert_eq!(verdict.confidence, Confidence::Low);
    assert!(
        verdict.against[0].contains("was not watched on gpu-01"),
        "{:?}",
        verdict.against
    );
    let forbidden = chain(
        Verb::CreateQp,
        1,
        &[("ib_uverbs_create_qp", "ib_uverbs", Layer::Uverbs)],
    );
    assert_eq!(judged(&case(vec![forbidden])).0, Class::Configuration);
}

#[test]
fn swallowed_error_before_failure() {
    let mut swallowed = chain(Verb::RegMr, 12, &[UMEM, REG_MR]);
    swallowed.flags.swallowed = true;
    let mut later = modify_qp(22, "mlx5_ib_modify_qp");
    later.first_at = after(200);
    let verdict = diagnose(&case(vec![swallowed.clone(), later.clone()]));
    assert_eq!(verdict.rule, "swallowed-error-before-failure");
    assert_eq!(
        (verdict.class, verdict.function.as_str()),
        (Class::SwallowedError, "ib_umem_get")
    );
    assert!(
        verdict
            .evidence
            .iter()
            .any(|e| e.contains("mlx5_ib_reg_user_mr had it last"))
    );
    // Of another process it is another story.
    swallowed.tgid = 7;
    assert_eq!(
        judged(&case(vec![swallowed.clone(), later])).1,
        "driver-refused-arguments"
    );
    assert_eq!(
        judged(&case(vec![swallowed])),
        (
            Class::SwallowedError,
            "swallowed-error-alone",
            Confidence::Low
        )
    );
}

#[test]
fn an_errno_that_changes_on_the_way_names_the_function() {
    let mut changed = reg_mr(14);
    changed.steps[2] = step("ib_uverbs_reg_mr", "ib_uverbs", Layer::Uverbs, 22);
    let evidence = diagnose(&case(vec![changed])).evidence;
    assert!(
        evidence
            .iter()
            .any(|e| e.starts_with("ib_uverbs_reg_mr turned EFAULT into EINVAL")),
        "{evidence:?}"
    );
}

#[test]
fn expected_and_incomplete_chains_never_decide() {
    let mut expected = reg_mr(14);
    expected.flags.expected = true;
    let mut incomplete = reg_mr(12);
    incomplete.flags.incomplete = true;
    let verdict = diagnose(&case(vec![expected.clone(), incomplete]));
    assert_eq!((verdict.class, verdict.errno), (Class::CannotTell, 0));
    assert!(verdict.evidence[0].contains("part of normal work"));
    assert!(verdict.evidence[1].contains("records were dropped"));
    // A real one after them does.
    let mut real = modify_qp(22, "mlx5_ib_modify_qp");
    real.first_at = after(900);
    let verdict = diagnose(&case(vec![expected, real]));
    assert_eq!(
        (verdict.rule, verdict.first_at),
        ("driver-refused-arguments", Some(after(900)))
    );
}

#[test]
fn the_first_failure_decides_and_repeats_count_once() {
    let mut first = modify_qp(110, "ib_resolve_eth_dmac");
    first.host = "gpu-02".into();
    first.count = 34;
    let mut second = first.clone();
    second.host = "gpu-03".into();
    second.first_at = after(40);
    second.rank = Some(9);
    let mut follower = reg_mr(14);
    follower.first_at = after(5_000);
    let verdict = diagnose(&case(vec![follower, second, first]));
    assert_eq!(verdict.class, Class::Reachability);
    assert_eq!(verdict.hosts, ["gpu-02", "gpu-03"]);
    assert_eq!(verdict.first_at, Some(T0));
    assert!(
        verdict
            .evidence
            .iter()
            .any(|e| e.contains("the same failure 68 times on gpu-02, gpu-03, ranks 3, 9")),
        "{:?}",
        verdict.evidence
    );
    assert!(
        verdict
            .evidence
            .iter()
            .any(|e| e.starts_with("another failure 5.000 s later"))
    );
}

#[test]
fn nothing_cannot_be_told() {
    let verdict = diagnose(&case(vec![]));
    assert_eq!(
        (verdict.class, verdict.rule),
        (Class::CannotTell, "nothing-decides")
    );
    assert_eq!(
        verdict.summary,
        "Nothing that was watched explains attempt 4711/0."
    );
    assert!(verdict.next_steps[0].starts_with("rdmesh probes gpu-01: "));
    let done = Case {
        state: JobState::Completed,
        ..case(vec![])
    };
    assert_eq!(
        diagnose(&done).summary,
        "Attempt 4711/0 completed, and nothing failed."
    );
    let counted = Case {
        totals: vec![Total {
            host: "gpu-01".into(),
            function: "ib_umem_get".into(),
            layer: Layer::Memory,
            errno: 14,
            count: 90_000,
        }],
        ..case(vec![])
    };
    let evidence = diagnose(&counted).evidence;
    assert!(
        evidence[0].contains("failed 90000 times with EFAULT"),
        "{evidence:?}"
    );
}

#[test]
fn an_unknown_layer_cannot_be_told() {
    let strange = chain(
        Verb::RegMr,
        14,
        &[("new_function", "new", Layer::Unspecified)],
    );
    let verdict = diagnose(&case(vec![strange]));
    assert_eq!(
        (verdict.class, verdict.rule),
        (Class::CannotTell, "layer-not-known")
    );
    assert_eq!(verdict.function, "new_function");
}

pub(crate) fn port_down(independent: bool) -> Signal {
    Signal {
        host: "gpu-01".into(),
        at: T0 - Duration::from_secs(2),
        kind: CoSignalKind::Network,
        independent,
        name: "port state".into(),
        detail: "ACTIVE to DOWN".into(),
        device: "mlx5_0".into(),
    }
}

#[test]
fn only_an_independent_co_signal_is_a_cause() {
    let alone = Case {
        signals: vec![port_down(true)],
        ..case(vec![])
    };
    let verdict = diagnose(&alone);
    assert_eq!(
        (verdict.class, verdict.rule),
        (Class::Network, "co-signal-without-failure")
    );
    let echo = Case {
        signals: vec![port_down(false)],
        ..case(vec![])
    };
    assert_eq!(diagnose(&echo).class, Class::CannotTell);
    let both = Case {
        signals: vec![port_down(true)],
        ..case(vec![reg_mr(14)])
    };
    let verdict = diagnose(&both);
    assert_eq!(verdict.class, Class::ApplicationArguments);
    assert!(
        verdict.against[0].starts_with("2.000 s before the first failure"),
        "{:?}",
        verdict.against
    );
}

#[test]
fn shaping_is_stated_first_and_caps_network_verdicts() {
    let shaping = vec![Shaping {
        host: "gpu-01".into(),
        wire: "w0".into(),
        rate_bps: 100_000_000_000,
        windows: 12,
        invalid: 0,
        silent_seconds: 5.0,
    }];
    let alone = Case {
        shaping: shaping.clone(),
        ..case(vec![])
    };
    let verdict = diagnose(&alone);
    assert_eq!(
        (verdict.class, verdict.rule),
        (Class::InjectedStraggler, "shaped-and-nothing-else")
    );
    assert!(verdict.evidence[0].contains("100000000000 bit/s"));
    let unreachable = Case {
        shaping: shaping.clone(),
        ..case(vec![modify_qp(110, "ib_resolve_eth_dmac")])
    };
    let verdict = diagnose(&unreachable);
    assert_eq!(
        (verdict.class, verdict.confidence),
        (Class::Reachability, Confidence::Low)
    );
    assert!(verdict.evidence[0].starts_with("the wire w0 of gpu-01 was shaped"));
    let bad_address = Case {
        shaping,
        ..case(vec![with(reg_mr(14), mapping(Mapping::None))])
    };
    assert_eq!(judged(&bad_address).2, Confidence::High);
}

#[test]
fn an_outage_of_the_shaper_is_stated_like_shaping() {
    let away = |invalid, silent_seconds| Shaping {
        host: "gpu-02".into(),
        wire: "w1".into(),
        rate_bps: 0,
        windows: 0,
        invalid,
        silent_seconds,
    };
    let of = |shaping: Shaping, chains| {
        diagnose(&Case {
            shaping: vec![shaping],
            ..case(chains)
        })
    };
    for (shaping, words) in [
        (
            away(2, 0.0),
            "was down, or its port dropped frames, in 2 windows",
        ),
        (
            away(0, 40.0),
            "said nothing of the wire w1 of gpu-02 for 40 s",
        ),
    ] {
        let verdict = of(shaping.clone(), vec![]);
        assert_eq!(verdict.class, Class::InjectedStraggler);
        assert_eq!(verdict.hosts, ["gpu-02"]);
        assert!(verdict.summary.contains("was away"), "{}", verdict.summary);
        assert!(
            verdict.evidence[0].contains(words),
            "{:?}",
            verdict.evidence
        );
        let capped = of(shaping, vec![modify_qp(110, "ib_resolve_eth_dmac")]);
        assert_eq!(capped.confidence, Confidence::Low);
    }
    // What is still on its way is no outage, and a wire that was never shaped no shaping.
    let verdict = of(away(0, 5.0), vec![]);
    assert_eq!(verdict.class, Class::CannotTell);
}

#[test]
fn flags_default_to_deciding() {
    assert_eq!(reg_mr(14).flags, ChainFlags::default());
}
