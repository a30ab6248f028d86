//! How many labelled lines are read right: the ones that the rules were made
//! with, and the ones that were labelled before any classifier saw them.

use std::collections::BTreeMap;

use rdmesh_joblog::{Class, Classifier, RuleSet, Weight};

/// Lines with the class, verb and error that the maker of the rules had before
/// them.
const LABELLED: &str = include_str!("labelled.tsv");

/// Lines of public issues and sources, labelled first. At their first run 94.9 %
/// of the classes were right, before a rule was changed because of them.
const HELD_OUT: &str = include_str!("held_out.tsv");

/// Lines of other repositories, labelled after those changes and run once before
/// any further one; see `SECOND_FIRST_RUN`.
const HELD_OUT_SECOND: &str = include_str!("held_out_second.tsv");

/// Lines of formats that no rule was made with, labelled on 2026-11-30 before any run,
/// in the form of the labelled ones: sources of gloo, TensorPipe, MSCCL++, UCC,
/// rdma-core, RCCL, NIXL, UCCL, mercury, CTran, MORI, later NCCL, UCX and NVSHMEM, and
/// public issues of others. At their first run 60.8 % of the classes were right (234 of
/// 385); of the 151 others 139 were not told at all, 12 were told wrong, among them
/// two consequences that were called causes.
const HELD_OUT_THIRD: &str = include_str!("held_out_third.tsv");

/// What must be right of those: some labels stand against conventions of the rules
/// and stay as they were set.
const LEAST_SHARE_THIRD: f64 = 0.95;

/// Lines of programs that none of the others come from, labelled on 2026-11-30 to
/// measure how far the rules reach that were widened because of the third set. At their
/// first run 61.8 % of the classes were right (47 of 76; the rules before had 47.4 %),
/// and of the 29 others 28 were not told at all.
const HELD_OUT_FOURTH: &str = include_str!("held_out_fourth.tsv");

/// What must be right of those: what is left is words of one program each, and a rule
/// for each would measure nothing.
const LEAST_SHARE_FOURTH: f64 = 0.85;

/// What must be right: the aim of the issue is 95 %, and what is known is kept.
const LEAST_SHARE: f64 = 0.97;

#[derive(Clone)]
struct Line<'a> {
    split: &'a str,
    class: Class,
    verb: &'a str,
    error: &'a str,
    text: &'a str,
}

fn labelled(file: &'static str) -> Vec<Line<'static>> {
    let rows = file.lines().skip(1).map(|row| {
        let cells: Vec<&str> = row.split('\t').collect();
        Line {
            split: cells[5],
            class: cells[4].parse().expect("a class in the fifth column"),
            verb: cells[2],
            error: cells[3],
            text: cells[1],
        }
    });
    rows.collect()
}

fn held_out(file: &'static str) -> Vec<Line<'static>> {
    let rows = file.lines().skip(1).map(|row| {
        let cells: Vec<&str> = row.splitn(5, '\t').collect();
        Line {
            split: cells[0],
            class: cells[1].parse().expect("a class in the second column"),
            verb: cells[2],
            error: cells[3],
            text: cells[4],
        }
    });
    rows.collect()
}

fn classifier() -> Classifier {
    Classifier::new(RuleSet::builtin().expect("the built-in rules load"))
}

/// Runs the lines, prints accuracy by split and a confusion table, and gives the
/// share that is right.
fn share_right(name: &str, lines: &[Line<'_>]) -> f64 {
    let classifier = classifier();
    let mut splits: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    let mut confusion: BTreeMap<(Class, Class), u32> = BTreeMap::new();
    let mut right = 0;
    for line in lines {
        let report = classifier.classify(1, line.text.as_bytes());
        let split = splits.entry(line.split).or_default();
        split.1 += 1;
        if report.class == line.class {
            split.0 += 1;
            right += 1;
        } else {
            println!("wrong: {} for {}: {}", report.class, line.class, line.text);
        }
        *confusion.entry((line.class, report.class)).or_default() += 1;
        let consequence = matches!(line.class, Class::FollowOn | Class::Cleanup);
        assert!(
            !consequence || report.weight != Weight::Root,
            "a consequence was called a cause by {:?}: {}",
            report.rule,
            line.text
        );
    }
    println!("{name}: {right} of {}", lines.len());
    for (split, (right, all)) in &splits {
        println!("  {split:<24} {right:>3} of {all}");
    }
    println!("label / answer / lines");
    for ((label, answer), count) in &confusion {
        println!("  {label:<14} {answer:<14} {count:>3}");
    }
    f64::from(right) / lines.len() as f64
}

#[test]
fn labelled_lines() {
    assert!(share_right("labelled", &labelled(LABELLED)) >= LEAST_SHARE);
}

#[test]
fn held_out_lines_of_new_formats() {
    let lines = labelled(HELD_OUT_THIRD);
    assert!(lines.len() > 300);
    assert!(share_right("held out, third", &lines) >= LEAST_SHARE_THIRD);
}

#[test]
fn held_out_lines_of_other_programs() {
    let lines = labelled(HELD_OUT_FOURTH);
    assert!(share_right("held out, fourth", &lines) >= LEAST_SHARE_FOURTH);
}

#[test]
fn held_out_lines() {
    let lines = held_out(HELD_OUT);
    assert!(lines.len() > 300);
    assert!(share_right("held out", &lines) >= LEAST_SHARE);
}

#[test]
fn held_out_lines_of_other_repositories() {
    let lines = held_out(HELD_OUT_SECOND);
    assert!(share_right("held out, second", &lines) >= LEAST_SHARE);
}

/// The share of verbs and errnos that is right, where the labels name one.
fn share_named_right(name: &str, lines: &[Line<'_>]) -> f64 {
    let classifier = classifier();
    let (mut right, mut all) = (0, 0);
    let mut check = |same: bool, answer: Option<&str>, label: &str, line: &Line<'_>| {
        all += 1;
        if same {
            right += 1;
        } else {
            println!("{answer:?} for {label}: {}", line.text);
        }
    };
    for line in lines {
        let report = classifier.classify(1, line.text.as_bytes());
        let verb = report.verb.as_deref();
        if !matches!(line.verb, "?" | "-") {
            let same = line.verb.contains(verb.unwrap_or("-"));
            check(same, verb, line.verb, line);
        }
        let error = line.error.split(' ').next().unwrap_or_default();
        let is_errno = error.starts_with('E') && error.chars().all(|c| c.is_ascii_alphanumeric());
        if is_errno {
            let errno = report.errno.as_deref();
            check(errno == Some(error), errno, error, line);
        }
    }
    println!("{name}: verbs and errnos: {right} of {all}");
    f64::from(right) / f64::from(all)
}

#[test]
fn verbs_and_errors() {
    let known = [
        labelled(LABELLED),
        held_out(HELD_OUT),
        held_out(HELD_OUT_SECOND),
    ]
    .concat();
    assert!(share_named_right("sets before", &known) >= 0.95);
    let new = [labelled(HELD_OUT_THIRD), labelled(HELD_OUT_FOURTH)].concat();
    assert!(share_named_right("third and fourth", &new) >= 0.85);
}
