//! Names of hosts as a whole log has them. Where two processes write at once, the
//! rest of one message and the prefix of the next stand together: `Ca` and `gpu-02`
//! become `Cagpu-02`. No single line tells that from a host of that name; the
//! others do.

use std::collections::{BTreeMap, HashMap};

/// Hosts that are counted. A job of the largest clusters has fewer.
const MAX_HOSTS: usize = 16_384;

/// A name that stands there more often is no accident.
const MOST_TORN: u64 = 2;

/// How often each host is named.
#[derive(Debug, Default)]
pub(crate) struct Hosts(HashMap<String, u64>);

impl Hosts {
    pub(crate) fn observe(&mut self, host: &str) {
        if let Some(count) = self.0.get_mut(host) {
            *count += 1;
        } else if self.0.len() < MAX_HOSTS {
            self.0.insert(host.to_owned(), 1);
        }
    }

    /// Names that are the end of a message and a host, with the host.
    pub(crate) fn torn(&self) -> BTreeMap<String, String> {
        let seldom = self.0.iter().filter(|(_, count)| **count <= MOST_TORN);
        seldom
            .filter_map(|(name, count)| Some((name.clone(), self.end_of(name, *count)?)))
            .collect()
    }

    /// The host that the name ends with, when it is no name of its own: the longest
    /// one that is named more often.
    fn end_of(&self, name: &str, count: u64) -> Option<String> {
        // Hosts are ASCII: every place is a border of characters.
        let ends = (1..name.len()).filter_map(|at| name.get(at..).map(|end| (at, end)));
        let mut known = ends.filter(|(at, end)| {
            // `rack1-gpu-02` is a name; a message ends with a word.
            let is_part_of_name = name[..*at].ends_with(['-', '.', '_']);
            !is_part_of_name && self.0.get(*end).is_some_and(|more| *more > count)
        });
        let (_, host) = known.next()?;
        let has_kin = self
            .0
            .keys()
            .any(|other| other != name && stem(other) == stem(name));
        (!has_kin).then(|| host.to_owned())
    }
}

/// What hosts of one kind have in common: `gpu-` of `gpu-02`.
fn stem(name: &str) -> &str {
    let first = name.split('.').next().unwrap_or(name);
    first.trim_end_matches(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn torn(names: &[(&str, u64)]) -> Vec<String> {
        let mut hosts = Hosts::default();
        for (name, count) in names {
            (0..*count).for_each(|_| hosts.observe(name));
        }
        let torn = hosts.torn().into_iter();
        torn.map(|(name, host)| format!("{name}={host}")).collect()
    }

    #[test]
    fn the_end_of_a_message_is_no_part_of_a_host() {
        assert_eq!(
            torn(&[
                ("gpu-01", 3),
                ("gpu-02", 2),
                ("Cagpu-02", 1),
                ("failedgpu-01", 2)
            ]),
            ["Cagpu-02=gpu-02", "failedgpu-01=gpu-01"]
        );
        assert_eq!(
            torn(&[("gpu-01", 3), ("gpu-02", 2), ("Cagpu-02gpu-01", 1)]),
            ["Cagpu-02gpu-01=gpu-01"]
        );
    }

    #[test]
    fn hosts_whose_names_end_alike_stay_apart() {
        assert!(torn(&[("gpu-01", 3), ("igpu-01", 1), ("igpu-02", 1)]).is_empty());
        assert!(torn(&[("gpu-01", 9), ("igpu-01", 3)]).is_empty(), "often");
        assert!(torn(&[("gpu-01", 3), ("rack1-gpu-01", 1)]).is_empty());
        assert!(torn(&[("gpu-01", 1), ("Cagpu-01", 1)]).is_empty(), "either");
    }

    #[test]
    fn no_log_fills_the_memory() {
        let mut hosts = Hosts::default();
        (0..20_000).for_each(|number| hosts.observe(&format!("n{number}")));
        assert_eq!(hosts.0.len(), MAX_HOSTS);
    }
}
