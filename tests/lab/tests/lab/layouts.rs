//! What records can tell on each kernel of the matrix, both processors and five
//! drivers: every member that the program reads is compared with the types of the
//! modules. What a kernel does not have is named here, and nothing else.

use anyhow::{Result, ensure};
use rdmesh_lab::kernels::{self, Kernel, Machine};
use rdmesh_lab::progress::Progress;
use serde::Deserialize;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::selection::{DRIVERS, select};

#[derive(Debug, Deserialize)]
struct Selection {
    functions: Vec<Function>,
}

#[derive(Debug, Deserialize)]
struct Function {
    function: String,
    module: String,
    #[serde(default)]
    arguments: Vec<String>,
    #[serde(default)]
    arguments_absent: Vec<String>,
}

/// A line for each function whose records tell something, or should.
fn lines(selection: &Selection) -> BTreeSet<String> {
    let telling = selection
        .functions
        .iter()
        .filter(|f| !f.arguments.is_empty() || !f.arguments_absent.is_empty());
    let line = |f: &Function| {
        let mut line = format!("{}:{} {}", f.module, f.function, f.arguments.join(" "));
        for absent in &f.arguments_absent {
            let _ = write!(line, "\n  not {absent}");
        }
        line
    };
    telling.map(line).collect()
}

fn on(machine: Machine) -> Result<()> {
    for kernel in Kernel::ALL {
        let image = kernels::fetch_for(kernel, machine, Progress::Quiet)?;
        let mut all = BTreeSet::new();
        for driver in DRIVERS.into_iter().chain(["mana_ib"]) {
            if let Some(selection) = select::<Selection>(&image, driver)? {
                all.append(&mut lines(&selection));
            }
        }
        let text = all.into_iter().fold(String::new(), |mut text, line| {
            text += &line;
            text.push('\n');
            text
        });
        for needed in [
            "rdma_rxe:rxe_modify_qp qp_number current_state asked_state attribute_mask port \
             gid_index gid_type destination_gid\n",
            "mlx5_ib:mlx5_ib_modify_qp qp_number current_state asked_state attribute_mask port \
             gid_index gid_type destination_gid\n",
            "mlx5_ib:mlx5_ib_reg_user_mr address length_bytes access_flags mapping\n",
            "mlx5_core:mlx5_cmd_exec opcode status syndrome\n",
            "irdma:irdma_handle_cqp_op opcode status syndrome\n",
            "mlx5_ib:mlx5_ib_handler_MLX5_IB_METHOD_DEVX_OBJ_CREATE opcode object_type status \
             syndrome\n",
            "mlx5_ib:mlx5_ib_handler_MLX5_IB_METHOD_DEVX_OBJ_MODIFY opcode object_type status \
             syndrome\n",
            "mlx5_ib:mlx5_ib_handler_MLX5_IB_METHOD_DEVX_UMEM_REG address length_bytes \
             access_flags mapping dmabuf_fd dmabuf_offset_bytes\n",
        ] {
            ensure!(
                text.contains(needed),
                "{}: no {needed}{text}",
                image.release
            );
        }
        // The same on both processors.
        insta::assert_snapshot!(format!("layouts_{}", kernel.series()), text);
    }
    Ok(())
}

#[test]
fn records_tell_the_same_on_x86() -> Result<()> {
    on(Machine::Amd64)
}

#[test]
fn records_tell_the_same_on_arm64() -> Result<()> {
    on(Machine::Arm64)
}
