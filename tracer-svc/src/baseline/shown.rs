//! Whether a call is the one that is waited for.

use super::trace::{Outcome, Step, Trace, index};

/// Whether a call is of the kind whose failing functions are known, innermost first, each
/// with its positive errno: its entry point is the outermost of them and failed alike, and
/// each of the others that is watched returned its errno somewhere in it. A function that
/// the compiler copied is the one that it was copied from.
#[must_use]
pub fn shows(trace: &Trace, names: &[String], chain: &[(&str, u32)]) -> bool {
    let Some(((entry, errno), inner)) = chain.split_last() else {
        return false;
    };
    let returned = |outcome: Outcome| outcome.errno().map(u32::from);
    if name(names, trace.entry) != plain(entry) || returned(trace.outcome) != Some(*errno) {
        return false;
    }
    let failing = failing(trace, names);
    inner.iter().all(|(function, errno)| {
        let function = plain(function);
        let is_watched = names.iter().any(|watched| plain(watched) == function);
        !is_watched || failing.contains(&(function, *errno))
    })
}

/// Each failing return of a call, by the name of its function.
fn failing<'n>(trace: &Trace, names: &'n [String]) -> Vec<(&'n str, u32)> {
    let (mut inside, mut out) = (Vec::new(), Vec::new());
    for step in &trace.steps {
        match step {
            Step::Enters(function) => inside.push(*function),
            Step::Returns(outcome) => {
                if let (Some(function), Some(errno)) = (inside.pop(), outcome.errno()) {
                    out.push((name(names, function), u32::from(errno)));
                }
            }
        }
    }
    out
}

fn name(names: &[String], function: u32) -> &str {
    names.get(index(function)).map_or("", |name| plain(name))
}

/// Without what the compiler adds: `f.isra.0`.
fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// entry { look_up ENOENT, pin.isra.0 EFAULT } EFAULT
    fn trace() -> (Trace, Vec<String>) {
        let error = |errno| Step::Returns(Outcome::Error(errno));
        let steps = vec![
            Step::Enters(0),
            Step::Enters(1),
            error(2),
            Step::Enters(2),
            error(14),
            error(14),
        ];
        let trace = Trace {
            tid: 7,
            tgid: 5,
            entry: 0,
            began_ns: 0,
            took_ns: 1,
            steps,
            outcome: Outcome::Error(14),
        };
        let names = ["entry", "look_up", "pin.isra.0", "far"];
        (trace, names.map(str::to_owned).to_vec())
    }

    #[test]
    fn it_has_the_same_entry_point_and_the_same_failing_functions() {
        let (trace, names) = trace();
        let is = |chain: &[(&str, u32)]| shows(&trace, &names, chain);
        assert!(is(&[("pin", 14), ("entry", 14)]));
        assert!(is(&[("entry", 14)]));
        // Not watched here: it says nothing.
        assert!(is(&[("umem", 14), ("entry", 14)]));
        assert!(!is(&[]));
        assert!(!is(&[("pin", 12), ("entry", 14)]));
        assert!(!is(&[("far", 14), ("entry", 14)]));
        assert!(!is(&[("pin", 14), ("entry", 22)]));
        assert!(!is(&[("pin", 14), ("other", 14)]));
    }
}
