//! Ways in which verbs fail, as they are known from the field: the chain of functions with
//! their errnos, and what the arguments of such a call say.

use rdmesh_proto::common::v1::{Layer, Verb};
use rdmesh_proto::tracer::v1::record_arguments::Verb as Read;
use rdmesh_proto::tracer::v1::{
    CreateArguments, FirmwareCommandArguments, Mapping, ModifyQpArguments, RegMrArguments,
};

use super::fleet::Numbers;

/// A function that failed.
#[derive(Debug)]
pub(super) struct Step {
    pub(super) function: &'static str,
    pub(super) module: &'static str,
    pub(super) layer: Layer,
    pub(super) errno: u32,
}

/// A way to fail.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) verb: Verb,
    /// Innermost first.
    pub(super) steps: &'static [Step],
}

const fn step(function: &'static str, module: &'static str, layer: Layer, errno: u32) -> Step {
    Step {
        function,
        module,
        layer,
        errno,
    }
}

const UMEM: &str = "ib_umem_get";
const UVERBS: &str = "ib_uverbs";
const CORE: &str = "ib_core";
const MLX5: &str = "mlx5_ib";
const MLX5_CORE: &str = "mlx5_core";

const EPERM: u32 = 1;
const EIO: u32 = 5;
const EAGAIN: u32 = 11;
const ENOMEM: u32 = 12;
const EFAULT: u32 = 14;
const EINVAL: u32 = 22;
const EBADF: u32 = 9;
const EREMOTEIO: u32 = 121;
const ETIMEDOUT: u32 = 110;
const EOPNOTSUPP: u32 = 95;

macro_rules! kind {
    ($verb:ident: $($function:expr, $module:expr, $layer:ident, $errno:expr);+) => {
        Kind {
            verb: Verb::$verb,
            steps: &[$(step($function, $module, Layer::$layer, $errno)),+],
        }
    };
}

/// 2.3 steps each in the mean.
pub(super) const KINDS: [Kind; 20] = [
    kind!(RegMr: UMEM, UVERBS, Memory, EFAULT; "mlx5_ib_reg_user_mr", MLX5, Driver, EFAULT; "ib_uverbs_reg_mr", UVERBS, Uverbs, EFAULT),
    kind!(RegMr: UMEM, UVERBS, Memory, ENOMEM; "mlx5_ib_reg_user_mr", MLX5, Driver, ENOMEM; "ib_uverbs_reg_mr", UVERBS, Uverbs, ENOMEM),
    kind!(RegMr: UMEM, UVERBS, Memory, EPERM; "mlx5_ib_reg_user_mr", MLX5, Driver, EPERM; "ib_uverbs_reg_mr", UVERBS, Uverbs, EPERM),
    kind!(RegMr: UMEM, UVERBS, Memory, EAGAIN; "mlx5_ib_reg_user_mr", MLX5, Driver, EAGAIN),
    kind!(RegMr: "mlx5_ib_reg_user_mr", MLX5, Driver, EINVAL; "ib_uverbs_reg_mr", UVERBS, Uverbs, EINVAL),
    kind!(RegDmabufMr: "ib_umem_dmabuf_get_pinned", UVERBS, Memory, EBADF; "mlx5_ib_reg_user_mr_dmabuf", MLX5, Driver, EBADF),
    kind!(RegDmabufMr: "ib_umem_dmabuf_get_pinned", UVERBS, Memory, EOPNOTSUPP; "mlx5_ib_reg_user_mr_dmabuf", MLX5, Driver, EOPNOTSUPP),
    kind!(RegMr: "mlx5_cmd_exec", MLX5_CORE, Firmware, EREMOTEIO; "mlx5_ib_reg_user_mr", MLX5, Driver, EREMOTEIO; "ib_uverbs_reg_mr", UVERBS, Uverbs, EREMOTEIO),
    kind!(CreateCq: "mlx5_cmd_exec", MLX5_CORE, Firmware, EIO; "mlx5_ib_create_cq", MLX5, Driver, EIO; "ib_uverbs_create_cq", UVERBS, Uverbs, EIO),
    kind!(CreateCq: "mlx5_ib_create_cq", MLX5, Driver, EINVAL; "ib_uverbs_create_cq", UVERBS, Uverbs, EINVAL),
    kind!(CreateCq: "ib_uverbs_create_cq", UVERBS, Uverbs, EINVAL),
    kind!(CreateQp: "mlx5_cmd_exec", MLX5_CORE, Firmware, ENOMEM; "mlx5_ib_create_qp", MLX5, Driver, ENOMEM; "ib_uverbs_create_qp", UVERBS, Uverbs, ENOMEM),
    kind!(CreateQp: "mlx5_ib_create_qp", MLX5, Driver, EOPNOTSUPP; "ib_uverbs_create_qp", UVERBS, Uverbs, EOPNOTSUPP),
    kind!(CreateQp: "mlx5_ib_create_qp", MLX5, Driver, ENOMEM; "ib_uverbs_create_qp", UVERBS, Uverbs, ENOMEM),
    kind!(ModifyQp: "mlx5_ib_modify_qp", MLX5, Driver, EINVAL; "ib_modify_qp_with_udata", CORE, Core, EINVAL; "ib_uverbs_modify_qp", UVERBS, Uverbs, EINVAL),
    kind!(ModifyQp: "rdma_resolve_ip_route", CORE, Core, ETIMEDOUT; "ib_modify_qp_with_udata", CORE, Core, ETIMEDOUT),
    kind!(ModifyQp: "mlx5_cmd_exec", MLX5_CORE, Firmware, EREMOTEIO; "mlx5_ib_modify_qp", MLX5, Driver, EREMOTEIO),
    kind!(ModifyQp: "ib_modify_qp_with_udata", CORE, Core, EINVAL; "ib_uverbs_modify_qp", UVERBS, Uverbs, EINVAL),
    kind!(AllocPd: "mlx5_cmd_exec", MLX5_CORE, Firmware, ENOMEM; "mlx5_ib_alloc_pd", MLX5, Driver, ENOMEM; "ib_uverbs_alloc_pd", UVERBS, Uverbs, ENOMEM),
    kind!(AllocPd: "ib_uverbs_alloc_pd", UVERBS, Uverbs, EINVAL),
];

/// What a record of such a call says.
pub(super) fn arguments(verb: Verb, numbers: &mut Numbers) -> Read {
    let small = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    match verb {
        Verb::RegMr | Verb::RegDmabufMr => Read::RegMr(RegMrArguments {
            address: Some(0x7f00_0000_0000 + (numbers.below(1 << 28) << 12)),
            length_bytes: Some((1 + numbers.below(1 << 14)) << 12),
            access_flags: Some(15),
            mapping: Mapping::Anonymous.into(),
            mapping_of_end: Mapping::Anonymous.into(),
            ..RegMrArguments::default()
        }),
        Verb::ModifyQp => Read::ModifyQp(ModifyQpArguments {
            qp_number: Some(small(numbers.below(1 << 17))),
            current_state: Some(1),
            asked_state: Some(2),
            attribute_mask: Some(0x1_21c1),
            port: Some(1),
            gid_index: Some(3),
            gid_type: Some(2),
            destination_gid: {
                let mut gid = [0; 16];
                gid[10..12].copy_from_slice(&[0xff, 0xff]);
                gid[12..]
                    .copy_from_slice(&(0x0a00_0000 + small(numbers.below(2_048))).to_be_bytes());
                gid.to_vec()
            },
        }),
        Verb::CreateCq | Verb::CreateQp => Read::Create(CreateArguments {
            cqe: Some(4_096),
            max_send_wr: Some(256),
            max_recv_wr: Some(small(256 << numbers.below(4))),
            max_send_sge: Some(1),
            max_recv_sge: Some(1),
            max_inline_data_bytes: Some(0),
            completion_vector: Some(small(numbers.below(64))),
            qp_type: Some(2),
        }),
        _ => Read::FirmwareCommand(FirmwareCommandArguments {
            opcode: Some(0x800),
            status: Some(5),
            syndrome: Some(small(numbers.below(1 << 24))),
            object_type: None,
        }),
    }
}
