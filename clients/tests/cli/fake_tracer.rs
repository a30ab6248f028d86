//! The fake as a tracer: one baseline, one failing call; it lets mlx5_ib go and takes it
//! back, and knows no other module.

use rdmesh_proto::tracer::v1 as wire;
use rdmesh_proto::tracer::v1::tracer_service_server::TracerService;
use rdmesh_proto::tracer::v1::{diff_baseline_response, record_baseline_response};
use tokio_stream::{Iter, Pending};
use tonic::{Request, Response, Status};

use crate::fake::{Answer, Service};

type Events<T> = Iter<std::vec::IntoIter<Result<T, Status>>>;

fn progress(phase: wire::WindowPhase) -> wire::WindowProgress {
    wire::WindowProgress {
        phase: phase.into(),
        driver: "rdma_rxe".to_owned(),
        functions: 3,
        good_calls: 2,
        failed_calls: 1,
        kinds: 1,
        ..wire::WindowProgress::default()
    }
}

fn baseline(verb: &str) -> wire::Baseline {
    wire::Baseline {
        kernel_release: "6.12".to_owned(),
        driver: "rdma_rxe".to_owned(),
        verb: verb.to_owned(),
        recorded_at: None,
        good_calls: 2,
        functions: 3,
        nodes: vec![wire::BaselineNode {
            depth: 0,
            function: "ib_uverbs_reg_mr".to_owned(),
            calls: 2,
            returns: Vec::new(),
        }],
    }
}

fn fork(path: &[&str]) -> wire::Fork {
    wire::Fork {
        verb: "reg_mr".to_owned(),
        tgid: 5,
        call_errno: 14,
        call_errno_name: "EFAULT".to_owned(),
        path: path.iter().map(|&f| f.to_owned()).collect(),
        errno: 14,
        errno_name: "EFAULT".to_owned(),
        good_calls: 2,
        ..wire::Fork::default()
    }
}

fn report(attached: u32) -> Option<wire::ProbeReport> {
    Some(wire::ProbeReport {
        logical_attached: attached,
        logical_total: 13,
        ..wire::ProbeReport::default()
    })
}

fn known(module: &str) -> Result<(), Status> {
    match module {
        "" | "mlx5_ib" => Ok(()),
        "stuck" => Err(Status::failed_precondition("the kernel refused it")),
        _ => Err(Status::not_found(format!(
            "no probe is in module {module}; there are some in mlx5_ib"
        ))),
    }
}

#[tonic::async_trait]
impl TracerService for Service {
    type WatchFailuresStream = Pending<Result<wire::WatchFailuresResponse, Status>>;
    type RecordBaselineStream = Events<wire::RecordBaselineResponse>;
    type DiffBaselineStream = Events<wire::DiffBaselineResponse>;

    async fn record_baseline(
        &self,
        request: Request<wire::RecordBaselineRequest>,
    ) -> Answer<Self::RecordBaselineStream> {
        use record_baseline_response::Event;
        drop(self.enter()?);
        let verbs = &request.get_ref().verbs;
        if verbs.iter().any(|verb| verb == "reg_mrs") {
            return Err(Status::invalid_argument(
                "no entry point serves reg_mrs here",
            ));
        }
        let mut events = vec![
            Event::Progress(progress(wire::WindowPhase::Finding)),
            Event::Progress(progress(wire::WindowPhase::Watching)),
        ];
        events.extend(verbs.iter().map(|verb| Event::Baseline(baseline(verb))));
        // A window that is cut off ends without its sums.
        if !verbs.iter().any(|verb| verb == "cut") {
            events.push(Event::Progress(progress(wire::WindowPhase::Ended)));
        }
        let events: Vec<_> = events
            .into_iter()
            .map(|event| Ok(wire::RecordBaselineResponse { event: Some(event) }))
            .collect();
        Ok(Response::new(tokio_stream::iter(events)))
    }

    async fn list_baselines(
        &self,
        request: Request<wire::ListBaselinesRequest>,
    ) -> Answer<wire::ListBaselinesResponse> {
        drop(self.enter()?);
        let verb = &request.get_ref().verb;
        let has = verb.is_empty() || verb == "reg_mr";
        Ok(Response::new(wire::ListBaselinesResponse {
            baselines: has.then(|| baseline("reg_mr")).into_iter().collect(),
            damaged: Vec::new(),
        }))
    }

    async fn diff_baseline(
        &self,
        request: Request<wire::DiffBaselineRequest>,
    ) -> Answer<Self::DiffBaselineStream> {
        use diff_baseline_response::Event;
        drop(self.enter()?);
        let path: &[&str] = match request.get_ref().verbs.as_slice() {
            [verb] if verb == "nowhere" => &[],
            [verb] if verb == "create_cq" => return Err(Status::not_found("no baseline of it")),
            _ => &["ib_uverbs_reg_mr", "ib_umem_get"],
        };
        let events = vec![
            Event::Progress(progress(wire::WindowPhase::Watching)),
            Event::Fork(fork(path)),
            Event::Progress(progress(wire::WindowPhase::Ended)),
        ];
        let events: Vec<_> = events
            .into_iter()
            .map(|event| Ok(wire::DiffBaselineResponse { event: Some(event) }))
            .collect();
        Ok(Response::new(tokio_stream::iter(events)))
    }

    async fn get_probe_report(
        &self,
        _request: Request<wire::GetProbeReportRequest>,
    ) -> Answer<wire::GetProbeReportResponse> {
        Err(Status::unimplemented("not part of the fake"))
    }

    async fn detach_probes(
        &self,
        request: Request<wire::DetachProbesRequest>,
    ) -> Answer<wire::DetachProbesResponse> {
        let _state = self.enter()?;
        let module = request.into_inner().module;
        known(&module)?;
        let all = module.is_empty();
        Ok(Response::new(wire::DetachProbesResponse {
            detached: if all { 40 } else { 7 },
            report: report(if all { 0 } else { 8 }),
        }))
    }

    async fn attach_probes(
        &self,
        request: Request<wire::AttachProbesRequest>,
    ) -> Answer<wire::AttachProbesResponse> {
        let _state = self.enter()?;
        known(&request.into_inner().module)?;
        Ok(Response::new(wire::AttachProbesResponse {
            attached: 1,
            report: report(13),
        }))
    }

    async fn watch_failures(
        &self,
        _request: Request<wire::WatchFailuresRequest>,
    ) -> Answer<Self::WatchFailuresStream> {
        Err(Status::unimplemented("not part of the fake"))
    }
}
