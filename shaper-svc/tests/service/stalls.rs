//! A poll loop that stands still or fails: hosts are not cut off, and it is told.

use rdmesh_proto::shaper::v1::InvalidCause;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

impl Running {
    fn clock_does(&self, what: u8) {
        self.ports.clock.store(what, Ordering::Relaxed);
    }

    fn around(&self) -> Vec<usize> {
        self.ports.around.lock().unwrap().iter().copied().collect()
    }

    async fn outage(&mut self, lasts: bool) -> proto::Outage {
        let deadline = Instant::now() + DEADLINE;
        loop {
            let last = self.report().await.outages.pop();
            match last {
                Some(outage) if outage.to.is_none() == lasts => return outage,
                _ => assert!(Instant::now() < deadline, "{last:?}"),
            }
        }
    }

    async fn health(&self) -> ServingStatus {
        let endpoint = Channel::from_shared(format!("http://{}", self.address)).unwrap();
        let mut health = HealthClient::new(endpoint.connect().await.unwrap());
        let request = HealthCheckRequest {
            service: "rdmesh.shaper.v1.ShaperService".to_owned(),
        };
        health.check(request).await.unwrap().into_inner().status()
    }
}

fn is_down(window: &proto::WireWindow) -> bool {
    window
        .invalid()
        .any(|cause| cause == InvalidCause::DataPathDown)
}

#[test]
fn a_loop_that_stands_still_is_bypassed_until_it_moves() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        // One wire is bypassed by request, and stays so.
        let bypass = proto::SetBypassRequest {
            wire: "vf1".to_owned(),
            bypass: true,
            ..Default::default()
        };
        service.client.set_bypass(bypass).await.unwrap();
        assert_eq!(service.around(), [1]);

        service.clock_does(STANDS);
        let outage = service.outage(true).await;
        assert!(outage.cause.contains("stands still"), "{outage:?}");
        assert_eq!(service.around(), [0, 1], "the card carries the frames");
        assert_eq!(service.health().await, ServingStatus::NotServing);
        // Nothing comes from the loop, and windows say so.
        let silent = service.window(is_down).await;
        assert_eq!((silent.sent_frames, silent.rate_bps), (0, 0));

        service.clock_does(RUNS);
        let outage = service.outage(false).await;
        assert!(outage.cause.contains("stands still"), "{outage:?}");
        assert_eq!(service.around(), [1]);
        assert_eq!(service.health().await, ServingStatus::Serving);
        service.window(|window| window.invalid.is_empty()).await;
        service.stop().await;
    });
}

#[test]
fn a_loop_that_hangs_ends_the_service_to_be_started_anew() {
    let state = tempfile::tempdir().unwrap();
    let mut config = config(state.path());
    config.stalled_exit_seconds = 2;
    block_on(async {
        let mut service = Running::start(config).await;
        service.clock_does(STANDS);
        service.outage(true).await;
        let ended = tokio::time::timeout(DEADLINE, &mut service.served).await;
        let ended = ended.unwrap().unwrap().unwrap_err();
        assert!(ended.to_string().contains("a driver hangs"), "{ended}");
        assert_eq!(service.around(), [0, 1]);
    });
    let saved = std::fs::read_to_string(state.path().join("state.json")).unwrap();
    assert!(saved.contains("stands still"), "{saved}");
}

#[test]
fn a_loop_that_fails_lets_frames_pass_and_is_told() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let mut service = Running::start(config(state.path())).await;
        service.clock_does(FAILS);
        let outage = service.outage(true).await;
        for words in ["the driver failed", "frames pass unshaped"] {
            assert!(outage.cause.contains(words), "{outage:?}");
        }
        service.window(is_down).await;
        let report = service.report().await;
        assert!(report.fault.contains("the driver failed"), "{report:?}");
        assert_eq!(service.around(), [0, 1]);
        assert_eq!(service.health().await, ServingStatus::NotServing);
        service.stop().await;
    });
}

#[test]
fn a_stop_leaves_the_functions_bypassed() {
    let state = tempfile::tempdir().unwrap();
    block_on(async {
        let service = Running::start(config(state.path())).await;
        let ports = Arc::clone(&service.ports);
        assert!(service.around().is_empty());
        service.stop().await;
        assert_eq!(ports.around.lock().unwrap().len(), 2);
    });
}
