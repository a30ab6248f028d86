//! Wires of the fleet, without a shaper that could be dialled: what the store knows,
//! and refusals. Changes are tested in the lab with a real shaper.

use rdmesh_proto::collector::v1::report_request::Item;
use rdmesh_proto::collector::v1::reset_wires_request::Which;
use rdmesh_proto::collector::v1::wire_service_client::WireServiceClient;
use rdmesh_proto::collector::v1::wire_stretch::Of;
use rdmesh_proto::collector::v1::{
    CompareWiresRequest, ListWiresRequest, ResetWiresRequest, SetRateRequest, WatchWiresRequest,
    WireSelector, WireStretch,
};
use rdmesh_proto::common::v1::{AgentKind, TimeRange};
use rdmesh_proto::shaper::v1::WireWindow;
use tonic::Code;
use tonic::transport::Channel;

use crate::made::{Host, attempt, seconds_ago, start};
use crate::running::{Agent, Running};

/// A shaper that nobody answers for, with the windows of the last minute of `w0`.
async fn shaper(collector: &Running, host: &str, hash: &str) -> Agent {
    let mut hello = Host::new(host).hello();
    hello.agent = AgentKind::Shaper.into();
    hello.address = "127.0.0.1:1".into();
    let mut agent = collector.agent(hello).await;
    for window in 1..=12 {
        agent
            .send(window, Item::WireWindow(made(window, hash)))
            .await;
    }
    agent.acknowledged(12).await;
    agent
}

fn made(window: u64, hash: &str) -> WireWindow {
    WireWindow {
        wire: "w0".into(),
        host: "gpu-01".into(),
        virtual_function: "vf0".into(),
        from: Some(seconds_ago(65 - (window - 1) * 5)),
        to: Some(seconds_ago(65 - window * 5)),
        rate_bps: 10_000_000_000,
        configured_rate_bps: 25_000_000_000,
        sent_bits: 1_000,
        engine_version: "1".into(),
        configuration_hash: hash.into(),
        ..WireWindow::default()
    }
}

fn named(shaper: &str, wire: &str) -> Option<WireSelector> {
    Some(WireSelector {
        shaper_host: shaper.into(),
        wire: wire.into(),
        ..WireSelector::default()
    })
}

fn wires(collector: &Running) -> WireServiceClient<Channel> {
    WireServiceClient::new(collector.channel.clone())
}

#[tokio::test]
async fn wires_are_listed_with_jobs_and_what_is_odd() {
    let collector = Running::start().await;
    let _agent = shaper(&collector, "dpu-01", "h").await;
    let job = start("7", 30, &["gpu-01"]);
    collector.jobs().start_job(job).await.unwrap();
    let mut client = wires(&collector);
    let list = client
        .list_wires(ListWiresRequest::default())
        .await
        .unwrap();
    let list = list.into_inner().wires;
    assert_eq!(list.len(), 1);
    let wire = list[0].wire.as_ref().unwrap();
    assert_eq!(
        (wire.rate_bps, wire.host.as_str()),
        (10_000_000_000, "gpu-01")
    );
    assert!(!list[0].live);
    assert_eq!(list[0].attempts[0].job_id, "7");
    assert!(
        list[0].marks[0].contains("does not answer at 127.0.0.1:1"),
        "{:?}",
        list[0].marks
    );
    let stored = ListWiresRequest {
        host: "dpu-01".into(),
        stored_only: true,
        ..ListWiresRequest::default()
    };
    let stored = client.list_wires(stored).await.unwrap().into_inner();
    assert!(
        stored.wires[0].marks.is_empty(),
        "{:?}",
        stored.wires[0].marks
    );

    let watch = client.watch_wires(WatchWiresRequest::default()).await;
    let first = watch
        .unwrap()
        .into_inner()
        .message()
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.shaper_host, "dpu-01");
    assert_eq!(first.window.unwrap().rate_bps, 10_000_000_000);
}

#[tokio::test]
async fn requests_that_cannot_be_done_say_what_to_do() {
    let collector = Running::start().await;
    let mut client = wires(&collector);
    let all = ResetWiresRequest {
        which: Some(Which::All(true)),
        ..ResetWiresRequest::default()
    };
    let nobody = client.reset_wires(all.clone()).await.unwrap_err();
    assert_eq!(nobody.code(), Code::NotFound, "{nobody}");
    let _agents = (
        shaper(&collector, "dpu-01", "h").await,
        shaper(&collector, "dpu-02", "h").await,
    );
    for (wire, code, words) in [
        (None, Code::InvalidArgument, "names no wire"),
        (
            named("a b", "w0"),
            Code::InvalidArgument,
            "wire.shaper_host",
        ),
        (
            named("", "w0"),
            Code::FailedPrecondition,
            "dpu-01/w0 (vf0 of gpu-01)",
        ),
        (named("", "w9"), Code::NotFound, "rdmesh wire list"),
        (named("dpu-09", "w0"), Code::NotFound, "no shaper of dpu-09"),
        (
            named("dpu-01", "w0"),
            Code::Unavailable,
            "nothing was changed",
        ),
        // It may have just started: its shaper is asked.
        (named("dpu-01", "w9"), Code::Unavailable, "127.0.0.1:1"),
    ] {
        let request = SetRateRequest {
            wire,
            rate_bps: 1,
            ..SetRateRequest::default()
        };
        let refused = client.set_rate(request).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(words), "{refused}");
    }
    let refused = client.reset_wires(all).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("dpu-02"), "{refused}");
}

#[tokio::test]
async fn only_what_is_alike_is_compared() {
    let collector = Running::start().await;
    let _agent = shaper(&collector, "dpu-01", "h").await;
    let job = start("7", 50, &["gpu-01"]);
    collector.jobs().start_job(job).await.unwrap();
    let mut client = wires(&collector);
    let of = |of| Some(WireStretch { of: Some(of) });
    let whole = of(Of::Time(TimeRange {
        from: Some(seconds_ago(120)),
        to: None,
    }));
    let request = CompareWiresRequest {
        wire: named("dpu-01", "w0"),
        a: of(Of::Attempt(attempt("7", 0).unwrap())),
        b: whole.clone(),
    };
    let both = client
        .compare_wires(request.clone())
        .await
        .unwrap()
        .into_inner();
    let (a, b) = (both.a.unwrap(), both.b.unwrap());
    assert_eq!(b.windows, 12);
    assert!((8..12).contains(&a.windows), "{a:?}");
    assert_eq!(b.mean_sent_bps, 200);
    let unknown = CompareWiresRequest {
        a: of(Of::Attempt(attempt("8", 0).unwrap())),
        ..request.clone()
    };
    let unknown = client.compare_wires(unknown).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound, "{unknown}");
    let missing = CompareWiresRequest { a: None, ..request };
    let missing = client.compare_wires(missing).await.unwrap_err();
    assert!(missing.message().starts_with("a is missing"), "{missing}");
}
