//! What ports tell the service.

use super::*;

#[test]
fn back_pressure_help_is_counted_and_makes_a_window_invalid() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        service.window(|window| window.invalid.is_empty()).await;
        service.ports.back_pressure_help.store(2, Ordering::Relaxed);
        let window = service.window(|window| !window.invalid.is_empty()).await;
        let causes: Vec<_> = window.invalid().collect();
        assert_eq!(causes, [proto::InvalidCause::BackPressureHelp]);
        service.window(|window| window.invalid.is_empty()).await;
        let report = service.report().await;
        assert_eq!(report.ports[0].back_pressure_help, 2);
        assert_eq!(report.invalid_windows.len(), 1, "the wire that it feeds");
        service.stop().await;
    });
}

#[test]
fn a_port_that_goes_is_told_and_its_return_ends_the_service() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let gone = |is_back| Gone {
            port: "a".to_owned(),
            what: "its interface in0 has gone".to_owned(),
            is_back,
        };
        *service.ports.gone.lock().unwrap() = Some(gone(false));
        let down = i32::from(proto::InvalidCause::DataPathDown);
        let is_down = |window: &proto::WireWindow| window.invalid.contains(&down);
        service.window(is_down).await;
        let outage = service.report().await.outages.pop().unwrap();
        assert!(outage.to.is_none(), "it lasts: {outage:?}");
        for words in ["port a", "in0 has gone", "bring it back"] {
            assert!(outage.cause.contains(words), "{}", outage.cause);
        }
        // Requests are served meanwhile, and kept for the next process.
        service.set(rate("vf0", 5_000_000_000)).await.unwrap();

        *service.ports.gone.lock().unwrap() = Some(gone(true));
        let ended = service.served.await.unwrap().unwrap_err();
        assert!(ended.to_string().contains("port a is back"), "{ended}");

        let mut service = Running::start(config(state.path())).await;
        assert_eq!(service.wire("vf0").await.rate_bps, 5_000_000_000);
        let outages = service.report().await.outages;
        assert_eq!(outages.len(), 1, "{outages:?}");
        assert!(outages[0].to.is_some(), "{outages:?}");
        service.stop().await;
    });
}

#[test]
fn windows_of_a_port_without_a_link_are_marked() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        let is_down = |report: &proto::GetDataPathReportResponse, wire: &str| {
            let mut windows = report.invalid_windows.iter().rev();
            windows.any(|window| {
                window.wire == wire
                    && window
                        .causes()
                        .any(|c| c == proto::InvalidCause::DataPathDown)
            })
        };
        // Port 1 is fed by the first wire and feeds the second.
        service.ports.without_link.lock().unwrap().push(1);
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let report = service.report().await;
            if is_down(&report, "vf0") && is_down(&report, "vf1") {
                assert!(report.outages.is_empty(), "the loop runs: {report:?}");
                break;
            }
            assert!(Instant::now() < deadline, "{report:?}");
            tokio::task::yield_now().await;
        }
        service.stop().await;
    });
}
