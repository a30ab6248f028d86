//! Shares over the attempts that ended badly.

use rdmesh_proto::collector::v1 as wire;
use serde::Serialize;

use super::log::{LogClass, LogCoverage};
use super::{text, wire_enum};

wire_enum! {
    /// By what the class of lost hours is told.
    ToldBy from rdmesh_proto::collector::v1::ToldBy {
        Kernel => "kernel",
        CoSignal => "co_signal",
        Log => "log",
        Nothing => "nothing",
    }
}

/// Attempts, how many GPU hours they had, and both as a share of what is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Share {
    /// Attempts.
    pub attempts: u64,
    /// GPU hours, as far as known.
    pub gpu_hours: f64,
    /// 0 to 1; absent: nothing is counted, or this row is left out of the count.
    pub of_attempts: Option<f64>,
    /// 0 to 1; absent: no hours are known, or this row is left out of the count.
    pub of_gpu_hours: Option<f64>,
    /// Attempts whose GPU hours are not known.
    pub unmeasured: u64,
}

impl From<Option<wire::Share>> for Share {
    fn from(share: Option<wire::Share>) -> Share {
        let share = share.unwrap_or_default();
        Share {
            attempts: share.attempts,
            gpu_hours: share.gpu_hours,
            of_attempts: share.of_attempts,
            of_gpu_hours: share.of_gpu_hours,
            unmeasured: share.unmeasured,
        }
    }
}

/// Attempts whose logs file them under one class.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MisattributionRow {
    /// Absent: no log came.
    pub filed_as: Option<LogClass>,
    /// Filed under the network while the failing call is none of the network's.
    pub misattributed: bool,
    /// Of the attempts with a log.
    #[serde(flatten)]
    pub share: Share,
}

/// Under which class logs file attempts for which the kernel shows the failing call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Misattribution {
    /// The misattributed first.
    pub rows: Vec<MisattributionRow>,
    /// Attempts with a log.
    pub with_log: Share,
    /// Those among them that are filed under the network, wrongly.
    pub misattributed: Share,
    /// Attempts that have no verdict.
    pub undiagnosed: u64,
}

impl From<wire::GetMisattributionResponse> for Misattribution {
    fn from(answer: wire::GetMisattributionResponse) -> Misattribution {
        let row = |row: wire::MisattributionRow| {
            let filed_as = LogClass::from(row.filed_as);
            MisattributionRow {
                filed_as: (filed_as != LogClass::Unspecified).then_some(filed_as),
                misattributed: row.misattributed,
                share: row.share.into(),
            }
        };
        Misattribution {
            rows: answer.rows.into_iter().map(row).collect(),
            with_log: answer.with_log.into(),
            misattributed: answer.misattributed.into(),
            undiagnosed: answer.undiagnosed,
        }
    }
}

/// Attempts whose logs tell a failing call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct CoverageRow {
    /// Whether a probe could show it.
    pub coverage: LogCoverage,
    /// Left out of the shares.
    pub excluded: bool,
    /// Of those that are not excluded.
    #[serde(flatten)]
    pub share: Share,
}

/// Failing calls that logs tell, by whether a probe could show them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Coverage {
    /// The excluded last.
    pub rows: Vec<CoverageRow>,
    /// Without the excluded.
    pub counted: Share,
    /// Those among them that a probe could show.
    pub covered: Share,
    /// Attempts that have no verdict.
    pub undiagnosed: u64,
}

impl From<wire::GetCoverageResponse> for Coverage {
    fn from(answer: wire::GetCoverageResponse) -> Coverage {
        let row = |row: wire::CoverageRow| CoverageRow {
            coverage: row.coverage.into(),
            excluded: row.excluded,
            share: row.share.into(),
        };
        Coverage {
            rows: answer.rows.into_iter().map(row).collect(),
            counted: answer.counted.into(),
            covered: answer.covered.into(),
            undiagnosed: answer.undiagnosed,
        }
    }
}

/// Attempts for which the kernel shows the failing call.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct SilentRow {
    /// Nothing else was seen near it.
    pub silent: bool,
    /// Of all.
    #[serde(flatten)]
    pub share: Share,
}

/// Failing calls near which nothing else was seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Silent {
    /// The silent first.
    pub rows: Vec<SilentRow>,
    /// All for which the kernel shows the failing call.
    pub counted: Share,
    /// The silent among them.
    pub silent: Share,
    /// Attempts that have no verdict.
    pub undiagnosed: u64,
}

impl From<wire::GetSilentFailuresResponse> for Silent {
    fn from(answer: wire::GetSilentFailuresResponse) -> Silent {
        let row = |row: wire::SilentRow| SilentRow {
            silent: row.silent,
            share: row.share.into(),
        };
        Silent {
            rows: answer.rows.into_iter().map(row).collect(),
            counted: answer.counted.into(),
            silent: answer.silent.into(),
            undiagnosed: answer.undiagnosed,
        }
    }
}

/// GPU hours of one class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LostHoursRow {
    /// The verdict's class, or the log's where the log alone tells it.
    pub class: String,
    /// By what it is told.
    pub told_by: ToldBy,
    /// Whether probes showed or could show the failing call; absent: none tells of it.
    pub coverage: Option<LogCoverage>,
    /// Clean-up and read-only calls carry no hours.
    pub excluded: bool,
    /// Of all.
    #[serde(flatten)]
    pub share: Share,
}

/// GPU hours of attempts that ended badly, by class.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LostHours {
    /// The most hours first.
    pub rows: Vec<LostHoursRow>,
    /// All.
    pub counted: Share,
    /// Failing calls that probes showed or could show.
    pub covered: Share,
    /// Excluded ones; their hours are 0.
    pub excluded: Share,
    /// Attempts that have no verdict.
    pub undiagnosed: u64,
}

impl From<wire::GetLostHoursResponse> for LostHours {
    fn from(answer: wire::GetLostHoursResponse) -> LostHours {
        let row = |row: wire::LostHoursRow| {
            let coverage = LogCoverage::from(row.coverage);
            LostHoursRow {
                class: text(row.class).unwrap_or_default(),
                told_by: row.told_by.into(),
                coverage: (coverage != LogCoverage::Unspecified).then_some(coverage),
                excluded: row.excluded,
                share: row.share.into(),
            }
        };
        LostHours {
            rows: answer.rows.into_iter().map(row).collect(),
            counted: answer.counted.into(),
            covered: answer.covered.into(),
            excluded: answer.excluded.into(),
            undiagnosed: answer.undiagnosed,
        }
    }
}
