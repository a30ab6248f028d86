//! Launchers, colours, interleaving, five generations of a grammar: the same
//! message in every dress says the same.
#![allow(clippy::unwrap_used)]

use std::sync::LazyLock;

use rdmesh_joblog::summary::Summarizer;
use rdmesh_joblog::{Class, Classifier, LineReport, RuleSet, Summary};

static CLASSIFIER: LazyLock<Classifier> =
    LazyLock::new(|| Classifier::new(RuleSet::builtin().unwrap()));

fn read(line: &str) -> LineReport {
    CLASSIFIER.classify(1, line.as_bytes())
}

fn summary(lines: &[&str]) -> Summary {
    let mut summarizer = Summarizer::new();
    for (number, line) in (1..).zip(lines) {
        summarizer.observe(None, &CLASSIFIER.classify(number, line.as_bytes()));
    }
    summarizer.finish("test")
}

const PREFIXES: [&str; 14] = [
    "",
    "12: ",
    "[1,12]<stderr>:",
    "[1,12]<stdout>:",
    "[rank12]:",
    "[rank12]: ",
    "[default4]:",
    "node01: ",
    "2026-01-02T03:04:05.123456789Z stderr F ",
    "Jan  2 03:04:05 gpu-01 slurmstepd[42]: ",
    "[2026-01-02 03:04:05] ",
    "[pod/train-worker-3/main] ",
    "(RayWorker pid=5304, ip=10.0.0.1) ",
    "2026-01-02T03:04:05Z: [1,12]<stdout>:",
];

#[test]
fn every_launcher_prefix_is_looked_through() {
    let message = "HOST:10:20 [3] misc/ibvwrap.cc:190 NCCL WARN Call to ibv_create_cq failed with error Cannot allocate memory";
    for prefix in PREFIXES {
        for dress in [
            format!("{prefix}{message}"),
            format!("{prefix}{message}\r"),
            format!("\u{1b}[33m{prefix}\u{1b}[0m\u{1b}[1;31m{message}\u{1b}[0m"),
            format!(
                "{prefix}{}",
                message.replace("NCCL", "\u{1b}[1mNC\u{1b}[0mCL")
            ),
        ] {
            let report = read(&dress);
            assert_eq!(report.class, Class::Syscall, "{dress:?}");
            assert_eq!(report.verb.as_deref(), Some("ibv_create_cq"), "{dress:?}");
            assert_eq!(report.errno.as_deref(), Some("ENOMEM"), "{dress:?}");
        }
    }
    assert_eq!(read(&format!("[1,12]<stderr>:{message}")).rank, Some(12));
    assert_eq!(read(&format!("12: {message}")).rank, Some(12));
    assert_eq!(read(message).host.as_deref(), Some("HOST"));
}

#[test]
fn five_generations_of_one_completion() {
    for line in [
        "NCCL WARN NET/IB : Got completion with error 12, opcode 1, len 0, vendor err 129",
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<5> with error 12, opcode 1, len 0, vendor err 129",
        "NCCL WARN NET/IB : Got completion from peer 10.0.0.1<5> with error 12, opcode 1, len 0, vendor err 129 (Send) localGid ::1 remoteGid ::2",
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<5> with status=12 opcode=1 len=0 vendor err 129 (Send) localGid ::1 remoteGids::2 hca mlx5_3",
        "NCCL WARN NET/IB: Got completion from peer 10.0.0.1<5> with status=IBV_WC_RETRY_EXC_ERR(12) opcode=IBV_WC_SEND(0) vendor_err=129 (Send) hca mlx5_3",
    ] {
        let report = read(line);
        assert_eq!(report.class, Class::Network, "{line}");
        assert_eq!(
            report.status.as_deref(),
            Some("IBV_WC_RETRY_EXC_ERR"),
            "{line}"
        );
        assert_eq!(
            (report.status_code, report.vendor_err.as_deref()),
            (Some(12), Some("0x81")),
            "{line}"
        );
        assert_eq!(report.errno, None, "a status is no errno: {line}");
        assert_eq!(report.peer.is_some(), line.contains("10.0.0.1"), "{line}");
        assert_eq!(report.device.is_some(), line.contains("hca"), "{line}");
    }
}

#[test]
fn the_cause_among_interleaved_messages_is_found() {
    let flush = "n1:1:2 [0] NCCL WARN NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249";
    let closed = "n2:1:2 [0] misc/socket.cc:49 NCCL WARN socketProgress: Connection closed by remote peer n9<41>";
    let cause = "n3:1:2 [4] ibvwrap.cc:262 NCCL WARN Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_4:1, curr state INIT, next state RTR";
    let orders = [
        [flush, closed, cause],
        [cause, flush, closed],
        [closed, cause, flush],
    ];
    for order in orders {
        let report = read(&order.concat());
        assert_eq!(report.class, Class::Syscall, "{order:?}");
        assert_eq!(report.verb.as_deref(), Some("ibv_modify_qp"));
        assert_eq!(report.errno.as_deref(), Some("ETIMEDOUT"));
        assert_eq!(report.device.as_deref(), Some("mlx5_4"));
        assert_eq!(report.further_messages, 2);
    }
    // The neighbour's errno is not taken.
    let glued = read(
        "Call to ibv_create_qp failedn2:1:2 [0] NCCL WARN Call to ibv_destroy_qp failed with error Device or resource busy",
    );
    assert_eq!(
        (glued.verb.as_deref(), glued.errno),
        (Some("ibv_create_qp"), None)
    );
}

#[test]
fn a_long_line_has_its_cause_at_the_end() {
    let line = format!(
        "{}NCCL WARN Call to ibv_reg_mr failed with error Bad address",
        "x".repeat(1_000_000)
    );
    let report = read(&line);
    assert_eq!(report.errno.as_deref(), Some("EFAULT"));
    assert!(report.excerpt.len() < 2_000);
}

#[test]
fn utf16_and_binary_are_read_through() {
    let wide: Vec<u8> = "NCCL WARN Call to ibv_reg_mr failed"
        .bytes()
        .flat_map(|byte| [byte, 0])
        .collect();
    assert_eq!(CLASSIFIER.classify(1, &wide).class, Class::Syscall);
    let mut binary = vec![0xff, 0xfe, 0x00, 0x9f];
    binary.extend(b"NCCL WARN Call to ibv_reg_mr failed\xff\xff");
    assert_eq!(CLASSIFIER.classify(1, &binary).class, Class::Syscall);
}

#[test]
fn a_dumped_cqe_is_decoded() {
    let words = read("00000000 00005204 0a0006ee 0031bed0");
    assert_eq!(words.status.as_deref(), Some("IBV_WC_LOC_PROT_ERR"));
    let bytes = read("[  10.0] 00000030: 00 00 00 00 00 00 81 15 0a 00 08 5d 00 00 3c d2");
    assert_eq!(
        (bytes.class, bytes.vendor_err.as_deref()),
        (Class::Network, Some("0x81"))
    );
    let ucx = "UCX  ERROR Transport retry count exceeded on mlx5_0:1/RoCE (synd 0x15 vend 0x81 hw_synd 0/0)";
    assert_eq!(read(ucx).vendor_err.as_deref(), Some("0x81"));
    assert_eq!(read("00000000 00000000 00000000 00000000").rule, None);
}

#[test]
fn consequences_clean_up_and_read_only_lines_never_decide() {
    let none = summary(&[
        "NCCL WARN NET/IB : Got completion with error 5, opcode 0, len 0, vendor err 249",
        "NCCL WARN Net : Connection closed by remote peer n2<5>",
        "NCCL WARN Call to ibv_dereg_mr failed with error Device or resource busy errno 16",
        "NCCL WARN Call to ibv_query_port failed with error No such device",
        "ncclSystemError: System call (e.g. socket, malloc) failed",
    ]);
    assert_eq!((none.class, none.decision), (Class::CannotTell, None));
    let first = none.first_consequence.unwrap();
    assert_eq!(
        (first.report.line, first.report.class),
        (1, Class::FollowOn)
    );

    let some = summary(&[
        "NCCL WARN Net : Connection closed by remote peer n2<5>",
        "NCCL WARN NET/IB : mlx5_2:1 GID table changed",
        "NCCL INFO Call to ibv_modify_qp failed with 110 Connection timed out, on dev mlx5_1:1, retrying 1/34 after 100 msec of sleep",
        "NCCL WARN Call to ibv_modify_qp failed with error Connection timed out errno 110",
        "NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
    ]);
    assert_eq!(some.class, Class::Syscall);
    assert_eq!(some.decision.unwrap().report.line, 4);
    assert_eq!(some.causes[0].first_line, 4);
}

#[test]
fn the_earliest_cause_by_time_wins_also_when_it_stands_later() {
    let by_time = summary(&[
        "[2026-01-02 03:04:09] n1:1:2 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129",
        "[2026-01-02 03:04:05] n2:1:2 [0] NCCL WARN Call to ibv_reg_mr failed with error Bad address",
        "n3:1:2 [0] NCCL WARN Cuda failure 'an illegal memory access was encountered'",
    ]);
    assert_eq!(by_time.class, Class::Syscall);
    assert_eq!(by_time.decision.unwrap().report.line, 2);
    assert_eq!(by_time.counts.len(), 3);
}

const HANG: &str = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600045 milliseconds before timing out.";
const RETRIES: &str =
    "n1:1:2 [0] NCCL WARN NET/IB : Got completion with error 12, opcode 0, len 0, vendor err 129";
const BROKE: &str = "n2:1:2 [0] NCCL WARN Call to ibv_reg_mr failed with error Bad address";

/// Files are read by name, and not in the order of what happened.
#[test]
fn without_times_a_cause_comes_before_what_followed_from_it() {
    for (lines, deciding) in [
        ([HANG, RETRIES, BROKE], 3),
        ([RETRIES, HANG, BROKE], 3),
        ([BROKE, HANG, RETRIES], 1),
        ([HANG, HANG, RETRIES], 3),
        ([HANG, HANG, HANG], 1),
    ] {
        let summary = summary(&lines);
        assert_eq!(summary.decision.unwrap().report.line, deciding, "{lines:?}");
        assert_eq!(summary.causes[0].first_line, deciding, "{lines:?}");
    }
    // A port that went down is no answer that did not come.
    let port = "n3:1:2 [0] NCCL WARN NET/IB : mlx5_3:1 Got async error event: port error";
    assert_eq!(summary(&[RETRIES, port]).decision.unwrap().report.line, 2);
}

#[test]
fn times_decide_where_lines_have_them() {
    let at = |time: &str, line: &str| format!("[2026-01-02 03:04:{time}] {line}");
    let timed = [at("05", HANG), at("09", BROKE)];
    let lines: Vec<&str> = timed.iter().map(String::as_str).collect();
    assert_eq!(summary(&lines).decision.unwrap().report.line, 1);
    // Of the same moment, or of another clock, no time decides.
    let mixed = [at("05", HANG), at("05", BROKE)];
    let lines: Vec<&str> = mixed.iter().map(String::as_str).collect();
    assert_eq!(summary(&lines).decision.unwrap().report.line, 2);
    let torch = format!("[rank1]:[E101 03:04:05.000000001 P.cpp:1] {HANG}");
    for lines in [[torch.as_str(), BROKE], [BROKE, torch.as_str()]] {
        assert_eq!(summary(&lines).class, Class::Syscall, "{lines:?}");
    }
}

#[test]
fn a_cause_in_a_line_comes_before_what_followed_from_it() {
    let report = read(&format!("{HANG}{BROKE}"));
    assert_eq!((report.class, report.further_messages), (Class::Syscall, 1));
}

/// A progress bar returns to the line's begin, and other processes write behind it.
#[test]
fn what_carriage_returns_part_are_lines_with_one_answer() {
    let bar = "loading: 41%|####      | 12/29";
    let report = read(&format!(
        "{bar}\r{bar}\r[rank3]: {HANG}\r7: {BROKE}\r{bar}\r"
    ));
    assert_eq!(report.class, Class::Syscall);
    assert_eq!(report.errno.as_deref(), Some("EFAULT"));
    assert_eq!((report.rank, report.host.as_deref()), (Some(7), Some("n2")));
    assert_eq!(report.further_messages, 1);
    assert!(report.excerpt.starts_with("7: n2"), "{}", report.excerpt);
    // No message reaches over a return.
    assert_eq!(read("Call to ibv_create_cq\r failed").errno, None);
    let glued = read("Call to ibv_create_cq failed with error\rCannot allocate memory");
    assert_eq!(
        (glued.verb.as_deref(), glued.errno),
        (Some("ibv_create_cq"), None)
    );
}

/// The rest of one message and the prefix of the next: `Ca` of `Call to`, `gpu-02`.
#[test]
fn a_torn_name_is_no_host() {
    let lines: Vec<String> = [
        "gpu-01",
        "gpu-02",
        "gpu-02",
        "Cagpu-02",
        "Cagpu-02gpu-01",
        "gpu-01",
    ]
    .iter()
    .map(|host| BROKE.replace("n2:", &format!("{host}:")))
    .collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    assert_eq!(summary(&lines).causes[0].hosts, ["gpu-01", "gpu-02"]);
    let torn_first: Vec<&str> = lines[3..4].iter().chain(&lines[..3]).copied().collect();
    let decision = summary(&torn_first).decision.unwrap();
    assert_eq!(decision.report.host.as_deref(), Some("gpu-02"));
}

/// libibverbs says this of every provider's file in a container that has none of them.
#[test]
fn a_missing_configuration_directory_decides_nothing() {
    let notice = "libibverbs: Warning: couldn't open config directory '/etc/libibverbs.d'.";
    assert_eq!(read(notice).class, Class::Config);
    let alone = summary(&[notice, notice]);
    assert_eq!((alone.class, alone.decision), (Class::CannotTell, None));
    let with_timeout = summary(&[notice, HANG]);
    assert_eq!(with_timeout.class, Class::Hang);
}

#[test]
fn a_summary_is_bounded_whatever_the_log_holds() {
    let mut summarizer = Summarizer::new();
    for number in 1..=20_000 {
        let line = format!(
            "[rank{number}]: NCCL WARN Call to ibv_create_x{number} failed, from peer 10.{}.{}.1<{number}>",
            number % 250,
            number / 250
        );
        summarizer.observe(None, &CLASSIFIER.classify(number, line.as_bytes()));
    }
    let summary = summarizer.finish("test");
    assert!(summary.causes.len() <= 64 && summary.peers.len() <= 5);
    assert!(summary.groups_left_out > 19_000);
    assert_eq!(summary.lines, 20_000);
}
