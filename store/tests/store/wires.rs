//! Shaped wires: what each window says, the latest state, gaps, jobs, comparisons.

use std::sync::Arc;
use std::time::Duration;

use rdmesh_store::StoreError;
use rdmesh_store::ingest::{Content, Item, RunKey, WireWindow};
use rdmesh_store::query::{Microseconds, Span, WindowPlaces, WireFilter};
use sqlx::types::Uuid;

use crate::made::{Database, NOW, at, hello, item, placed_on, start, wire_window};

fn shaper(host: &str, number: u128) -> Arc<RunKey> {
    Arc::new(RunKey {
        host: host.to_owned(),
        agent: 2,
        run_id: Uuid::from_u128(number),
    })
}

fn sent(run: &Arc<RunKey>, sequence: i64, window: WireWindow) -> Item {
    item(run, sequence, Content::WireWindow(Box::new(window)))
}

#[tokio::test]
async fn every_figure_of_a_window_is_a_column() {
    let db = Database::new().await;
    let run = shaper("dpu-09", 1);
    hello(&db.store, &run).await;
    let window = WireWindow {
        expires_at: Some(at(60)),
        invalid: vec![2, 3],
        windows_given_up: 20,
        ..wire_window(0, 2)
    };
    db.store.ingest(&[sent(&run, 1, window)]).await.unwrap();
    assert_eq!(
        db.read(
            "SELECT host, shaped_host, wire, virtual_function, rate_bps, configured_rate_bps, \
             expires_at - from_at, policy_generation, sent_frames, sent_bits, sent_bps, \
             valid, invalid_causes, gap FROM rdmesh.wire_windows"
        ),
        "dpu-09|gpu-09|w0|vf0|1000000000|25000000000|00:01:00|1|10|12000|6000|f|\
         {poll_gap,retransmits}|"
    );
    assert_eq!(
        db.read(
            "SELECT queue_frames_now, queue_frames_p50, queue_frames_p99, queue_frames_max, \
             waited_ns_p50, waited_ns_p99, waited_ns_max, catch_up_used_ps, lost_ps, ce_marks, \
             imissed, rx_nombuf, tx_not_accepted, full_polls, longest_poll_gap_ns, \
             poll_gap_buckets, repeated_frames, repeated_bytes, windows_given_up \
             FROM rdmesh.wire_windows"
        ),
        "1|2|3|4|5|6|7|8|9|10|11|12|13|14|15|{0,16,17}|18|19|20"
    );
    let agent = &db.store.agents().await.unwrap()[0];
    assert_eq!(agent.missing, 20, "what was given up is missing");
}

#[tokio::test]
async fn the_latest_state_and_gaps_of_a_wire_are_seen() {
    let db = Database::new().await;
    let (first, second) = (shaper("dpu-09", 1), shaper("dpu-09", 2));
    hello(&db.store, &first).await;
    hello(&db.store, &second).await;
    // A gap within a batch, one between runs, and a window that came late.
    let batch = [
        sent(&first, 1, wire_window(0, 5)),
        sent(&first, 2, wire_window(5, 10)),
        sent(&first, 3, wire_window(12, 15)),
    ];
    db.store.ingest(&batch).await.unwrap();
    let gaps = "SELECT wire, to_at - from_at, gap FROM rdmesh.wire_gaps ORDER BY from_at";
    assert_eq!(db.read(gaps), "w0|00:00:02|00:00:02");
    let restarted = WireWindow {
        rate_bps: 10_000_000_000,
        ..wire_window(45, 50)
    };
    db.store
        .ingest(&[sent(&second, 1, restarted)])
        .await
        .unwrap();
    let late = WireWindow {
        rate_bps: 5,
        ..wire_window(15, 20)
    };
    db.store.ingest(&[sent(&first, 4, late)]).await.unwrap();
    // Again: nothing changes.
    db.store.ingest(&batch).await.unwrap();
    assert_eq!(
        db.read(
            "SELECT host, wire, rate_bps, to_at - from_at, gap_to_at - gap_from_at \
             FROM rdmesh.wires"
        ),
        "dpu-09|w0|10000000000|00:00:05|00:00:30"
    );
    assert_eq!(
        db.read(gaps),
        "w0|00:00:02|00:00:02\nw0|00:00:25|00:00:25",
        "the late window made the second gap smaller"
    );
    let all = WireFilter::default();
    let after = async |seen: WindowPlaces, alive_since| {
        let windows = db.store.windows_after(&all, &seen, alive_since, 10).await;
        windows.unwrap().iter().map(|w| w.at).collect::<Vec<_>>()
    };
    // A new watcher gets the latest of each wire that is alive, then what comes after.
    assert_eq!(after(WindowPlaces::new(), at(50)).await, [at(45)]);
    assert!(after(WindowPlaces::new(), at(51)).await.is_empty());
    let place = ("dpu-09".to_owned(), "w0".to_owned());
    let seen = |seconds| WindowPlaces::from([(place.clone(), at(seconds))]);
    assert_eq!(after(seen(5), at(51)).await, [at(12), at(15), at(45)]);
    assert!(after(seen(45), at(0)).await.is_empty());
    let kept = Duration::from_secs(3_600);
    db.store
        .retain(at(50) + Duration::from_secs(10_000), kept)
        .await
        .unwrap();
    assert_eq!(db.read("SELECT count(*) FROM rdmesh.wires"), "0");
}

#[tokio::test]
async fn windows_join_the_attempts_that_used_the_wire() {
    let db = Database::new().await;
    let run = shaper("dpu-09", 1);
    hello(&db.store, &run).await;
    let on = |wire: &str, function: &str, from, to| WireWindow {
        wire: wire.into(),
        virtual_function: function.into(),
        ..wire_window(from, to)
    };
    db.store
        .ingest(&[
            sent(&run, 1, on("w0", "vf0", 0, 5)),
            sent(&run, 2, on("w0", "vf0", 5, 10)),
            sent(&run, 3, on("w1", "vf1", 5, 10)),
            sent(&run, 4, on("w0", "vf0", 100, 105)),
        ])
        .await
        .unwrap();
    // One names its function, the other names none.
    let mut named = start("7", 0, Some(at(3)), &[]);
    named.placements = vec![placed_on("gpu-09")];
    named.placements[0].virtual_functions = vec!["vf0".into()];
    let host = start("8", 0, Some(at(5)), &["gpu-09"]);
    db.store.start_job(&named, NOW).await.unwrap();
    db.store.start_job(&host, NOW).await.unwrap();
    let list = db.store.wires(&WireFilter::default(), at(50), 0, 10).await;
    let list = list.unwrap();
    let jobs: Vec<_> = list.iter().map(|w| (&*w.wire, w.job_ids.len())).collect();
    assert_eq!(jobs, [("w0", 2), ("w1", 1)]);
    for job in ["7", "8"] {
        let end = rdmesh_store::jobs::End {
            attempt: crate::made::attempt(job, 0),
            state: 3,
            ended_at: Some(at(50)),
            exit_code: Some(0),
            exit_reason: String::new(),
        };
        db.store.end_job(&end, at(50)).await.unwrap();
    }
    assert_eq!(
        db.read(
            "SELECT job_id, wire, joined_by, whole, count(*) FROM rdmesh.job_wires \
             GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 4"
        ),
        "7|w0|virtual_function|f|1\n7|w0|virtual_function|t|1\n8|w0|host|t|1\n8|w1|host|t|1"
    );
    let filter = WireFilter {
        host: "gpu-09".into(),
        virtual_function: "vf1".into(),
        ..WireFilter::default()
    };
    let found = db.store.wires(&filter, at(60), 0, 10).await.unwrap();
    assert_eq!((found.len(), found[0].job_ids.len()), (1, 0));
}

#[tokio::test]
async fn different_engines_and_configurations_are_not_compared() {
    let db = Database::new().await;
    let run = shaper("dpu-09", 1);
    hello(&db.store, &run).await;
    let slow = |from, to| WireWindow {
        sent_bits: 5_000,
        ..wire_window(from, to)
    };
    let useless = WireWindow {
        invalid: vec![5],
        waited_ns_max: 1_000_000,
        ..wire_window(10, 15)
    };
    let other = WireWindow {
        configuration_hash: "other".into(),
        ..wire_window(200, 205)
    };
    db.store
        .ingest(&[
            sent(&run, 1, wire_window(0, 5)),
            sent(&run, 2, wire_window(5, 10)),
            sent(&run, 3, useless),
            sent(&run, 4, slow(100, 105)),
            sent(&run, 5, slow(107, 112)),
            sent(&run, 6, other),
        ])
        .await
        .unwrap();
    let span = |from, to| Span {
        from: at(from),
        to: at(to),
    };
    let compare = |a, b| db.store.compare_wire("dpu-09", "w0", a, b);
    let both = compare(span(0, 50), span(99, 120)).await.unwrap();
    assert_eq!((both.a.windows, both.a.valid_windows), (3, 2));
    assert_eq!(both.a.waited_ns_max, Some(7), "of valid windows alone");
    assert_eq!(
        (both.a.mean_sent_bps, both.b.mean_sent_bps),
        (Some(2_400), Some(1_000))
    );
    assert_eq!(
        (both.a.gaps, both.b.gaps),
        (Microseconds(0), Microseconds(2_000_000))
    );
    let refused = compare(span(0, 50), span(190, 220)).await.unwrap_err();
    assert!(
        matches!(&refused, StoreError::NotComparable(_))
            && refused.to_string().contains("configuration other"),
        "{refused}"
    );
    let nothing = compare(span(0, 50), span(300, 400)).await.unwrap_err();
    assert!(
        nothing.to_string().contains("no whole window in b"),
        "{nothing}"
    );
    // The read-only role compares too.
    let sql = "SELECT stretch, windows FROM rdmesh.compare_wire('dpu-09', 'w0', \
               '2026-11-25 12:00+00', '2026-11-25 12:01+00', \
               '2026-11-25 12:01:39+00', '2026-11-25 12:02+00')";
    assert_eq!(db.read(sql), "a|3\nb|2");
}
