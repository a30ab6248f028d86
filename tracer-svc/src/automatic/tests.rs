//! The plan in virtual time; the keeper with a played kernel and a played collector over a
//! real socket.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rdmesh_proto::collector::v1::baseline_service_server::{
    BaselineService, BaselineServiceServer,
};
use rdmesh_proto::collector::v1::lease_window_response::Answer as Leased;
use rdmesh_proto::collector::v1::{
    FinishWindowRequest, FinishWindowResponse, LeaseRefusal, LeaseRefusalReason,
    LeaseWindowRequest, LeaseWindowResponse, WindowLease, WindowPurpose,
};
use rdmesh_proto::common::v1::Verb;
use rdmesh_proto::tracer::v1::{Baseline, BaselineNode, ChainStep, ReturnCount};
use rdmesh_services::server::{Server, ServerConfig, bind};
use rdmesh_services::shutdown::{Trigger, channel};
use rdmesh_services::uplink::{CollectorAddress, CollectorDialer};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tonic::{Request, Response, Status};

use super::*;
use crate::window::played::{Played, RELEASE};
use crate::window::{Shelf, Windows};

/// No test waits longer for something that should happen at once.
const DEADLINE: Duration = Duration::from_secs(30);

const MINUTE: Duration = Duration::from_secs(60);

fn failing(errno: u32) -> Failing {
    let step = |function: &str| ChainStep {
        function: function.to_owned(),
        module: "ib_uverbs".to_owned(),
        errno,
        ..ChainStep::default()
    };
    Failing {
        driver: "rdma_rxe".to_owned(),
        verb: "reg_mr".to_owned(),
        number: Verb::RegMr,
        chain: vec![step("pin"), step("ib_uverbs_reg_mr")],
    }
}

fn at(minutes: u32) -> Duration {
    MINUTE * minutes
}

fn missing(verbs: &[&str]) -> Vec<(String, Vec<String>)> {
    let verbs = verbs.iter().map(|&verb| verb.to_owned()).collect();
    vec![("rdma_rxe".to_owned(), verbs)]
}

#[test]
fn a_kind_is_asked_for_once_and_again_when_it_is_seen_after_the_wait() {
    let mut plan = Plan::default();
    plan.saw(failing(14), at(0));
    plan.saw(failing(14), at(0));
    let wish = Wish::Capture(failing(14));
    assert_eq!(plan.next(&[], at(0)), Some(wish.clone()));
    assert_eq!(plan.next(&[], at(0)), None);
    plan.answered(&wish, Answer::Later(at(5)), at(0));
    // Seen while it waits: by then it may be over.
    plan.saw(failing(14), at(4));
    assert_eq!(plan.next(&[], at(6)), None);
    plan.saw(failing(14), at(6));
    assert_eq!(plan.next(&[], at(6)), Some(wish.clone()));
    plan.answered(&wish, Answer::Done, at(6));
    plan.saw(failing(14), at(100));
    assert_eq!(plan.next(&[], at(100)), None);
}

#[test]
fn nothing_is_asked_while_the_collector_is_away_or_off() {
    let mut plan = Plan::default();
    plan.saw(failing(14), at(0));
    let wish = plan.next(&[], at(0)).unwrap();
    plan.answered(&wish, Answer::Quiet(at(10)), at(0));
    plan.saw(failing(12), at(1));
    let drivers = ["rdma_rxe".to_owned()];
    assert!(!plan.may_record(&drivers, at(9)));
    assert_eq!(plan.next(&missing(&["reg_mr"]), at(9)), None);
    assert!(plan.may_record(&drivers, at(10)));
    plan.saw(failing(12), at(10));
    assert_eq!(plan.next(&[], at(10)), Some(Wish::Capture(failing(12))));
}

#[test]
fn failing_calls_come_before_recordings_and_what_they_lack_is_recorded() {
    let mut plan = Plan::default();
    plan.saw(failing(14), at(0));
    let all = missing(&["create_qp", "reg_mr"]);
    let capture = plan.next(&all, at(0)).unwrap();
    assert_eq!(capture, Wish::Capture(failing(14)));
    let rare = Failing {
        verb: "create_ah".to_owned(),
        ..failing(14)
    };
    let record = plan.next(&all, at(0)).unwrap();
    assert!(matches!(&record, Wish::Record { verbs, .. } if verbs.len() == 2));
    plan.answered(&record, Answer::Later(at(60)), at(0));
    assert_eq!(plan.next(&all, at(1)), None);
    // A verb that nobody records unasked, soon.
    plan.answered(&Wish::Capture(rare), Answer::NoBaseline(at(10)), at(1));
    assert!(plan.worth("rdma_rxe").contains(&"create_ah".to_owned()));
    assert!(matches!(plan.next(&all, at(1)), Some(Wish::Record { .. })));
    // A recording without a result forgets it.
    plan.answered(&record, Answer::Nothing, at(1));
    assert_eq!(plan.worth("rdma_rxe").len(), 4);
    assert_eq!(plan.next(&missing(&[]), at(1000)), None);
}

#[test]
fn kinds_are_bounded_and_those_that_are_over_make_room() {
    let mut plan = Plan::default();
    for errno in 1..=300 {
        plan.saw(failing(errno), at(0));
    }
    assert_eq!(plan.left_out(), 300 - 256);
    for errno in 1..=256 {
        let wish = plan.next(&[], at(0)).unwrap();
        assert_eq!(wish, Wish::Capture(failing(errno)));
        plan.answered(&wish, Answer::Later(at(1)), at(0));
    }
    plan.saw(failing(300), at(2));
    assert_eq!(plan.next(&[], at(2)), Some(Wish::Capture(failing(300))));
}

/// A collector that answers as it is told, and keeps what it is asked and given.
#[derive(Clone)]
struct Collector {
    answers: Arc<Mutex<VecDeque<Leased>>>,
    asked: mpsc::UnboundedSender<LeaseWindowRequest>,
    handed_in: mpsc::UnboundedSender<FinishWindowRequest>,
    /// Answers to FinishWindow that fail before one is taken.
    failures: Arc<Mutex<u32>>,
}

#[tonic::async_trait]
impl BaselineService for Collector {
    async fn lease_window(
        &self,
        request: Request<LeaseWindowRequest>,
    ) -> Result<Response<LeaseWindowResponse>, Status> {
        let answer = self.answers.lock().unwrap().pop_front();
        let answer = answer.unwrap_or(refusal(LeaseRefusalReason::Off));
        self.asked.send(request.into_inner()).unwrap();
        Ok(Response::new(LeaseWindowResponse {
            answer: Some(answer),
        }))
    }

    async fn finish_window(
        &self,
        request: Request<FinishWindowRequest>,
    ) -> Result<Response<FinishWindowResponse>, Status> {
        {
            let mut failures = self.failures.lock().unwrap();
            if *failures > 0 {
                *failures -= 1;
                return Err(Status::invalid_argument("not today"));
            }
        }
        self.handed_in.send(request.into_inner()).unwrap();
        Ok(Response::new(FinishWindowResponse {}))
    }
}

fn refusal(reason: LeaseRefusalReason) -> Leased {
    Leased::Refusal(LeaseRefusal {
        reason: reason.into(),
        message: String::new(),
        again_after_seconds: 3_600,
    })
}

fn lease(id: &str, baseline: Option<Baseline>) -> Leased {
    Leased::Lease(WindowLease {
        lease_id: id.to_owned(),
        seconds: 1,
        verbs: vec!["reg_mr".to_owned()],
        baseline_host: baseline
            .as_ref()
            .map_or_else(String::new, |_| "gpu-07".to_owned()),
        baseline,
        ..WindowLease::default()
    })
}

/// Good calls as another host recorded them.
fn of_fleet() -> Baseline {
    let node = |depth, function: &str| BaselineNode {
        depth,
        function: function.to_owned(),
        calls: 9,
        returns: vec![ReturnCount {
            outcome: "good".to_owned(),
            count: 9,
        }],
    };
    Baseline {
        kernel_release: RELEASE.to_owned(),
        driver: "rdma_rxe".to_owned(),
        verb: "reg_mr".to_owned(),
        recorded_at: Some(prost_types::Timestamp {
            seconds: 1_800_000_000,
            nanos: 0,
        }),
        good_calls: 9,
        functions: 3,
        nodes: vec![node(0, "ib_uverbs_reg_mr"), node(1, "pin")],
    }
}

/// A keeper that runs, and both of its ends.
struct Running {
    field: Played,
    offers: Offers,
    windows: Windows,
    collector: Collector,
    asked: mpsc::UnboundedReceiver<LeaseWindowRequest>,
    handed_in: mpsc::UnboundedReceiver<FinishWindowRequest>,
    /// Probes are off on request.
    let_go: Arc<AtomicBool>,
    _ends: [Trigger; 2],
}

impl Running {
    async fn start(directory: &Path, answers: Vec<Leased>, first: Duration) -> Self {
        let (asked, asked_out) = mpsc::unbounded_channel();
        let (handed_in, handed_in_out) = mpsc::unbounded_channel();
        let collector = Collector {
            answers: Arc::new(Mutex::new(answers.into())),
            asked,
            handed_in,
            failures: Arc::default(),
        };
        let mut server = Server::new();
        server.add(BaselineServiceServer::new(collector.clone()));
        let listener = bind(&ServerConfig::at(0)).await.unwrap();
        let address = listener.local_address().unwrap().to_string();
        let (end_server, server_ending) = channel();
        let end = async move { server_ending.requested().await };
        tokio::spawn(async move { server.serve(listener, end, DEADLINE).await });
        let field = Played::default();
        let (end_keeper, ending) = channel();
        let windows = Windows::new(field.clone(), Shelf::at(directory), ending.clone());
        let (offers, sightings) = offers();
        let let_go = Arc::new(AtomicBool::new(false));
        let let_go_now = Arc::clone(&let_go);
        let around = Surroundings {
            host: "gpu-01".to_owned(),
            run_id: "run".to_owned(),
            collector: Box::new(CollectorDialer::new(
                address.parse::<CollectorAddress>().unwrap(),
            )),
            drivers: Box::new(move || match let_go_now.load(Ordering::SeqCst) {
                true => Vec::new(),
                false => vec!["rdma_rxe".to_owned()],
            }),
            ending,
            pace: Pace {
                first,
                every: Duration::from_millis(20),
            },
        };
        tokio::spawn(Keeper::new(around, windows.clone(), sightings).run());
        Self {
            field,
            offers,
            windows,
            collector,
            asked: asked_out,
            handed_in: handed_in_out,
            let_go,
            _ends: [end_keeper, end_server],
        }
    }

    async fn asked(&mut self) -> LeaseWindowRequest {
        timeout(DEADLINE, self.asked.recv()).await.unwrap().unwrap()
    }

    /// Until nothing is attached: a window is let go after what it saw is handed in.
    async fn let_go(&self) {
        let nothing = async {
            while self.field.attached() > 0 {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(DEADLINE, nothing).await.unwrap();
    }

    async fn handed_in(&mut self) -> FinishWindowRequest {
        timeout(DEADLINE, self.handed_in.recv())
            .await
            .unwrap()
            .unwrap()
    }
}

#[tokio::test]
async fn a_host_without_a_baseline_records_one_and_hands_it_in() {
    let directory = tempfile::tempdir().unwrap();
    let answers = vec![lease("1", None)];
    let mut running = Running::start(directory.path(), answers, Duration::ZERO).await;
    running.field.call(0, 0);
    let asked = running.asked().await;
    assert_eq!(asked.purpose(), WindowPurpose::Record);
    assert_eq!(
        (asked.host.as_str(), asked.driver.as_str()),
        ("gpu-01", "rdma_rxe")
    );
    assert_eq!(asked.kernel_release, RELEASE);
    assert_eq!(
        asked.verbs,
        ["create_cq", "create_qp", "modify_qp", "reg_mr"]
    );
    let result = running.handed_in().await;
    assert_eq!(
        (result.lease_id.as_str(), result.failure.as_str()),
        ("1", "")
    );
    assert_eq!(result.baselines[0].good_calls, 1);
    assert_eq!(result.baselines[0].nodes.len(), 2);
    // It is kept on the host as well.
    assert_eq!(running.windows.shelf().all().unwrap().trees.len(), 1);
    running.let_go().await;
}

#[tokio::test]
async fn a_new_kind_of_failing_call_is_captured_beside_the_fleets_baseline() {
    let directory = tempfile::tempdir().unwrap();
    let answers = vec![lease("2", Some(of_fleet()))];
    let mut running = Running::start(directory.path(), answers, DEADLINE).await;
    // Another kind comes first, and is not what was waited for.
    running.field.call(12, 12);
    running.field.call(14, 14);
    running.offers.offer(failing(14));
    let asked = running.asked().await;
    assert_eq!(asked.purpose(), WindowPurpose::Capture);
    assert_eq!((asked.has_baseline, asked.verb()), (false, Verb::RegMr));
    assert_eq!(asked.chain, failing(14).chain);
    let result = running.handed_in().await;
    let fork = result.fork.unwrap();
    assert_eq!(
        (fork.call_errno, fork.path.len(), fork.good_calls),
        (14, 2, 9)
    );
    assert_eq!(result.baseline_host, "gpu-07");
    assert_eq!(result.baseline_recorded_at.unwrap().seconds, 1_800_000_000);
    // What another host recorded does not become the host's own.
    assert!(running.windows.shelf().all().unwrap().trees.is_empty());
    running.let_go().await;
    // The next one of the kind asks nothing.
    running.offers.offer(failing(14));
    running.offers.offer(failing(22));
    assert_eq!(running.asked().await.chain, failing(22).chain);
}

#[tokio::test]
async fn a_window_that_sees_nothing_ends_its_lease_and_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let answers = vec![lease("3", Some(of_fleet()))];
    let mut running = Running::start(directory.path(), answers, DEADLINE).await;
    running.offers.offer(failing(14));
    let result = running.handed_in().await;
    assert_eq!((result.lease_id.as_str(), result.fork), ("3", None));
    assert!(
        result.failure.contains("no such call came"),
        "{}",
        result.failure
    );
}

#[tokio::test]
async fn what_cannot_be_used_ends_its_lease_too() {
    let directory = tempfile::tempdir().unwrap();
    let odd = Baseline {
        nodes: Vec::new(),
        ..of_fleet()
    };
    let elsewhere = Baseline {
        kernel_release: "5.10".to_owned(),
        ..of_fleet()
    };
    let answers = vec![
        lease("4", Some(odd)),
        lease("5", Some(elsewhere)),
        lease("6", None),
    ];
    let mut running = Running::start(directory.path(), answers, DEADLINE).await;
    for (errno, reason) in [
        (14, "the collector's baseline is none"),
        (12, "no baseline of reg_mr"),
        (22, "gave no baseline"),
    ] {
        running.offers.offer(failing(errno));
        let result = running.handed_in().await;
        assert!(result.failure.contains(reason), "{}", result.failure);
    }
}

#[tokio::test]
async fn while_a_driver_is_let_go_no_window_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let answers = vec![lease("9", Some(of_fleet()))];
    let mut running = Running::start(directory.path(), answers, DEADLINE).await;
    running.let_go.store(true, Ordering::SeqCst);
    running.offers.offer(failing(14));
    while !running.offers.are_taken() {
        tokio::task::yield_now().await;
    }
    running.let_go.store(false, Ordering::SeqCst);
    running.offers.offer(failing(12));
    // The first one waits for another time.
    assert_eq!(running.asked().await.chain, failing(12).chain);
}

#[tokio::test]
async fn a_window_of_somebody_else_goes_first() {
    let directory = tempfile::tempdir().unwrap();
    let answers = vec![lease("7", Some(of_fleet()))];
    let mut running = Running::start(directory.path(), answers, DEADLINE).await;
    let ask = crate::window::Ask {
        purpose: crate::window::Purpose::Record,
        verbs: vec!["reg_mr".to_owned()],
        driver: None,
        seconds: 300,
        beside: Vec::new(),
    };
    let words = running.windows.open(ask).unwrap();
    running.offers.offer(failing(14));
    let result = running.handed_in().await;
    assert!(result.failure.contains("window open"), "{}", result.failure);
    drop(words);
}

#[tokio::test]
async fn a_collector_that_refuses_is_left_alone_and_tracing_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let answers = vec![lease("8", Some(of_fleet()))];
    let mut running = Running::start(directory.path(), answers, DEADLINE).await;
    *running.collector.failures.lock().unwrap() = 1;
    running.field.call(14, 14);
    running.offers.offer(failing(14));
    running.asked().await;
    // It takes nothing of what was captured; the next kind is asked for all the same.
    running.offers.offer(failing(12));
    assert_eq!(running.asked().await.chain, failing(12).chain);
    // Then it is off: nothing more is asked, and whoever offers is never held up.
    for _ in 0..10_000 {
        running.offers.offer(failing(13));
    }
    running.let_go().await;
    assert!(running.asked.try_recv().is_err());
}

#[tokio::test]
async fn without_a_collector_nothing_happens() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (trigger, ending) = channel();
    let windows = Windows::new(field.clone(), Shelf::at(directory.path()), ending.clone());
    let (offers, sightings) = offers();
    let around = Surroundings {
        host: "gpu-01".to_owned(),
        run_id: "run".to_owned(),
        // Nothing listens there.
        collector: Box::new(CollectorDialer::new(
            "127.0.0.1:1".parse::<CollectorAddress>().unwrap(),
        )),
        drivers: Box::new(|| vec!["rdma_rxe".to_owned()]),
        ending,
        pace: Pace::of_host("gpu-01"),
    };
    let keeper = tokio::spawn(Keeper::new(around, windows, sightings).run());
    offers.offer(failing(14));
    while !offers.are_taken() {
        tokio::task::yield_now().await;
    }
    trigger.fire();
    timeout(DEADLINE, keeper).await.unwrap().unwrap();
    assert_eq!(field.attached(), 0);
}
