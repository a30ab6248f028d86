//! Shares of a made fleet year: the proportions that went in come out, in SQL and here.

use rdmesh_store::jobs::{End, Placement};
use rdmesh_store::statistics::{Ended, Share};
use rdmesh_store::verdicts::{Counted, StoredVerdict};
use time::{Duration, OffsetDateTime};

use crate::made::{Database, NOW, attempt, start};

/// Attempts of one kind.
struct Kind {
    attempts: u32,
    hours: i64,
    told_by: &'static str,
    class: &'static str,
    log_class: &'static str,
    coverage: &'static str,
    misattributed: bool,
}

const fn kind(attempts: u32, hours: i64, told_by: &'static str, class: &'static str) -> Kind {
    Kind {
        attempts,
        hours,
        told_by,
        class,
        log_class: "",
        coverage: "",
        misattributed: false,
    }
}

const GPUS: i64 = 8;

/// What goes in: 480 attempts, each of 8 GPUs. Of those whose failing call the kernel
/// shows, and which have a log, 90 of 375 are misattributed.
fn year() -> Vec<Kind> {
    vec![
        Kind {
            log_class: "network",
            misattributed: true,
            ..kind(90, 10, "kernel", "driver")
        },
        Kind {
            log_class: "syscall",
            coverage: "covered",
            ..kind(255, 6, "kernel", "application_arguments")
        },
        Kind {
            log_class: "network",
            ..kind(30, 4, "kernel", "reachability")
        },
        kind(25, 2, "kernel", "firmware"),
        Kind {
            log_class: "syscall",
            coverage: "no_hook",
            ..kind(15, 2, "log", "syscall")
        },
        Kind {
            log_class: "cannot_tell",
            coverage: "cleanup",
            ..kind(20, 9, "log", "cleanup")
        },
        Kind {
            log_class: "cannot_tell",
            coverage: "read_only",
            ..kind(5, 9, "log", "read_only")
        },
        kind(30, 1, "nothing", "cannot_tell"),
        kind(10, 3, "co_signal", "network"),
    ]
}

/// Of the attempts with a failing call every 25th has another signal.
const WITH_SIGNAL: u32 = 25;

async fn put(db: &Database, number: u32, kind: &Kind) {
    let job = number.to_string();
    // Spread over a year before `NOW`.
    let ended_at = NOW - Duration::minutes(i64::from(number) * 365 * 24 * 60 / 500);
    let mut begin = start(&job, 0, Some(ended_at - Duration::hours(kind.hours)), &[]);
    begin.placements = vec![Placement {
        host: format!("gpu-{:02}", number % 40),
        ranks: Vec::new(),
        devices: Vec::new(),
        gpus: (0..GPUS).map(|gpu| gpu.to_string()).collect(),
        virtual_functions: Vec::new(),
    }];
    db.store.start_job(&begin, ended_at).await.unwrap();
    end(db, &job, 4, ended_at).await;
    let silent = kind.told_by != "kernel" || !number.is_multiple_of(WITH_SIGNAL);
    let verdict = StoredVerdict {
        class: kind.class.into(),
        counted: Counted {
            log_class: kind.log_class.into(),
            log_coverage: kind.coverage.into(),
            misattributed: kind.misattributed,
            co_signals: i64::from(!silent),
            told_by: kind.told_by.into(),
            lost_class: kind.class.into(),
            ..Counted::default()
        },
        ..StoredVerdict::default()
    };
    db.store
        .keep_verdict(&attempt(&job, 0), &verdict, ended_at)
        .await
        .unwrap();
}

async fn end(db: &Database, job: &str, state: i16, ended_at: OffsetDateTime) {
    let end = End {
        attempt: attempt(job, 0),
        state,
        ended_at: Some(ended_at),
        exit_code: Some(1),
        exit_reason: String::new(),
    };
    db.store.end_job(&end, ended_at).await.unwrap();
}

async fn fleet_year() -> Database {
    let db = Database::new().await;
    let mut number = 0;
    for kind in year() {
        for _ in 0..kind.attempts {
            number += 1;
            put(&db, number, &kind).await;
        }
    }
    db
}

/// Attempts and GPU hours of the kinds that fit.
fn went_in(fits: impl Fn(&Kind) -> bool) -> (i64, f64) {
    let kinds = year();
    let fitting = kinds.iter().filter(|kind| fits(kind));
    fitting.fold((0, 0.0), |(attempts, hours), kind| {
        let of_kind =
            f64::from(kind.attempts) * f64::from(i32::try_from(kind.hours * GPUS).unwrap());
        (attempts + i64::from(kind.attempts), hours + of_kind)
    })
}

fn close(share: Option<f64>, part: f64, whole: f64) -> bool {
    share.is_some_and(|share| (share - part / whole).abs() < 1e-12)
}

fn holds(share: Share, part: (i64, f64), whole: (i64, f64)) -> bool {
    share.attempts == part.0
        && (share.gpu_hours - part.1).abs() < 1e-9
        && close(share.of_attempts, part.0 as f64, whole.0 as f64)
        && close(share.of_gpu_hours, part.1, whole.1)
        && share.unmeasured == 0
}

const EVER: Ended = Ended {
    from: None,
    to: None,
};

#[tokio::test]
async fn a_fleet_year_gives_back_the_proportions_that_went_in() {
    let db = fleet_year().await;
    let by_kernel = |kind: &Kind| kind.told_by == "kernel";

    let rows = db.store.misattribution(EVER).await.unwrap();
    let whole = went_in(|kind| by_kernel(kind) && !kind.log_class.is_empty());
    let wrongly = went_in(|kind| kind.misattributed);
    assert!(rows[0].misattributed && rows[0].filed_as == "network");
    assert!(holds(rows[0].share, wrongly, whole), "{rows:?}");
    let no_log = rows.last().unwrap();
    assert_eq!(
        (no_log.filed_as.as_str(), no_log.share.of_attempts),
        ("", None)
    );
    assert_eq!(no_log.share.attempts, 25);

    let rows = db.store.coverage(EVER).await.unwrap();
    let counted = ["covered", "no_hook"];
    let whole = went_in(|kind| counted.contains(&kind.coverage));
    for row in &rows {
        let part = went_in(|kind| kind.coverage == row.coverage);
        if row.excluded {
            let nothing = (part.0, 0.0, None, None);
            let share = row.share;
            assert_eq!(
                (
                    share.attempts,
                    share.gpu_hours,
                    share.of_attempts,
                    share.of_gpu_hours
                ),
                nothing
            );
        } else {
            assert!(holds(row.share, part, whole), "{row:?}");
        }
    }
    let reasons: Vec<&str> = rows.iter().map(|row| row.coverage.as_str()).collect();
    assert_eq!(reasons, ["covered", "no_hook", "cleanup", "read_only"]);

    let rows = db.store.silent(EVER).await.unwrap();
    // The first 400 attempts are the kernel's; every 25th of them has a signal.
    assert_eq!((rows[0].silent, rows[0].share.attempts), (true, 384));
    assert!(close(rows[0].share.of_attempts, 0.96, 1.0), "{rows:?}");
    assert_eq!(rows[1].share.attempts, 16);

    let rows = db.store.lost_hours(EVER).await.unwrap();
    let excluded = |kind: &Kind| ["cleanup", "read_only"].contains(&kind.class);
    let all = went_in(|_| true).0;
    let hours = went_in(|kind| !excluded(kind)).1;
    assert_eq!(rows.iter().map(|row| row.share.attempts).sum::<i64>(), all);
    for row in &rows {
        let (attempts, had) =
            went_in(|kind| kind.class == row.class && kind.told_by == row.told_by);
        assert_eq!(
            row.excluded,
            ["cleanup", "read_only"].contains(&row.class.as_str())
        );
        let carried = if row.excluded { 0.0 } else { had };
        assert!(
            holds(row.share, (attempts, carried), (all, hours)),
            "{row:?}"
        );
        let coverage = match row.told_by.as_str() {
            "kernel" => "covered",
            "log" if row.class == "syscall" => "no_hook",
            "log" => row.class.as_str(),
            _ => "",
        };
        assert_eq!(row.coverage, coverage);
    }
    assert_eq!(rows[0].class, "application_arguments");
}

#[tokio::test]
async fn sql_has_the_same_numbers_and_a_time_has_its_part() {
    let db = fleet_year().await;
    for view in ["misattribution", "coverage", "silent", "lost_hours"] {
        let all = db.read(&format!("SELECT * FROM rdmesh.{view}"));
        let ever = db.read(&format!(
            "SELECT * FROM rdmesh.{view}_in('-infinity', NULL)"
        ));
        assert!(!all.is_empty() && all == ever, "{view}");
        let counts = |of: &str| -> i64 {
            let sum = db.read(&format!("SELECT sum(attempts) FROM rdmesh.{view}_in({of})"));
            sum.parse().unwrap()
        };
        let middle = "'2026-05-25 00:00+00'";
        let parts = counts(&format!("NULL, {middle}")) + counts(&format!("{middle}, NULL"));
        assert_eq!(parts, counts("NULL, NULL"), "{view}");
    }
    let rows = db.store.coverage(EVER).await.unwrap();
    let in_sql = db.read("SELECT attempts, gpu_hours, of_gpu_hours FROM rdmesh.coverage LIMIT 1");
    let share = rows[0].share;
    assert_eq!(
        in_sql,
        format!(
            "{}|{}|{}",
            share.attempts,
            share.gpu_hours,
            share.of_gpu_hours.unwrap()
        )
    );
}

#[tokio::test]
async fn attempts_are_counted_when_they_ended_badly_and_hours_where_they_are_known() {
    let db = Database::new().await;
    let told = kind(1, 2, "kernel", "driver");
    put(&db, 1, &told).await;
    // Cancelled with a cause counts, without one it does not, and a success never does.
    put(&db, 2, &told).await;
    end(&db, "2", 5, NOW).await;
    put(&db, 3, &kind(1, 2, "nothing", "cannot_tell")).await;
    end(&db, "3", 5, NOW).await;
    put(&db, 4, &told).await;
    end(&db, "4", 3, NOW).await;
    // Nobody said where it ran.
    put(&db, 5, &told).await;
    db.sql("DELETE FROM rdmesh_store.placements WHERE job_id = '5'");
    // Nobody looked at it yet.
    put(&db, 6, &told).await;
    db.sql("DELETE FROM rdmesh_store.verdicts WHERE job_id = '6'");
    // Ranks stand for GPUs that nobody told.
    put(&db, 7, &told).await;
    db.sql("UPDATE rdmesh_store.placements SET gpus = '{}', ranks = '{0,1}' WHERE job_id = '7'");
    // Its verdict is from before anything was counted.
    put(&db, 9, &told).await;
    db.sql("UPDATE rdmesh_store.verdicts SET told_by = '' WHERE job_id = '9'");
    // It ended before it started.
    put(&db, 8, &told).await;
    db.sql("UPDATE rdmesh_store.attempts SET started_at = ended_at + interval '1 h' WHERE job_id = '8'");
    assert_eq!(
        db.read(
            "SELECT job_id, gpus, round(gpu_hours, 1), diagnosed FROM rdmesh.judged_attempts
             WHERE job_id <> '2' ORDER BY job_id"
        ),
        "1|8|16.0|t\n5|||t\n6|8|16.0|f\n7|2|4.0|t\n8|8||t\n9|8|16.0|f"
    );
    assert_eq!(
        db.read("SELECT string_agg(job_id, ',' ORDER BY job_id) FROM rdmesh.judged_attempts"),
        "1,2,5,6,7,8,9"
    );
    assert_eq!(db.store.undiagnosed_in(EVER).await.unwrap(), 2);
    let lost = db.store.lost_hours(EVER).await.unwrap();
    assert_eq!(
        (lost.len(), lost[0].share.attempts, lost[0].share.unmeasured),
        (1, 5, 2)
    );
}
