//! Requests: what is done, refused, repeated, and kept over a restart.

use super::*;

#[test]
fn rates_are_set_watched_and_reset() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let wire = service.wire("vf0").await;
        assert_eq!(
            (wire.rate_bps, wire.configured_rate_bps),
            (25_000_000_000, 25_000_000_000)
        );
        assert_eq!(
            (wire.host.as_str(), wire.virtual_function.as_str()),
            ("gpu-1", "vf0")
        );

        let only_vf0 = proto::WatchWiresRequest {
            wires: vec!["vf0".to_owned()],
        };
        let mut watching = service
            .client
            .watch_wires(only_vf0)
            .await
            .unwrap()
            .into_inner();
        let wire = service.set(rate("vf0", 10_000_000_000)).await.unwrap();
        assert_eq!(wire.rate_bps, 10_000_000_000);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let window = watching.message().await.unwrap().unwrap().window.unwrap();
            assert_eq!(window.wire, "vf0");
            assert!(!window.engine_version.is_empty() && !window.configuration_hash.is_empty());
            if window.rate_bps == 10_000_000_000 {
                break;
            }
            assert!(Instant::now() < deadline, "no window with the new rate");
        }

        let bypass = proto::SetBypassRequest {
            wire: "vf1".to_owned(),
            bypass: true,
            ..Default::default()
        };
        let wire = service
            .client
            .set_bypass(bypass)
            .await
            .unwrap()
            .into_inner()
            .wire
            .unwrap();
        assert!(wire.bypass && wire.bypass_in_hardware);

        let all = proto::ResetWiresRequest {
            which: Some(proto::reset_wires_request::Which::All(true)),
            ..Default::default()
        };
        let reset = service
            .client
            .reset_wires(all)
            .await
            .unwrap()
            .into_inner()
            .wires;
        assert_eq!(reset.len(), 2);
        assert_eq!(service.wire("vf0").await.rate_bps, 25_000_000_000);

        let report = service.report().await;
        assert_eq!(report.ports.len(), 2);
        assert!(
            report.fault.is_empty() && report.outages.is_empty(),
            "{report:?}"
        );
        // Stops although somebody watches.
        service.stop().await;
    });
    let audit = std::fs::read_to_string(state.path().join("audit.jsonl")).unwrap();
    assert_eq!(audit.lines().count(), 4, "{audit}");
    assert!(
        audit.lines().next().unwrap().contains("127.0.0.1"),
        "{audit}"
    );
}

#[test]
fn wrong_requests_are_refused_with_the_field_and_the_range() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let negative = prost_types::Duration {
            seconds: -1,
            nanos: 0,
        };
        for (request, code, words) in [
            (rate("vf0", 0), Code::InvalidArgument, "rate_bps"),
            (
                rate("vf1", 50_000_000_001),
                Code::InvalidArgument,
                "50000000000",
            ),
            (rate("vf9", 1_000_000_000), Code::NotFound, "vf0, vf1"),
            (
                proto::SetRateRequest {
                    expires_after: Some(negative),
                    ..rate("vf0", 1_000_000_000)
                },
                Code::InvalidArgument,
                "expires_after",
            ),
            (
                proto::SetRateRequest {
                    request_id: "1".into(),
                    ..rate("vf0", 1_000_000_000)
                },
                Code::InvalidArgument,
                "request_id",
            ),
        ] {
            let status = service.set(request).await.unwrap_err();
            assert_eq!(status.code(), code, "{status}");
            assert!(status.message().contains(words), "{status}");
        }
        let nothing = proto::ResetWiresRequest::default();
        let status = service.client.reset_wires(nothing).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let unknown = proto::WatchWiresRequest {
            wires: vec!["vf9".to_owned()],
        };
        let status = service.client.watch_wires(unknown).await.unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
        service.stop().await;
    });
}

#[test]
fn a_restart_keeps_rates_requests_and_the_outage() {
    let state = tempfile::tempdir().unwrap();
    let id = "7b0b7d8e-9a63-4a0e-8f0e-1d1c6c1d0001";
    let once = proto::SetRateRequest {
        request_id: id.into(),
        ..rate("vf0", 5_000_000_000)
    };
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let first = service.set(once.clone()).await.unwrap();
        let again = service.set(once.clone()).await.unwrap();
        assert_eq!(
            first.policy_generation, again.policy_generation,
            "one change"
        );
        let other = proto::SetRateRequest {
            rate_bps: 6_000_000_000,
            ..once.clone()
        };
        assert_eq!(
            service.set(other).await.unwrap_err().code(),
            Code::AlreadyExists
        );
        // Nobody else may use the state meanwhile.
        let second = start::prepare(&config(state.path()), SystemTime::now()).unwrap_err();
        assert!(second.to_string().contains("in use"), "{second}");
        service.stop().await;

        let mut service = Running::start(config(state.path())).await;
        assert_eq!(service.wire("vf0").await.rate_bps, 5_000_000_000);
        let before = service.wire("vf0").await.policy_generation;
        let repeated = service.set(once).await.unwrap();
        assert_eq!(
            repeated.policy_generation, before,
            "done before the restart"
        );
        let report = service.report().await;
        let outage = &report.outages[0];
        assert!(
            outage.cause.contains("stopped") && outage.to.is_some(),
            "{outage:?}"
        );
        // A window of each wire tells of the outage, from the last frame to the first, and
        // those after it are valid.
        let down = i32::from(proto::InvalidCause::DataPathDown);
        let told = &report.invalid_windows;
        let wires: Vec<&str> = told.iter().map(|window| window.wire.as_str()).collect();
        assert_eq!(wires, ["vf0", "vf1"], "{told:?}");
        for window in told {
            assert_eq!(window.causes, [down]);
            assert_eq!(window.from, outage.from);
            let end = seconds(window.to) - seconds(outage.to);
            assert!((0.0..5.0).contains(&end), "{window:?} {outage:?}");
        }
        service.window(|window| window.invalid.is_empty()).await;
        service.stop().await;
    });
}

#[test]
fn a_change_with_an_end_ends_by_itself() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let short = prost_types::Duration {
            seconds: 0,
            nanos: 300_000_000,
        };
        let request = proto::SetRateRequest {
            expires_after: Some(short),
            ..rate("vf0", 1_000_000_000)
        };
        let wire = service.set(request).await.unwrap();
        assert!(wire.expires_at.is_some());
        let mut watching = service
            .client
            .watch_wires(proto::WatchWiresRequest::default())
            .await;
        let watching = watching.as_mut().unwrap().get_mut();
        let deadline = Instant::now() + Duration::from_secs(20);
        // The engine goes back by itself, and the list says so too.
        loop {
            let window = watching.message().await.unwrap().unwrap().window.unwrap();
            if window.wire == "vf0" && window.rate_bps == 25_000_000_000 {
                break;
            }
            assert!(Instant::now() < deadline, "still at {}", window.rate_bps);
        }
        while service.wire("vf0").await.rate_bps != 25_000_000_000 {
            assert!(
                Instant::now() < deadline,
                "the list still shows the old rate"
            );
        }
        assert!(service.wire("vf0").await.expires_at.is_none());
        service.stop().await;
    });
    let audit = std::fs::read_to_string(state.path().join("audit.jsonl")).unwrap();
    assert!(audit.contains("\"expired\""), "{audit}");
}
