//! The verbs program makes the failures it is asked for, on every kernel. No tracer
//! is involved: this is what the end-to-end tests stand on.

use anyhow::{Context, Result};
use rdmesh_guest::Exec;
use rdmesh_lab::host::{Host, HostPlan};
use rdmesh_lab::kernels::Kernel;
use rdmesh_lab::progress::Progress;
use rdmesh_lab::verbs::{Report, Verbs};
use std::collections::BTreeMap;
use std::time::Duration;

const EFAULT: i32 = 14;
const ENOMEM: i32 = 12;
const EINVAL: i32 = 22;
const ENODATA: i32 = 61;
const EOPNOTSUPP: i32 = 95;

const LIMIT: Duration = Duration::from_secs(120);

async fn report(host: &Host, verbs: Verbs) -> Result<Report> {
    let exit = host.run(verbs.exec(), LIMIT).await?;
    Report::parse(&exit).with_context(|| host.serial_tail())
}

async fn every_scenario(kernel: Kernel) -> Result<()> {
    let host = Host::boot("gpu-01", kernel, &HostPlan::default(), Progress::Quiet).await?;
    println!(
        "kernel {} ({})",
        host.kernel_version(),
        host.ready().release
    );
    assert_eq!(host.ready().devices, ["rxe0"]);

    for (scenario, errno) in [
        ("reg-mr-efault", EFAULT),
        ("modify-qp-bad-transition", EINVAL),
        ("create-qp-over-limits", EINVAL),
        ("create-cq-over-limits", EINVAL),
        ("create-ah-empty-gid", ENODATA),
        ("write-reg-mr-efault", EFAULT),
        ("write-modify-qp-einval", EINVAL),
        ("reg-dmabuf-mr", EOPNOTSUPP),
    ] {
        let seen = report(&host, Verbs::new(scenario).count(3)).await?;
        assert_eq!(
            (seen.calls, seen.failures),
            (3, BTreeMap::from([(errno, 3)])),
            "{scenario}"
        );
    }

    let limited = Exec {
        uid: Some(1000),
        gid: Some(1000),
        memlock_bytes: Some(64 * 1024),
        ..Verbs::new("reg-mr-memlock").exec()
    };
    let exit = host.run(limited, LIMIT).await?;
    assert_eq!(
        Report::parse(&exit)?.failures,
        BTreeMap::from([(ENOMEM, 1)])
    );

    let storm = report(&host, Verbs::new("storm").count(20_001).threads(4)).await?;
    assert_eq!(
        (storm.calls, storm.failures),
        (20_001, BTreeMap::from([(EFAULT, 20_001)]))
    );

    let well = report(&host, Verbs::new("ok").count(1_000)).await?;
    assert_eq!((well.calls, well.failures), (1_004, BTreeMap::new()));

    let exit = host.run(Verbs::new("fail-and-exit").exec(), LIMIT).await?;
    assert_eq!((exit.code, exit.output_bytes), (Some(EFAULT), 0));

    let exit = host.run(Verbs::new("rank").exec(), LIMIT).await?;
    assert_eq!(exit.code, Some(1));
    assert_eq!(
        Report::parse(&exit)?.failures,
        BTreeMap::from([(EFAULT, 1)])
    );

    let exit = host
        .run(Verbs::new("ok").arg("--device").arg("mlx5_9").exec(), LIMIT)
        .await?;
    assert_eq!(exit.code, Some(2));
    assert!(exit.stderr.to_lossy().contains("no RDMA device mlx5_9"));
    host.power_off().await
}

#[tokio::test]
async fn failures_are_made_on_6_1() -> Result<()> {
    every_scenario(Kernel::V6_1).await
}

#[tokio::test]
async fn failures_are_made_on_6_12() -> Result<()> {
    every_scenario(Kernel::V6_12).await
}

#[tokio::test]
async fn failures_are_made_on_7_3() -> Result<()> {
    every_scenario(Kernel::V7_3).await
}
