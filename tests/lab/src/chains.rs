//! What the kernel does for each failure that the verbs program makes: the functions
//! that return the errno, innermost first. Seen on the three kernels with soft-RoCE.

use crate::kernels::Kernel;

/// A scenario of the verbs program and the chain that it leaves.
#[derive(Debug, Clone)]
pub struct Expected {
    /// Scenario's name on the command line.
    pub scenario: &'static str,
    /// The errno, at every step.
    pub errno: i32,
    /// Its name.
    pub errno_name: &'static str,
    /// The verb, as the views name it.
    pub verb: &'static str,
    /// Failing functions, innermost first.
    pub functions: Vec<&'static str>,
    /// Their layers.
    pub layers: Vec<&'static str>,
}

/// Where pages are pinned: 7.3 has one function below the old one.
pub fn umem(kernel: Kernel) -> &'static str {
    match kernel {
        Kernel::V6_1 | Kernel::V6_12 => "ib_umem_get",
        Kernel::V7_3 => "__ib_umem_get_va",
    }
}

/// Every failure of issue 2, but the storm.
pub fn all(kernel: Kernel) -> Vec<Expected> {
    let efault = (14, "EFAULT");
    let einval = (22, "EINVAL");
    let reg_mr = [(umem(kernel), "memory"), ("rxe_reg_user_mr", "driver")];
    let reg_mr = [&reg_mr[..], &[("ib_uverbs_reg_mr", "uverbs")]].concat();
    let modify_qp = [
        ("rxe_modify_qp", "driver"),
        ("_ib_modify_qp", "core"),
        ("ib_modify_qp_with_udata", "core"),
        ("modify_qp", "uverbs"),
        ("ib_uverbs_modify_qp", "uverbs"),
    ];
    let create_qp = [
        ("rxe_create_qp", "driver"),
        ("ib_create_qp_user", "core"),
        ("ib_uverbs_handler_UVERBS_METHOD_QP_CREATE", "uverbs"),
    ];
    let create_cq = [
        ("rxe_create_cq", "driver"),
        ("ib_uverbs_handler_UVERBS_METHOD_CQ_CREATE", "uverbs"),
    ];
    let create_ah = [
        ("rdma_fill_sgid_attr", "core"),
        ("rdma_create_user_ah", "core"),
        ("ib_uverbs_create_ah", "uverbs"),
    ];
    let method = [(umem(kernel), "memory"), ("rxe_reg_user_mr", "driver")];
    let name = "ib_uverbs_handler_UVERBS_METHOD_REG_MR";
    let method = [&method[..], &[(name, "uverbs")]].concat();
    let mut all = vec![
        expected("reg-mr-efault", efault, "reg_mr", &reg_mr),
        expected("modify-qp-bad-transition", einval, "modify_qp", &modify_qp),
        expected("create-qp-over-limits", einval, "create_qp", &create_qp),
        expected("create-cq-over-limits", einval, "create_cq", &create_cq),
        expected(
            "create-ah-empty-gid",
            (61, "ENODATA"),
            "create_ah",
            &create_ah,
        ),
        expected("write-reg-mr-efault", efault, "reg_mr", &reg_mr),
        expected("write-modify-qp-einval", einval, "modify_qp", &modify_qp),
        expected("reg-mr-memlock", (12, "ENOMEM"), "reg_mr", &reg_mr),
    ];
    if kernel == Kernel::V7_3 {
        let scenario = "method-reg-mr-efault";
        all.push(expected(scenario, efault, "reg_mr", &method));
    }
    all
}

fn expected(
    scenario: &'static str,
    (errno, errno_name): (i32, &'static str),
    verb: &'static str,
    steps: &[(&'static str, &'static str)],
) -> Expected {
    let (functions, layers) = steps.iter().copied().unzip();
    Expected {
        scenario,
        errno,
        errno_name,
        verb,
        functions,
        layers,
    }
}
