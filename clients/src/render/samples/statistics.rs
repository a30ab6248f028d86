//! Shares of a made fleet.

use rdmesh_client::model::statistics::{Coverage, LostHours, Misattribution, Silent};
use rdmesh_proto::collector::v1 as wire;

fn share(attempts: u64, gpu_hours: f64, of: Option<(f64, f64)>) -> Option<wire::Share> {
    Some(wire::Share {
        attempts,
        gpu_hours,
        of_attempts: of.map(|of| of.0),
        of_gpu_hours: of.map(|of| of.1),
        unmeasured: 0,
    })
}

pub(crate) fn misattribution() -> Misattribution {
    let row = |filed_as: wire::LogClass, misattributed, share| wire::MisattributionRow {
        filed_as: filed_as.into(),
        misattributed,
        share,
    };
    wire::GetMisattributionResponse {
        rows: vec![
            row(
                wire::LogClass::Network,
                true,
                share(25, 1_000.0, Some((0.25, 0.4))),
            ),
            row(
                wire::LogClass::Syscall,
                false,
                share(75, 1_500.0, Some((0.75, 0.6))),
            ),
            row(wire::LogClass::Unspecified, false, share(7, 12.0, None)),
        ],
        with_log: share(100, 2_500.0, Some((1.0, 1.0))),
        misattributed: share(25, 1_000.0, Some((0.25, 0.4))),
        undiagnosed: 3,
    }
    .into()
}

pub(crate) fn coverage() -> Coverage {
    let row = |coverage: wire::LogCoverage, excluded, share| wire::CoverageRow {
        coverage: coverage.into(),
        excluded,
        share,
    };
    wire::GetCoverageResponse {
        rows: vec![
            row(
                wire::LogCoverage::Covered,
                false,
                share(90, 900.0, Some((0.9, 0.9))),
            ),
            row(
                wire::LogCoverage::NoHook,
                false,
                share(10, 100.0, Some((0.1, 0.1))),
            ),
            row(wire::LogCoverage::Cleanup, true, share(4, 0.0, None)),
        ],
        counted: share(100, 1_000.0, Some((1.0, 1.0))),
        covered: share(90, 900.0, Some((0.9, 0.9))),
        undiagnosed: 0,
    }
    .into()
}

pub(crate) fn silent() -> Silent {
    let row = |silent, share| wire::SilentRow { silent, share };
    wire::GetSilentFailuresResponse {
        rows: vec![
            row(true, share(96, 960.0, Some((0.96, 0.96)))),
            row(false, share(4, 40.0, Some((0.04, 0.04)))),
        ],
        counted: share(100, 1_000.0, Some((1.0, 1.0))),
        silent: share(96, 960.0, Some((0.96, 0.96))),
        undiagnosed: 0,
    }
    .into()
}

pub(crate) fn lost_hours() -> LostHours {
    let row = |class: &str, told_by: wire::ToldBy, coverage: wire::LogCoverage, share| {
        wire::LostHoursRow {
            class: class.into(),
            told_by: told_by.into(),
            coverage: coverage.into(),
            excluded: coverage == wire::LogCoverage::Cleanup,
            share,
        }
    };
    let kernel = wire::ToldBy::Kernel;
    let log = wire::ToldBy::Log;
    let mut unmeasured = share(9, 100.0, Some((0.09, 0.1)));
    if let Some(share) = &mut unmeasured {
        share.unmeasured = 2;
    }
    wire::GetLostHoursResponse {
        rows: vec![
            row(
                "driver",
                kernel,
                wire::LogCoverage::Covered,
                share(81, 900.0, Some((0.81, 0.9))),
            ),
            row(
                "cannot_tell",
                wire::ToldBy::Nothing,
                wire::LogCoverage::Unspecified,
                unmeasured,
            ),
            row(
                "cleanup",
                log,
                wire::LogCoverage::Cleanup,
                share(10, 0.0, Some((0.1, 0.0))),
            ),
        ],
        counted: share(100, 1_000.0, Some((1.0, 1.0))),
        covered: share(81, 900.0, Some((0.81, 0.9))),
        excluded: share(10, 0.0, Some((0.1, 0.0))),
        undiagnosed: 0,
    }
    .into()
}
