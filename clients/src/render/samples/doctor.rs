//! What `rdmesh doctor` finds.

use rdmesh_client::doctor::{Check, Status, Topic};

use crate::command::doctor::Examination;

/// One check of each kind, one of them hostile.
pub(crate) fn examination() -> Examination {
    let check = |topic, name: &str, status, found: &str, next: Option<&str>| Check {
        topic,
        name: name.to_owned(),
        status,
        found: found.to_owned(),
        next: next.map(str::to_owned),
    };
    let checks = vec![
        check(
            Topic::Kernel,
            "types of the kernel (BTF)",
            Status::Problem,
            "there is no /sys/kernel/btf/vmlinux",
            Some("boot a kernel that is built with CONFIG_DEBUG_INFO_BTF=y"),
        ),
        check(
            Topic::Services,
            "configuration of tracer-svc",
            Status::Problem,
            "tracer-svc: /etc/rdmesh/tracer.toml:7: unknown field\n  `\u{1b}[31mhots`; did you mean \
             `host`?",
            Some("mend /etc/rdmesh/tracer.toml"),
        ),
        check(
            Topic::Limits,
            "memlock of slurmd",
            Status::Warning,
            "8 MiB: what is started from there registers no more with ibv_reg_mr, unless it is root \
             (ENOMEM)",
            Some(
                "`systemctl edit slurmd.service` with LimitMEMLOCK=infinity under [Service], then \
                 restart it: what it starts has its limit",
            ),
        ),
        check(
            Topic::Certificates,
            "certificate of tracer-svc",
            Status::CouldNotLook,
            "/etc/rdmesh/agent-gpu-01.key: Permission denied (os error 13)",
            Some("run `rdmesh doctor` as root"),
        ),
        check(
            Topic::Kernel,
            "kernel version",
            Status::Ok,
            "6.12.48+deb13-amd64 (x86_64)",
            None,
        ),
        check(
            Topic::Time,
            "clock against collector.site.example:7400",
            Status::Ok,
            "not off by more than 2 s",
            None,
        ),
    ];
    Examination::of("gpu-01".to_owned(), super::now(), checks)
}
