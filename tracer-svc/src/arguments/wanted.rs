//! What each reading tells, and which members of the kernel's structs it takes for
//! that: the same as the headers of `bpf/` do, member by member.

use super::Reading;

/// One thing that a record tells. The names are those of the contract's
/// `RecordArguments`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Argument {
    pub(super) name: &'static str,
    /// Any of them suffices.
    pub(super) ways: &'static [Way],
}

/// Arguments of the function that are needed, and members on the way.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) slots: &'static [usize],
    pub(super) members: &'static [Member],
}

/// A struct and its member.
pub(super) type Member = (&'static str, &'static str);

const fn argument(name: &'static str, ways: &'static [Way]) -> Argument {
    Argument { name, ways }
}

const fn way(slots: &'static [usize], members: &'static [Member]) -> Way {
    Way { slots, members }
}

const QP: &[usize] = &[0];
/// A member of the attributes counts only where the mask names it.
const ATTR: &[usize] = &[1, 2];
const COMMAND: &[usize] = &[3];
const BASE: Member = ("ib_uverbs_ex_modify_qp", "base");
const DEST: Member = ("ib_uverbs_modify_qp", "dest");
const IS_GLOBAL: Member = ("ib_uverbs_qp_dest", "is_global");
const AH_ATTR: Member = ("ib_qp_attr", "ah_attr");
const FLAGS: Member = ("rdma_ah_attr", "ah_flags");
const GRH: Member = ("rdma_ah_attr", "grh");
const SGID_INDEX: Member = ("ib_global_route", "sgid_index");
const SGID_ATTR: Member = ("ib_global_route", "sgid_attr");
const DGID: Member = ("ib_global_route", "dgid");
const GID_TYPE: Member = ("ib_gid_attr", "gid_type");

const MODIFY_QP: &[Argument] = &[
    argument("qp_number", &[way(QP, &[("ib_qp", "qp_num")])]),
    argument(
        "current_state",
        &[
            way(QP, &[("rxe_qp", "attr"), ("ib_qp_attr", "qp_state")]),
            way(QP, &[("mlx5_ib_qp", "state")]),
            way(QP, &[("mlx4_ib_qp", "state")]),
            way(QP, &[("irdma_qp", "ibqp_state")]),
        ],
    ),
    argument(
        "asked_state",
        &[
            way(ATTR, &[("ib_qp_attr", "qp_state")]),
            way(COMMAND, &[BASE, ("ib_uverbs_modify_qp", "qp_state")]),
        ],
    ),
    argument(
        "attribute_mask",
        &[
            way(&[2], &[]),
            way(COMMAND, &[BASE, ("ib_uverbs_modify_qp", "attr_mask")]),
        ],
    ),
    argument(
        "port",
        &[
            way(ATTR, &[("ib_qp_attr", "port_num")]),
            way(COMMAND, &[BASE, ("ib_uverbs_modify_qp", "port_num")]),
        ],
    ),
    argument(
        "gid_index",
        &[
            way(ATTR, &[AH_ATTR, FLAGS, GRH, SGID_INDEX]),
            way(
                COMMAND,
                &[BASE, DEST, IS_GLOBAL, ("ib_uverbs_qp_dest", "sgid_index")],
            ),
        ],
    ),
    argument(
        "gid_type",
        &[way(ATTR, &[AH_ATTR, FLAGS, GRH, SGID_ATTR, GID_TYPE])],
    ),
    argument(
        "destination_gid",
        &[
            way(ATTR, &[AH_ATTR, FLAGS, GRH, DGID]),
            way(
                COMMAND,
                &[BASE, DEST, IS_GLOBAL, ("ib_uverbs_qp_dest", "dgid")],
            ),
        ],
    ),
];

const DESC: &[usize] = &[4];
const DESC_TYPE: Member = ("ib_uverbs_buffer_desc", "type");
const DESC_ADDR: Member = ("ib_uverbs_buffer_desc", "addr");
const VM_FLAGS: Member = ("vm_area_struct", "vm_flags");
const VM_FILE: Member = ("vm_area_struct", "vm_file");

const REG_MR: &[Argument] = &[
    argument(
        "address",
        &[way(&[0], &[]), way(DESC, &[DESC_TYPE, DESC_ADDR])],
    ),
    argument(
        "length_bytes",
        &[
            way(&[1], &[]),
            way(DESC, &[DESC_TYPE, ("ib_uverbs_buffer_desc", "length")]),
        ],
    ),
    argument("access_flags", &[way(&[2], &[])]),
    argument(
        "mapping",
        &[
            way(&[0], &[VM_FLAGS, VM_FILE]),
            way(DESC, &[DESC_TYPE, DESC_ADDR, VM_FLAGS, VM_FILE]),
        ],
    ),
];

const REG_DMABUF_MR: &[Argument] = &[
    argument("dmabuf_offset_bytes", &[way(&[0], &[])]),
    argument("length_bytes", &[way(&[1], &[])]),
    argument("access_flags", &[way(&[2], &[])]),
    argument("dmabuf_fd", &[way(&[3], &[])]),
];

const UCORE: Member = ("uverbs_attr_bundle", "ucore");
const INBUF: Member = ("ib_udata", "inbuf");
const START: Member = ("ib_uverbs_reg_mr", "start");

const REG_MR_COMMAND: &[Argument] = &[
    argument("address", &[way(&[0], &[UCORE, INBUF, START])]),
    argument(
        "length_bytes",
        &[way(&[0], &[UCORE, INBUF, ("ib_uverbs_reg_mr", "length")])],
    ),
    argument(
        "access_flags",
        &[way(
            &[0],
            &[UCORE, INBUF, ("ib_uverbs_reg_mr", "access_flags")],
        )],
    ),
    argument(
        "mapping",
        &[way(&[0], &[UCORE, INBUF, START, VM_FLAGS, VM_FILE])],
    ),
];

const CAP: Member = ("ib_qp_init_attr", "cap");

const CREATE_QP: &[Argument] = &[
    argument(
        "max_send_wr",
        &[way(&[0], &[CAP, ("ib_qp_cap", "max_send_wr")])],
    ),
    argument(
        "max_recv_wr",
        &[way(&[0], &[CAP, ("ib_qp_cap", "max_recv_wr")])],
    ),
    argument(
        "max_send_sge",
        &[way(&[0], &[CAP, ("ib_qp_cap", "max_send_sge")])],
    ),
    argument(
        "max_recv_sge",
        &[way(&[0], &[CAP, ("ib_qp_cap", "max_recv_sge")])],
    ),
    argument(
        "max_inline_data_bytes",
        &[way(&[0], &[CAP, ("ib_qp_cap", "max_inline_data")])],
    ),
    argument("qp_type", &[way(&[0], &[("ib_qp_init_attr", "qp_type")])]),
];

const CREATE_CQ: &[Argument] = &[
    argument("cqe", &[way(&[0], &[("ib_cq_init_attr", "cqe")])]),
    argument(
        "completion_vector",
        &[way(&[0], &[("ib_cq_init_attr", "comp_vector")])],
    ),
];

const PORT: Member = ("rdma_ah_attr", "port_num");
const INIT: Member = ("rdma_ah_init_attr", "ah_attr");

const ADDRESS_HANDLE: &[Argument] = &[
    argument(
        "port",
        &[
            way(&[0], &[PORT]),
            way(&[1], &[INIT, PORT]),
            way(&[2], &[("ib_gid_attr", "port_num")]),
        ],
    ),
    argument(
        "gid_index",
        &[
            way(&[0], &[FLAGS, GRH, SGID_INDEX]),
            way(&[1], &[INIT, FLAGS, GRH, SGID_INDEX]),
            way(&[2], &[("ib_gid_attr", "index")]),
        ],
    ),
    argument(
        "gid_type",
        &[
            way(&[0], &[FLAGS, GRH, SGID_ATTR, GID_TYPE]),
            way(&[1], &[INIT, FLAGS, GRH, SGID_ATTR, GID_TYPE]),
            way(&[2], &[GID_TYPE]),
        ],
    ),
    argument(
        "destination_gid",
        &[
            way(&[0], &[FLAGS, GRH, DGID]),
            way(&[1], &[INIT, FLAGS, GRH, DGID]),
            way(&[3], &[]),
        ],
    ),
];

const FIRMWARE: &[Argument] = &[
    argument("opcode", &[way(&[0], &[]), way(&[2], &[])]),
    argument("status", &[way(&[1], &[])]),
    argument("syndrome", &[way(&[1], &[])]),
];

const CQP_ANSWER: Member = ("irdma_cqp_request", "compl_info");
const CQP_ERROR: Member = ("irdma_cqp_compl_info", "error");

const CQP_COMMAND: &[Argument] = &[
    argument(
        "opcode",
        &[way(
            &[0],
            &[("irdma_cqp_request", "info"), ("cqp_cmds_info", "cqp_cmd")],
        )],
    ),
    argument(
        "status",
        &[way(
            &[0],
            &[
                CQP_ANSWER,
                CQP_ERROR,
                ("irdma_cqp_compl_info", "maj_err_code"),
            ],
        )],
    ),
    argument(
        "syndrome",
        &[way(
            &[0],
            &[
                CQP_ANSWER,
                CQP_ERROR,
                ("irdma_cqp_compl_info", "min_err_code"),
            ],
        )],
    ),
];

const RCFW_COMMAND: &[Argument] = &[
    argument(
        "opcode",
        &[way(
            &[0],
            &[("bnxt_qplib_cmdqmsg", "req"), ("cmdq_base", "opcode")],
        )],
    ),
    argument(
        "status",
        &[way(
            &[0],
            &[("bnxt_qplib_cmdqmsg", "resp"), ("creq_qp_event", "status")],
        )],
    ),
];

const GDMA_COMMAND: &[Argument] = &[
    argument(
        "opcode",
        &[way(
            &[0],
            &[("gdma_req_hdr", "req"), ("gdma_msg_hdr", "msg_type")],
        )],
    ),
    argument("status", &[way(&[1], &[("gdma_resp_hdr", "status")])]),
];

/// An attribute of an ioctl method.
const ATTRIBUTE: &[Way] = &[way(
    &[0],
    &[
        ("uverbs_attr_bundle", "attr_present"),
        ("uverbs_attr_bundle", "attrs"),
        ("uverbs_attr", "ptr_attr"),
        ("uverbs_ptr_attr", "data"),
    ],
)];

const DMABUF_METHOD: &[Argument] = &[
    argument("dmabuf_offset_bytes", ATTRIBUTE),
    argument("length_bytes", ATTRIBUTE),
    argument("access_flags", ATTRIBUTE),
    argument("dmabuf_fd", ATTRIBUTE),
];

const DEVX_COMMAND: &[Argument] = &[
    argument("opcode", ATTRIBUTE),
    argument("object_type", ATTRIBUTE),
    argument("status", ATTRIBUTE),
    argument("syndrome", ATTRIBUTE),
];

/// Memory of the process or a dmabuf, from attributes.
const REGION_METHOD: &[Argument] = &[
    argument("address", ATTRIBUTE),
    argument("length_bytes", ATTRIBUTE),
    argument("access_flags", ATTRIBUTE),
    argument(
        "mapping",
        &[way(
            &[0],
            &[
                ("uverbs_attr_bundle", "attr_present"),
                ("uverbs_attr_bundle", "attrs"),
                ("uverbs_attr", "ptr_attr"),
                ("uverbs_ptr_attr", "data"),
                VM_FLAGS,
                VM_FILE,
            ],
        )],
    ),
    argument("dmabuf_fd", ATTRIBUTE),
    argument("dmabuf_offset_bytes", ATTRIBUTE),
];

impl Reading {
    /// All that its records may tell.
    pub(super) fn arguments(self) -> &'static [Argument] {
        match self {
            Self::ModifyQp => MODIFY_QP,
            Self::RegMr => REG_MR,
            Self::RegDmabufMr => REG_DMABUF_MR,
            Self::RegMrCommand => REG_MR_COMMAND,
            Self::CreateQp => CREATE_QP,
            Self::CreateCq => CREATE_CQ,
            Self::AddressHandle => ADDRESS_HANDLE,
            Self::Command => FIRMWARE,
            Self::CqpCommand => CQP_COMMAND,
            Self::RcfwCommand => RCFW_COMMAND,
            Self::GdmaCommand => GDMA_COMMAND,
            Self::DmabufMethod => DMABUF_METHOD,
            Self::DevxCommand => DEVX_COMMAND,
            Self::DevxUmem | Self::RegMrMethod => REGION_METHOD,
        }
    }
}
