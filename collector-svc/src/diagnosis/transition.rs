//! Steps of a queue pair's state machine, and what they need.
//!
//! As `qp_state_table` of drivers/infiniband/core/verbs.c has them (InfiniBand
//! specification, volume 1, 10.3.1); what a step needs is told for a reliable connection
//! (RC), which training jobs use.

/// `enum ib_qp_attr_mask` of include/rdma/ib_verbs.h, by the names of `ibv_modify_qp(3)`.
const MASK: &[(u32, &str)] = &[
    (1 << 0, "IBV_QP_STATE"),
    (1 << 3, "IBV_QP_ACCESS_FLAGS"),
    (1 << 4, "IBV_QP_PKEY_INDEX"),
    (1 << 5, "IBV_QP_PORT"),
    (1 << 7, "IBV_QP_AV"),
    (1 << 8, "IBV_QP_PATH_MTU"),
    (1 << 9, "IBV_QP_TIMEOUT"),
    (1 << 10, "IBV_QP_RETRY_CNT"),
    (1 << 11, "IBV_QP_RNR_RETRY"),
    (1 << 12, "IBV_QP_RQ_PSN"),
    (1 << 13, "IBV_QP_MAX_QP_RD_ATOMIC"),
    (1 << 15, "IBV_QP_MIN_RNR_TIMER"),
    (1 << 16, "IBV_QP_SQ_PSN"),
    (1 << 17, "IBV_QP_MAX_DEST_RD_ATOMIC"),
    (1 << 20, "IBV_QP_DEST_QPN"),
];

/// From, to, and what an RC queue pair must be given.
const STEPS: &[(&str, &str, &[&str])] = &[
    (
        "RESET",
        "INIT",
        &["IBV_QP_PKEY_INDEX", "IBV_QP_PORT", "IBV_QP_ACCESS_FLAGS"],
    ),
    ("INIT", "INIT", &[]),
    (
        "INIT",
        "RTR",
        &[
            "IBV_QP_AV",
            "IBV_QP_PATH_MTU",
            "IBV_QP_DEST_QPN",
            "IBV_QP_RQ_PSN",
            "IBV_QP_MAX_DEST_RD_ATOMIC",
            "IBV_QP_MIN_RNR_TIMER",
        ],
    ),
    (
        "RTR",
        "RTS",
        &[
            "IBV_QP_TIMEOUT",
            "IBV_QP_RETRY_CNT",
            "IBV_QP_RNR_RETRY",
            "IBV_QP_SQ_PSN",
            "IBV_QP_MAX_QP_RD_ATOMIC",
        ],
    ),
    ("RTS", "RTS", &[]),
    ("RTS", "SQD", &[]),
    ("SQD", "SQD", &[]),
    ("SQD", "RTS", &[]),
    ("SQE", "RTS", &[]),
];

/// What a queue pair was asked to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// The state machine has no such step.
    Forbidden,
    /// It has, and these attributes of an RC queue pair were not given.
    Allowed {
        /// Names of `ibv_modify_qp(3)`.
        lacks: Vec<&'static str>,
    },
}

/// A step between states by their names; `mask`: what was given, where it is known.
pub(crate) fn step(from: &str, to: &str, mask: Option<u32>) -> Step {
    if matches!(to, "RESET" | "ERR") {
        return Step::Allowed { lacks: Vec::new() };
    }
    let Some((_, _, needs)) = STEPS.iter().find(|(f, t, _)| *f == from && *t == to) else {
        return Step::Forbidden;
    };
    let given = |name: &str| {
        let bit = MASK.iter().find(|(_, known)| *known == name);
        bit.is_some_and(|(bit, _)| mask.is_some_and(|mask| mask & bit != 0))
    };
    let lacks = match mask {
        None => Vec::new(),
        Some(_) => needs.iter().copied().filter(|name| !given(name)).collect(),
    };
    Step::Allowed { lacks }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_leaves_one_out_is_forbidden() {
        assert_eq!(step("RESET", "RTS", Some(1)), Step::Forbidden);
        assert_eq!(step("RTS", "INIT", None), Step::Forbidden);
        assert_eq!(step("ERR", "RTS", Some(1)), Step::Forbidden);
    }

    #[test]
    fn a_step_of_the_table_names_what_was_not_given() {
        let all_but_peer = 1 | 1 << 7 | 1 << 8 | 1 << 12 | 1 << 15 | 1 << 17;
        let expected = Step::Allowed {
            lacks: vec!["IBV_QP_DEST_QPN"],
        };
        assert_eq!(step("INIT", "RTR", Some(all_but_peer)), expected);
        let whole = Step::Allowed { lacks: Vec::new() };
        assert_eq!(step("INIT", "RTR", Some(all_but_peer | 1 << 20)), whole);
        assert_eq!(step("INIT", "RTR", None), whole);
        assert_eq!(step("SQE", "RESET", Some(1)), whole);
    }

    #[test]
    fn every_attribute_that_a_step_needs_has_its_bit() {
        for (_, _, needs) in STEPS {
            for name in *needs {
                assert!(MASK.iter().any(|(_, known)| known == name), "{name}");
            }
        }
    }
}
