//! Whatever a log holds: it ends, in bounded memory, with a report for each line.
#![allow(clippy::unwrap_used)]

use std::convert::Infallible;
use std::io::{self, Read};
use std::sync::LazyLock;

use proptest::prelude::*;
use rdmesh_joblog::stream::{PIECE_BYTES, StreamError, classify_stream};
use rdmesh_joblog::summary::Summarizer;
use rdmesh_joblog::{Class, Classifier, LineReport, RuleSet, flight};

static CLASSIFIER: LazyLock<Classifier> =
    LazyLock::new(|| Classifier::new(RuleSet::builtin().unwrap()));

fn reports(bytes: &[u8]) -> Vec<LineReport> {
    let mut out = Vec::new();
    let end = classify_stream(bytes, &CLASSIFIER, |report| {
        out.push(report.clone());
        Ok::<(), Infallible>(())
    })
    .unwrap();
    assert_eq!(end.lines, out.len() as u64);
    assert_eq!(end.bytes, bytes.len() as u64);
    out
}

/// A log of any length that no memory holds: the same lines over and over.
struct Repeated {
    text: Vec<u8>,
    left: u64,
    at: usize,
}

impl Read for Repeated {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let piece = &self.text[self.at..];
        let length = piece
            .len()
            .min(buffer.len())
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        buffer[..length].copy_from_slice(&piece[..length]);
        self.left -= length as u64;
        self.at = (self.at + length) % self.text.len();
        Ok(length)
    }
}

/// Bytes that this process has resident.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}

#[test]
fn two_gigabytes_take_constant_memory() {
    const GB: u64 = 1 << 30;
    let mut text = Vec::new();
    for line in 0..2_000 {
        text.extend(format!("n{line}:10:20 [3] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA\n").bytes());
    }
    text.extend(b"n1:1:2 [0] NCCL WARN NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249\n");
    let reader = Repeated {
        text,
        left: 2 * GB,
        at: 0,
    };
    let before = resident_bytes();
    let mut summarizer = Summarizer::new();
    let end = classify_stream(reader, &CLASSIFIER, |report| {
        summarizer.observe(None, report);
        Ok::<(), Infallible>(())
    })
    .unwrap();
    assert_eq!(end.bytes, 2 * GB);
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more for 2 GiB");
    let summary = summarizer.finish("test");
    assert_eq!(summary.class, Class::CannotTell);
    assert!(summary.counts["follow_on"] > 10_000);
}

#[test]
fn lines_end_in_every_way() {
    assert_eq!(reports(b"").len(), 0);
    assert_eq!(reports(b"\n\n").len(), 2);
    let with_return = reports(b"a\r\nNCCL WARN Call to ibv_reg_mr failed\r\nlast");
    assert_eq!(with_return.len(), 3);
    assert_eq!(
        (with_return[1].line, with_return[1].class),
        (2, Class::Syscall)
    );
    assert_eq!(
        reports(b"NCCL WARN Call to ibv_reg_mr failed")[0].class,
        Class::Syscall
    );
}

#[test]
fn a_line_of_many_megabytes_is_one_line_and_its_cause_is_found_anywhere() {
    let cause = b"NCCL WARN Call to ibv_reg_mr failed with error Bad address";
    // Also across the border of two pieces.
    for at in [0, PIECE_BYTES - 30, PIECE_BYTES + 5, 3 * PIECE_BYTES] {
        let mut log = vec![b'x'; 3 * PIECE_BYTES + 100];
        let at = at.min(log.len() - cause.len());
        log[at..at + cause.len()].copy_from_slice(cause);
        log.extend(b"\nnext\n");
        let reports = reports(&log);
        assert_eq!(reports.len(), 2, "{at}");
        assert_eq!(reports[0].verb.as_deref(), Some("ibv_reg_mr"), "{at}");
        assert_eq!(reports[1].line, 2);
    }
    assert_eq!(reports(&vec![0; 5 * PIECE_BYTES]).len(), 1);
}

#[test]
fn a_reader_that_fails_says_at_which_line() {
    struct Failing(bool);
    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            if self.0 {
                return Err(io::Error::other("disk gone"));
            }
            self.0 = true;
            buffer[..4].copy_from_slice(b"a\nb\n");
            Ok(4)
        }
    }
    let error =
        classify_stream(Failing(false), &CLASSIFIER, |_| Ok::<(), Infallible>(())).unwrap_err();
    assert_eq!(error.to_string(), "line 3 could not be read: disk gone");
    let stopped = classify_stream(&b"a\nb\n"[..], &CLASSIFIER, |_| Err("enough"));
    assert!(matches!(stopped, Err(StreamError::Sink("enough"))));
}

/// Every literal of the rules in one line, many times: the worst line there is.
#[test]
fn the_worst_line_ends_soon() {
    let text: String = RuleSet::builtin()
        .unwrap()
        .examples()
        .map(|(_, example)| example.to_owned())
        .collect();
    let mut line = String::new();
    while line.len() < 1_000_000 {
        line.push_str(&text);
    }
    let began = std::time::Instant::now();
    let report = CLASSIFIER.classify(1, line.as_bytes());
    assert!(report.rule.is_some());
    assert!(report.further_messages < rdmesh_joblog::classify::MAX_MESSAGES);
    // Far more than it takes; a pattern that backtracked would take hours.
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
}

fn words() -> impl Strategy<Value = Vec<u8>> {
    let pieces = RuleSet::builtin()
        .unwrap()
        .examples()
        .flat_map(|(_, example)| example.split(' ').map(str::to_owned).collect::<Vec<_>>())
        .collect::<Vec<_>>();
    let word = prop_oneof![
        8 => prop::sample::select(pieces).prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..6),
        1 => Just(b"\x1b[31m".to_vec()),
    ];
    proptest::collection::vec(word, 0..40).prop_map(|words| words.join(&b' '))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes_give_a_report_for_each_line(bytes in proptest::collection::vec(any::<u8>(), 0..2_000)) {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        let last = usize::from(!bytes.is_empty() && bytes.last() != Some(&b'\n'));
        prop_assert_eq!(reports(&bytes).len(), lines + last);
    }

    #[test]
    fn words_of_messages_in_any_order_are_read(line in words()) {
        let report = CLASSIFIER.classify(1, &line);
        if report.class == Class::FollowOn || report.class == Class::Cleanup {
            prop_assert_eq!(report.weight, rdmesh_joblog::Weight::Never);
        }
        let text = serde_json::to_string(&report).unwrap();
        let opening = r#"{"line":1,"class":""#;
        prop_assert!(text.starts_with(opening));
        for finding in CLASSIFIER.findings(&line) {
            prop_assert!(finding.start <= finding.end);
        }
    }

    #[test]
    fn any_bytes_are_no_dump_or_one(bytes: Vec<u8>) {
        let _ = flight::sniff(&bytes);
        let _ = flight::read(&bytes, None);
    }

    #[test]
    fn any_text_is_a_rule_file_or_refused(text in "(\\[\\[rule\\]\\]\n|id = \"[a-z]\"\n|any = \\[\"abc\"\\]\n|pattern = \"[a-z(*]{1,4}\"\n|class = \"(gpu|none|x)\"\n|revision = \"1\"\n){0,12}") {
        if let Err(error) = RuleSet::with_site("site.toml", &text) {
            prop_assert!(error.line >= 1 && !error.reason.is_empty());
        }
    }
}
