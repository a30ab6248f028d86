//! A selection as a table for people.

use std::fmt::Write as _;

use super::diff::Difference;
use super::selection::{FunctionRow, NEAR_DEPTH, Selection, Verdict};

/// Writes a selection: funnel, verbs, hooks, and the kept functions, or with
/// `all` every function that is reached.
#[must_use]
pub fn selection_text(selection: &Selection, all: bool) -> String {
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = write_selection(&mut out, selection, all);
    out
}

fn write_selection(out: &mut String, selection: &Selection, all: bool) -> std::fmt::Result {
    let s = selection;
    writeln!(out, "{} {}, driver {}", s.release, s.arch, s.driver)?;
    for name in &s.absent_modules {
        writeln!(
            out,
            "  {name} is not in the directory: its functions are not followed"
        )?;
    }
    for module in s.modules.iter().filter(|m| !m.has_btf) {
        writeln!(
            out,
            "  {} has no BTF: its indirect calls are not followed, kretprobes alone can hook it",
            module.module
        )?;
    }
    writeln!(out)?;
    funnel(out, s)?;
    writeln!(out)?;
    verbs(out, s)?;
    writeln!(out)?;
    hooks(out, s)?;
    writeln!(out)?;
    functions(out, s, all)
}

fn funnel(out: &mut String, s: &Selection) -> std::fmt::Result {
    let f = &s.funnel;
    let steps = [
        ("all functions of uverbs, core and the driver", f.all),
        ("traceable", f.traceable),
        ("reached by a system call", f.reachable),
        ("after rule 1, read-only", f.after_read_only),
        ("after rule 2, generic internals", f.after_generic),
        ("after rule 3, clean-up and references", f.after_clean_up),
        ("kept by rule 4", f.kept),
        ("chosen", f.chosen),
    ];
    writeln!(out, "FUNNEL")?;
    for (name, count) in steps {
        writeln!(out, "{count:>7}  {name}")?;
    }
    let served = s.hooks.iter().filter(|h| h.missing.is_empty());
    let (thirteen, others): (Vec<_>, Vec<_>) = served.partition(|h| h.group == "thirteen");
    writeln!(
        out,
        "         for {} of the 13 logical hooks and {} others",
        thirteen.len(),
        others.len()
    )?;
    writeln!(
        out,
        "         and in the firmware layer, which the funnel does not count: {} kept, {} chosen",
        s.firmware_kept, s.firmware_chosen
    )?;
    writeln!(
        out,
        "         besides: {} functions of the firmware layer and {} of the kernel are reached,\n         {} indirect calls lead nowhere known",
        s.firmware_reachable,
        s.outside_reachable,
        s.unresolved.len()
    )
}

fn verbs(out: &mut String, s: &Selection) -> std::fmt::Result {
    let near = format!("DEPTH<={NEAR_DEPTH}");
    writeln!(
        out,
        "{:<14} {:>7} {near:>8} {:>5} {:>6}",
        "VERB", "REACHED", "KEPT", "CHOSEN"
    )?;
    for verb in &s.verbs {
        if verb.reachable == 0 {
            continue;
        }
        write!(
            out,
            "{:<14} {:>7} {:>8} {:>5} {:>6}",
            verb.verb, verb.reachable, verb.near, verb.kept, verb.chosen
        )?;
        if verb.because.is_empty() {
            writeln!(out)?;
        } else {
            writeln!(out, "  {}", verb.because)?;
        }
    }
    Ok(())
}

fn hooks(out: &mut String, s: &Selection) -> std::fmt::Result {
    let width = s.hooks.iter().map(|h| h.hook.len()).max().unwrap_or(0);
    let groups = s.hooks.iter().map(|h| h.group.len()).max().unwrap_or(0);
    writeln!(
        out,
        "{:<width$}  {:<groups$}  {:<9}  SERVED BY",
        "HOOK", "GROUP", "HOW"
    )?;
    for hook in &s.hooks {
        let served = if hook.missing.is_empty() {
            hook.functions.join(" ")
        } else {
            hook.missing.clone()
        };
        writeln!(
            out,
            "{:<width$}  {:<groups$}  {:<9}  {served}",
            hook.hook,
            hook.group,
            hook.how.name()
        )?;
    }
    Ok(())
}

fn functions(out: &mut String, s: &Selection, all: bool) -> std::fmt::Result {
    let shown: Vec<&FunctionRow> = s
        .functions
        .iter()
        .filter(|r| all || r.verdict != Verdict::Removed)
        .collect();
    let widest = |of: fn(&FunctionRow) -> usize| shown.iter().map(|r| of(r)).max().unwrap_or(8);
    let name = widest(|r| r.function.len());
    let module = widest(|r| r.module.len()).max(6);
    writeln!(
        out,
        "{:<name$}  {:<module$}  {:<8}  {:>5}  {:<7}  {:<9}  {:<11}  WHY",
        "FUNCTION", "MODULE", "LAYER", "DEPTH", "VERDICT", "ATTACH", "RULE"
    )?;
    for row in shown {
        write!(
            out,
            "{:<name$}  {:<module$}  {:<8}  {:>5}  {:<7}  {:<9}  {:<11}  {}",
            row.function,
            row.module,
            row.layer.name(),
            row.depth,
            row.verdict.name(),
            row.attach.how.name(),
            row.rule.name(),
            row.why
        )?;
        if row.attach.why.is_empty() {
            writeln!(out)?;
        } else {
            writeln!(out, " ({})", row.attach.why)?;
        }
    }
    if !all {
        let removed = s.functions.len()
            - s.functions
                .iter()
                .filter(|r| r.verdict != Verdict::Removed)
                .count();
        writeln!(
            out,
            "\n{removed} more are reached and removed; --all shows each with its reason"
        )?;
    }
    Ok(())
}

/// Writes what changed between two kernels.
#[must_use]
pub fn difference_text(difference: &Difference) -> String {
    let mut out = String::new();
    let _ = write_difference(&mut out, difference);
    out
}

fn write_difference(out: &mut String, d: &Difference) -> std::fmt::Result {
    writeln!(out, "from {} to {}", d.old, d.new)?;
    for change in &d.changes {
        writeln!(out, "{:<9} {}", change.name(), change.text())?;
    }
    if d.changes.is_empty() {
        writeln!(out, "no kept function and no hook changed")?;
    }
    if d.worse.is_empty() {
        writeln!(out, "coverage is not worse")
    } else {
        writeln!(out, "coverage is worse:")?;
        for line in &d.worse {
            writeln!(out, "  {line}")?;
        }
        Ok(())
    }
}
