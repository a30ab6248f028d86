//! Makes the Rust declarations of libibverbs and of the kernel's old command ABI
//! from the headers of this machine.

use std::path::PathBuf;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=src/verbs.h");
    println!("cargo::rustc-link-lib=ibverbs");
    let bindings = bindgen::Builder::default()
        .header("src/verbs.h")
        .allowlist_function("ibv_(get|free)_device_list|ibv_get_device_name")
        .allowlist_function("ibv_(open|close|query)_device|ibv_query_gid")
        .allowlist_function("ibv_(alloc|dealloc)_pd|ibv_(reg|dereg)_mr")
        .allowlist_function("ibv_(create|destroy)_(cq|qp|ah)|ibv_modify_qp")
        .allowlist_type("ib_uverbs_(cmd_hdr|reg_mr|reg_mr_resp|modify_qp)")
        .allowlist_type("ib_uverbs_(ioctl_hdr|attr)|uverbs_(default_objects|methods_mr)")
        .allowlist_type("uverbs_attrs_reg_dmabuf_mr_cmd_attr_ids|rdma_driver_id")
        .allowlist_var("UVERBS_ATTR_F_MANDATORY")
        .allowlist_type("ib_uverbs_write_cmds|ibv_(access_flags|qp_attr_mask)")
        .prepend_enum_name(false)
        .derive_default(true)
        .generate_comments(false)
        .generate()?;
    let out = PathBuf::from(std::env::var("OUT_DIR")?);
    bindings.write_to_file(out.join("verbs.rs"))?;
    Ok(())
}
