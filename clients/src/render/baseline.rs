//! `rdmesh baseline`.

use rdmesh_client::Moment;
use rdmesh_client::model::baseline::{
    Baseline, BaselineNode, Baselines, CapturedFork, Fork, ReturnCount, WindowPhase, WindowProgress,
};

use super::printable::printable;
use super::table::{Cell, Column, Table};
use super::wrap::wrap;
use super::{Ink, Style, ago, note};

/// How good returns are named on the wire.
const GOOD: &str = "good";

const COLUMNS: [Column; 6] = [
    Column::name("VERB"),
    Column::name("DRIVER"),
    Column::name("KERNEL").cheap(0),
    Column::number("GOOD\nCALLS"),
    Column::number("FUNCTIONS\nWATCHED").cheap(1),
    Column::fixed("RECORDED"),
];

/// What the window does, for who waits; none: nothing that is news.
pub(crate) fn phase(progress: &WindowProgress) -> Option<String> {
    let driver = printable(progress.driver.as_deref().unwrap_or_default());
    match progress.phase {
        WindowPhase::Finding => Some("following the calls through the module files …".to_owned()),
        WindowPhase::Attaching => Some(format!("attaching to functions with {driver} …")),
        WindowPhase::Watching => Some(format!(
            "watching {} functions for {} s{}",
            progress.functions,
            progress.seconds_left,
            left_out(progress)
        )),
        _ => None,
    }
}

fn left_out(progress: &WindowProgress) -> String {
    let mut out = String::new();
    if progress.beyond_bound > 0 {
        out.push_str(&format!(
            "; {} further ones are left out, since this kernel takes them one by one",
            progress.beyond_bound
        ));
    }
    if progress.unwatchable > 0 {
        out.push_str(&format!("; {} cannot be watched", progress.unwatchable));
    }
    out
}

/// What was recorded.
pub(crate) fn recorded(
    baselines: &[Baseline],
    window: &WindowProgress,
    host: &str,
    style: &Style,
) -> String {
    let mut out = String::new();
    for baseline in baselines {
        out.push_str(&format!("{}\n", heading(baseline)));
    }
    let sums = format!(
        "In this window, of {} functions: {} good calls, {} slower than 50 ms, {} failed, {} that \
         could not be followed{}.",
        window.functions,
        window.good_calls,
        window.slow_calls,
        window.failed_calls,
        window.lost_calls,
        left_out(window)
    );
    out.push_str(&wrap(&sums, "", style.prose_columns()));
    if let Some(first) = baselines.first() {
        out.push_str(&format!(
            "rdmesh baseline show {} {} shows what they do\n",
            printable(host),
            printable(&first.verb)
        ));
    }
    out
}

fn heading(baseline: &Baseline) -> String {
    format!(
        "{} with {} on {}: {} good calls",
        printable(&baseline.verb),
        printable(&baseline.driver),
        printable(&baseline.kernel_release),
        baseline.good_calls
    )
}

/// A line for each baseline.
pub(crate) fn list(kept: &Baselines, style: &Style, now: Moment) -> String {
    let mut out = damaged(kept, style);
    if kept.baselines.is_empty() {
        out.push_str(
            "no baseline yet; rdmesh baseline record HOST reg_mr create_qp modify_qp records some \
             while good calls are made\n",
        );
        return out;
    }
    let mut table = Table::new(&COLUMNS);
    for baseline in &kept.baselines {
        let cells: [Cell; 6] = [
            printable(&baseline.verb).into(),
            printable(&baseline.driver).into(),
            printable(&baseline.kernel_release).into(),
            baseline.good_calls.to_string().into(),
            baseline.functions.to_string().into(),
            baseline
                .recorded_at
                .map(|at| ago(at, now))
                .unwrap_or_default()
                .into(),
        ];
        table.row(cells);
    }
    out.push_str(&table.to_text(style));
    out
}

/// A line for each function, below the one that calls it.
pub(crate) fn trees(kept: &Baselines, style: &Style, _now: Moment) -> String {
    let mut out = damaged(kept, style);
    for (index, baseline) in kept.baselines.iter().enumerate() {
        if index > 0 {
            out.push('\n');
        }
        out.push_str(&style.paint(Ink::Heading, &heading(baseline)));
        out.push('\n');
        for node in &baseline.nodes {
            out.push_str(&line(node));
        }
    }
    if !kept.baselines.is_empty() {
        out.push_str(&note(
            "in N: good calls that came there; behind it the errors that good calls have too",
            style,
        ));
    }
    out
}

fn damaged(kept: &Baselines, style: &Style) -> String {
    let each = kept.damaged.iter().map(|damaged| {
        let text = wrap(&printable(damaged), "note: ", style.prose_columns());
        style.paint(Ink::Warning, text.trim_end()) + "\n"
    });
    each.collect()
}

fn line(node: &BaselineNode) -> String {
    // Deeper than a kernel stack goes: a number of the wire, which may say anything.
    let indent = "  ".repeat(usize::try_from(node.depth.min(64)).unwrap_or(0));
    let mut out = format!("{indent}{}  in {}", printable(&node.function), node.calls);
    // That a function returns well in good calls is no news.
    if node.returns.iter().any(|r| r.outcome != GOOD) {
        out.push_str(&format!(": {}", counts(&node.returns)));
    }
    out.push('\n');
    out
}

fn counts(returns: &[ReturnCount]) -> String {
    let each = returns
        .iter()
        .map(|r| format!("{} {}", printable(&r.outcome), r.count));
    each.collect::<Vec<_>>().join(", ")
}

/// Where a failing call leaves good ones.
pub(crate) fn fork(fork: &Fork, style: &Style) -> String {
    let columns = style.prose_columns();
    let head = format!(
        "{} failed with {} in process {}",
        printable(&fork.verb),
        printable(&fork.call_errno_name),
        fork.tgid
    );
    let mut out = style.paint(Ink::Bad, &head) + "\n";
    out.push_str(&wrap(
        &printable(&place(fork)),
        "  leaves good calls at ",
        columns,
    ));
    if let Some(newly) = &fork.called_newly {
        let text = format!("{}, which good calls do not call there", printable(newly));
        out.push_str(&wrap(&text, "  it called ", columns));
    }
    if !fork.not_reached.is_empty() {
        let names: Vec<String> = fork.not_reached.iter().map(|n| printable(n)).collect();
        let text = format!("{}, as every good call does", names.join(", "));
        out.push_str(&wrap(&text, "  it did not go on to ", columns));
    }
    let way: Vec<String> = fork.path.iter().map(|f| printable(f)).collect();
    out.push_str(&wrap(&way.join(" > "), "  way: ", columns));
    out.push('\n');
    out
}

/// Where, what it returned, and what good calls return there. Not escaped.
fn place(fork: &Fork) -> String {
    let depth = match fork.depth {
        0 => "the entry point".to_owned(),
        depth => format!("depth {depth}"),
    };
    let usually = if fork.good_calls == 0 {
        "no good call of this entry point is recorded".to_owned()
    } else if fork.usual.is_empty() {
        format!("none of {} good calls calls it there", fork.good_calls)
    } else {
        let each = fork
            .usual
            .iter()
            .map(|r| format!("{} {}", r.outcome, r.count));
        format!("usually {}", each.collect::<Vec<_>>().join(", "))
    };
    let Fork {
        function,
        errno_name,
        ..
    } = fork;
    format!("{function} ({depth}): returned {errno_name}, {usually}")
}

/// The line of a diagnosis. Not escaped.
pub(crate) fn left(captured: &CapturedFork) -> String {
    let CapturedFork {
        fork,
        host,
        kernel_release,
        driver,
        baseline_host,
        ..
    } = captured;
    let recorded = match captured.baseline_recorded_at {
        Some(at) => format!(", recorded {}", at.to_seconds_text()),
        None => String::new(),
    };
    format!(
        "left at {}; captured on {host}, beside the {} baseline of {baseline_host} ({driver} on \
         {kernel_release}{recorded})",
        place(fork),
        fork.verb
    )
}

/// The sums of a comparison.
pub(crate) fn compared(window: &WindowProgress, style: &Style) -> String {
    let text = format!(
        "{} calls failed, in {} ways; {} succeeded, {} could not be followed{}.",
        window.failed_calls,
        window.kinds,
        window.good_calls.saturating_add(window.slow_calls),
        window.lost_calls,
        left_out(window)
    );
    wrap(&text, "", style.prose_columns())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output;

    fn node(depth: u32, function: &str, returns: &[(&str, u64)]) -> BaselineNode {
        BaselineNode {
            depth,
            function: function.to_owned(),
            calls: 20,
            returns: counted(returns),
        }
    }

    fn counted(returns: &[(&str, u64)]) -> Vec<ReturnCount> {
        let count = |&(outcome, count): &(&str, u64)| ReturnCount {
            outcome: outcome.to_owned(),
            count,
        };
        returns.iter().map(count).collect()
    }

    fn kept() -> Baselines {
        let baseline = |verb: &str, nodes| Baseline {
            kernel_release: "6.12.118+deb13-amd64".to_owned(),
            driver: "rdma_rxe".to_owned(),
            verb: verb.to_owned(),
            recorded_at: Some(Moment::parse("@1796040000", Moment::now()).unwrap()),
            good_calls: 20,
            functions: 212,
            nodes,
        };
        Baselines {
            baselines: vec![
                baseline("create_cq", Vec::new()),
                baseline(
                    "reg_mr",
                    vec![
                        node(0, "ib_uverbs_reg_mr", &[("good", 20)]),
                        node(1, "rdma_lookup_get_uobject", &[("good", 20)]),
                        node(1, "rxe_reg_user_mr", &[("good", 20)]),
                        node(2, "ib_umem_get", &[("good", 20)]),
                        node(2, "hostile\u{1b}[31m", &[("ENOENT", 4), ("good", 16)]),
                    ],
                ),
            ],
            damaged: vec!["/var/lib/x.json is no baseline: it is cut; record it anew".to_owned()],
        }
    }

    fn now() -> Moment {
        Moment::parse("@1796043600", Moment::now()).unwrap()
    }

    fn window() -> WindowProgress {
        WindowProgress {
            phase: WindowPhase::Ended,
            seconds_left: 0,
            driver: Some("rdma_rxe".to_owned()),
            functions: 96,
            unwatchable: 4,
            beyond_bound: 116,
            good_calls: 20,
            slow_calls: 1,
            failed_calls: 2,
            lost_calls: 3,
            kinds: 1,
        }
    }

    fn parted() -> Fork {
        Fork {
            verb: "modify_qp".to_owned(),
            at: None,
            tgid: 214,
            tid: 214,
            call_errno: 22,
            call_errno_name: "EINVAL".to_owned(),
            function: "rxe_qp_chk_attr".to_owned(),
            depth: 2,
            path: ["ib_uverbs_modify_qp", "rxe_modify_qp", "rxe_qp_chk_attr"]
                .map(str::to_owned)
                .to_vec(),
            errno: 22,
            errno_name: "EINVAL".to_owned(),
            usual: counted(&[("good", 20)]),
            good_calls: 20,
            called_newly: Some("rxe_dbg_qp".to_owned()),
            not_reached: vec!["rxe_qp_from_attr".to_owned()],
            trace: Vec::new(),
        }
    }

    #[test]
    fn the_list_and_the_trees() {
        let style = &Style::PLAIN;
        let empty = Baselines {
            baselines: Vec::new(),
            damaged: Vec::new(),
        };
        let texts = [
            list(&kept(), style, now()),
            list(&empty, style, now()),
            trees(&kept(), style, now()),
        ];
        insta::assert_snapshot!(texts.join("--\n"));
    }

    #[test]
    fn a_recording_and_a_comparison() {
        let style = &Style::PLAIN;
        let never = Fork {
            usual: Vec::new(),
            called_newly: None,
            not_reached: Vec::new(),
            ..parted()
        };
        let unknown = Fork {
            good_calls: 0,
            depth: 0,
            path: vec!["ib_uverbs_modify_qp".to_owned()],
            function: "ib_uverbs_modify_qp".to_owned(),
            ..never.clone()
        };
        let said = [
            WindowPhase::Finding,
            WindowPhase::Attaching,
            WindowPhase::Watching,
        ]
        .map(|of| {
            let progress = WindowProgress {
                phase: of,
                ..window()
            };
            phase(&progress).unwrap() + "\n"
        });
        let texts = [
            said.concat(),
            recorded(&kept().baselines, &window(), "gpu-01", style),
            fork(&parted(), style),
            fork(&never, style),
            fork(&unknown, style),
            compared(&window(), style),
        ];
        insta::assert_snapshot!(texts.join("--\n"));
    }

    #[test]
    fn json_names_are_stable() {
        insta::assert_snapshot!(output::json(&(kept(), parted(), window())).unwrap());
    }
}
