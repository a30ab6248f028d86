use std::path::Path;

use rdmesh_services::shutdown::{Trigger, channel};
use tokio::time::timeout;

use super::played::{Played, RELEASE};
use super::*;

/// No window of these tests is longer than a second.
const DEADLINE: Duration = Duration::from_secs(30);

fn ask(purpose: Purpose, seconds: u32) -> Ask {
    Ask {
        purpose,
        verbs: vec!["reg_mr".to_owned()],
        driver: None,
        seconds,
        beside: Vec::new(),
    }
}

fn windows(field: &Played, directory: &Path) -> (Windows, Trigger) {
    let (trigger, ending) = channel();
    let shelf = Shelf::at(directory);
    (Windows::new(field.clone(), shelf, ending), trigger)
}

/// All that it tells, and why it failed.
async fn all(mut words: Words) -> (Vec<Told>, Option<WindowError>) {
    let (mut told, mut error) = (Vec::new(), None);
    while let Some(word) = timeout(DEADLINE, words.recv()).await.unwrap() {
        match word {
            Ok(word) => told.push(word),
            Err(why) => error = Some(why),
        }
    }
    (told, error)
}

fn last(told: &[Told]) -> &Progress {
    match told.last() {
        Some(Told::Progress(progress)) => progress,
        other => panic!("{other:?}"),
    }
}

/// Until it watches.
async fn watching(words: &mut Words) {
    loop {
        let word = timeout(DEADLINE, words.recv()).await.unwrap();
        if let Some(Ok(Told::Progress(progress))) = word
            && progress.phase == Phase::Watching
        {
            return;
        }
    }
}

#[tokio::test]
async fn good_calls_are_kept_and_failing_ones_laid_beside_them() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, _trigger) = windows(&field, directory.path());
    field.call(0, 0);
    field.call(2, 0);
    field.call(14, 14);
    let (told, error) = all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
    assert!(error.is_none(), "{error:?}");
    let ended = last(&told);
    assert_eq!(
        (ended.phase, ended.good, ended.failed),
        (Phase::Ended, 2, 1)
    );
    assert_eq!(
        (ended.functions, ended.beyond_bound, ended.unwatchable),
        (3, 1, 2)
    );
    assert_eq!((ended.lost, ended.seconds_left), (3, 0));
    let recorded = told.iter().find_map(|word| match word {
        Told::Recorded(tree) => Some(tree.clone()),
        _ => None,
    });
    let kept = windows.shelf().all().unwrap().trees;
    assert_eq!(recorded.as_slice(), kept);
    assert_eq!((kept[0].traces, kept[0].functions), (2, 3));
    assert!(kept[0].recorded_at > 0);

    // What is there is added to.
    field.call(0, 0);
    all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
    assert_eq!(windows.shelf().all().unwrap().trees[0].traces, 3);

    // One word for each kind; what good calls return too makes none.
    for pinned in [14, 14, 12, 2] {
        field.call(pinned, 22);
    }
    field.call(0, 0);
    let (told, error) = all(windows.open(ask(Purpose::Diff, 1)).unwrap()).await;
    assert!(error.is_none(), "{error:?}");
    let ends: Vec<_> = told
        .iter()
        .filter_map(|word| match word {
            Told::Parted(parted) => Some((parted.fork.path.len(), parted.fork.outcome.errno())),
            _ => None,
        })
        .collect();
    assert_eq!(ends, [(2, Some(14)), (2, Some(12)), (1, Some(22))]);
    let ended = last(&told);
    assert_eq!((ended.failed, ended.good, ended.kinds), (4, 1, 3));
    assert_eq!(field.attached(), 0);
}

#[tokio::test]
async fn without_good_calls_or_a_baseline_it_says_so() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, _trigger) = windows(&field, directory.path());
    let (_, error) = all(windows.open(ask(Purpose::Diff, 1)).unwrap()).await;
    let error = error.unwrap().to_string();
    assert!(error.contains("no baseline of reg_mr"), "{error}");
    assert!(
        error.contains("rdmesh baseline record HOST reg_mr"),
        "{error}"
    );
    field.call(14, 14);
    let (_, error) = all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
    let error = error.unwrap().to_string();
    assert!(error.contains("(1 failed, 0 took longer"), "{error}");
    assert!(windows.shelf().all().unwrap().trees.is_empty());
    // Baselines of two drivers: which one is meant is not clear.
    for driver in ["rdma_rxe", "mlx5_ib"] {
        field.call(0, 0);
        let ask = Ask {
            driver: Some(driver.to_owned()),
            ..ask(Purpose::Record, 1)
        };
        all(windows.open(ask).unwrap()).await;
    }
    let (_, error) = all(windows.open(ask(Purpose::Diff, 1)).unwrap()).await;
    let error = error.unwrap().to_string();
    assert!(error.contains("--driver: mlx5_ib, rdma_rxe"), "{error}");
}

#[tokio::test]
async fn what_is_no_window_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (windows, _trigger) = windows(&Played::default(), directory.path());
    let refused = |ask: Ask| windows.open(ask).unwrap_err().to_string();
    let nothing = Ask {
        verbs: Vec::new(),
        ..ask(Purpose::Record, 1)
    };
    assert!(refused(nothing).contains("name a verb"));
    assert!(refused(ask(Purpose::Record, 301)).contains("300 s is the longest"));
    let many = Ask {
        verbs: (0..33).map(|n| n.to_string()).collect(),
        ..ask(Purpose::Diff, 1)
    };
    assert!(refused(many).contains("32 at most"));
}

#[tokio::test]
async fn it_ends_when_nobody_listens_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, _trigger) = windows(&field, directory.path());
    let mut words = windows.open(ask(Purpose::Record, 300)).unwrap();
    watching(&mut words).await;
    assert_eq!(field.attached(), 1);
    let busy = windows.open(ask(Purpose::Diff, 1)).unwrap_err();
    assert!(matches!(busy, WindowError::Busy { .. }), "{busy}");
    drop(words);
    // It is told when it is over, and then nothing is attached.
    let next = timeout(DEADLINE, async {
        loop {
            match windows.open(ask(Purpose::Record, 300)) {
                Ok(words) => return words,
                Err(_) => tokio::task::yield_now().await,
            }
        }
    });
    let mut words = next.await.unwrap();
    watching(&mut words).await;
    assert_eq!(field.attached(), 1);
}

#[tokio::test]
async fn it_ends_with_the_tracer_and_before_modules_are_let_go() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, trigger) = windows(&field, directory.path());
    let mut words = windows.open(ask(Purpose::Record, 300)).unwrap();
    watching(&mut words).await;
    timeout(DEADLINE, windows.close()).await.unwrap();
    assert_eq!(field.attached(), 0);
    let (_, error) = all(words).await;
    assert!(matches!(error, Some(WindowError::Closed(_))), "{error:?}");

    let mut words = windows.open(ask(Purpose::Record, 300)).unwrap();
    watching(&mut words).await;
    trigger.fire();
    let (_, error) = all(words).await;
    assert!(matches!(error, Some(WindowError::Closed(_))), "{error:?}");
    assert_eq!(field.attached(), 0);
}

#[tokio::test]
async fn a_refusal_leaves_nothing_and_the_next_window_can_open() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, _trigger) = windows(&field, directory.path());
    field.refuse();
    for _ in 0..2 {
        let (_, error) = all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
        assert!(matches!(error, Some(WindowError::Load(_))), "{error:?}");
        assert_eq!(field.attached(), 0);
        timeout(DEADLINE, windows.close()).await.unwrap();
    }
}

#[tokio::test]
async fn it_ends_in_time_under_a_storm() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, _trigger) = windows(&field, directory.path());
    field.call(0, 0);
    all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
    field.storm();
    let (told, error) = all(windows.open(ask(Purpose::Diff, 1)).unwrap()).await;
    assert!(error.is_none(), "{error:?}");
    let ended = last(&told);
    assert!(ended.failed > 1 && ended.kinds == 1, "{ended:?}");
}

#[tokio::test]
async fn who_reads_nothing_holds_up_nothing_and_misses_no_kind() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, _trigger) = windows(&field, directory.path());
    field.call(0, 0);
    all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
    for errno in 1..=300 {
        field.call(errno, errno);
    }
    let words = windows.open(ask(Purpose::Diff, 1)).unwrap();
    // Not read before it is over.
    timeout(DEADLINE, windows.gate.over()).await.unwrap();
    let (told, error) = all(words).await;
    assert!(error.is_none(), "{error:?}");
    let kinds = told.iter().filter(|word| matches!(word, Told::Parted(_)));
    assert_eq!((kinds.count(), last(&told).kinds), (MAX_KINDS, MAX_KINDS));
    assert_eq!(last(&told).failed, 300);
}

#[tokio::test]
async fn a_damaged_baseline_is_told_and_the_next_recording_begins_anew() {
    let directory = tempfile::tempdir().unwrap();
    let field = Played::default();
    let (windows, _trigger) = windows(&field, directory.path());
    let name = format!("reg_mr.rdma_rxe.{RELEASE}.json");
    std::fs::write(directory.path().join(name), "{").unwrap();
    field.call(0, 0);
    let (_, error) = all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
    let error = error.unwrap().to_string();
    assert!(error.contains("record it anew"), "{error}");
    let (_, error) = all(windows.open(ask(Purpose::Record, 1)).unwrap()).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(windows.shelf().all().unwrap().trees[0].traces, 1);
}
