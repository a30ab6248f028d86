//! The attempt and rank that an environment names.
//!
//! The block is read as a stream: an entry that the allow-list does not name is
//! forgotten as soon as its name is known, so that a 4 MB environment costs
//! no memory and a secret in it stays where it is.

use super::attempt::{Attempt, JOB_ID_BYTES, RefusedValue};

/// Longest entry that is looked at, bytes. The longest wanted one is a job id
/// of 256 bytes behind its name; a longer entry of a wanted name is refused.
const ENTRY_BYTES: usize = 512;

/// The names that are looked at. Within a group the first that is present wins.
///
/// A launcher's own name stands before Slurm's: under `mpirun` or `torchrun`
/// Slurm's variables are those of the launcher and not of the rank.
/// `SLURM_JOB_ID` and not the array's pair, because it is unique for each array
/// task and it is what the cgroup path of the same task names.
const JOB_NAMES: [&str; 7] = [
    "RDMESH_JOB_ID",
    "SLURM_JOB_ID",
    "FLUX_JOB_ID",
    "PBS_JOBID",
    "LSB_JOBID",
    "COBALT_JOBID",
    "POD_UID",
];
const RANK_NAMES: [&str; 5] = [
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "PMIX_RANK",
    "PMI_RANK",
    "SLURM_PROCID",
];
const LOCAL_RANK_NAMES: [&str; 4] = [
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "SLURM_LOCALID",
];
const ATTEMPT_NAME: &str = "RDMESH_ATTEMPT";
const REQUEUE_NAME: &str = "SLURM_RESTART_COUNT";
const RESTART_NAME: &str = "TORCHELASTIC_RESTART_COUNT";
const ARRAY_INDEX_NAME: &str = "LSB_JOBINDEX";

/// Longest name of the lists above, bytes.
const NAME_BYTES: usize = 32;

/// What an environment says about its task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FromEnvironment {
    /// The attempt, when a job id was there and could be taken.
    pub attempt: Option<Attempt>,
    /// Rank in the job.
    pub rank: Option<i32>,
    /// Rank on the host.
    pub local_rank: Option<i32>,
    /// A value that was there and was not taken.
    pub refused: Option<RefusedValue>,
    /// The job id that was not taken, at most one byte longer than an id may be: whoever
    /// gets the failure sees that it named a job.
    pub refused_job: Vec<u8>,
    /// How often the scheduler requeued the job, also where the environment
    /// does not name the job itself (its cgroup may).
    pub requeue: u32,
    /// How often the launcher restarted its workers.
    pub restart: u32,
}

impl FromEnvironment {
    /// Reads a whole block: `NAME=value` strings, each ended by a NUL.
    #[must_use]
    pub fn read(block: &[u8]) -> Self {
        let mut reader = EnvironmentReader::default();
        reader.feed(block);
        reader.finish()
    }
}

/// Takes an environment piece by piece.
#[derive(Default)]
pub struct EnvironmentReader {
    entry: Vec<u8>,
    /// The rest of this entry is of no interest.
    skipping: bool,
    // Cut where they are longer than any job id may be.
    jobs: [Option<Vec<u8>>; JOB_NAMES.len()],
    ranks: [Option<i32>; RANK_NAMES.len()],
    local_ranks: [Option<i32>; LOCAL_RANK_NAMES.len()],
    attempt: Option<Value>,
    requeue: Option<u32>,
    restart: Option<u32>,
    array_index: Option<u32>,
}

type Value = Result<Vec<u8>, RefusedValue>;

impl EnvironmentReader {
    /// Takes the next bytes of the block.
    pub fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == 0) {
            let (text, ended) = match piece.split_last() {
                Some((0, text)) => (text, true),
                _ => (piece, false),
            };
            self.take(text);
            if ended {
                self.end_entry();
            }
        }
    }

    /// Says what the block said. An entry without its NUL at the very end is
    /// not looked at: its value may have been cut.
    #[must_use]
    pub fn finish(self) -> FromEnvironment {
        let mut refused = None;
        let mut note = |value: RefusedValue| {
            refused.get_or_insert(value);
        };
        let (asked_requeue, asked_restart) =
            match self.attempt.map(|v| v.and_then(|v| parse_attempt(&v))) {
                Some(Ok((requeue, restart))) => (Some(requeue), restart),
                Some(Err(why)) => {
                    note(why);
                    (None, None)
                }
                None => (None, None),
            };
        let requeue = asked_requeue.or(self.requeue).unwrap_or(0);
        let restart = asked_restart.or(self.restart).unwrap_or(0);
        let mut attempt = None;
        let mut refused_job = Vec::new();
        for (name, value) in JOB_NAMES.iter().zip(self.jobs) {
            let Some(value) = value else { continue };
            let mut id = written_job_id(name, value, self.array_index);
            match Attempt::new(&id, requeue, restart) {
                Ok(taken) => {
                    attempt = Some(taken);
                    break;
                }
                // The best source spoke and cannot be used: a lesser one would
                // attribute the failure to another job.
                Err(why) => {
                    note(why);
                    id.truncate(JOB_ID_BYTES + 1);
                    refused_job = id;
                    break;
                }
            }
        }
        FromEnvironment {
            attempt,
            rank: self.ranks.into_iter().flatten().next(),
            local_rank: self.local_ranks.into_iter().flatten().next(),
            refused,
            refused_job,
            requeue,
            restart,
        }
    }

    fn take(&mut self, text: &[u8]) {
        if self.skipping {
            return;
        }
        let room = (ENTRY_BYTES + 1).saturating_sub(self.entry.len());
        self.entry.extend_from_slice(&text[..text.len().min(room)]);
        let name_end = self.entry.iter().position(|b| *b == b'=');
        let wanted = match name_end {
            Some(end) => is_wanted(&self.entry[..end]),
            None => self.entry.len() <= NAME_BYTES,
        };
        if !wanted {
            self.entry.clear();
            self.skipping = true;
        }
    }

    fn end_entry(&mut self) {
        let entry = std::mem::take(&mut self.entry);
        if !std::mem::take(&mut self.skipping)
            && let Some(end) = entry.iter().position(|b| *b == b'=')
        {
            self.keep(&entry[..end], &entry[end + 1..], entry.len() > ENTRY_BYTES);
        }
        self.entry = entry;
        self.entry.clear();
    }

    /// As getenv(3) does, the first of two equal names wins.
    fn keep(&mut self, name: &[u8], value: &[u8], cut: bool) {
        let whole = || {
            if cut {
                Err(RefusedValue::TooLong)
            } else {
                Ok(value.to_vec())
            }
        };
        if let Some(at) = place(&JOB_NAMES, name) {
            self.jobs[at].get_or_insert_with(|| value.to_vec());
        } else if let Some(at) = place(&RANK_NAMES, name) {
            self.ranks[at] = self.ranks[at].or(parse_rank(value));
        } else if let Some(at) = place(&LOCAL_RANK_NAMES, name) {
            self.local_ranks[at] = self.local_ranks[at].or(parse_rank(value));
        } else if name == ATTEMPT_NAME.as_bytes() {
            self.attempt.get_or_insert_with(whole);
        } else if name == REQUEUE_NAME.as_bytes() {
            self.requeue = self.requeue.or(parse_count(value));
        } else if name == RESTART_NAME.as_bytes() {
            self.restart = self.restart.or(parse_count(value));
        } else if name == ARRAY_INDEX_NAME.as_bytes() {
            self.array_index = self.array_index.or(parse_count(value));
        }
    }
}

fn place(names: &[&str], name: &[u8]) -> Option<usize> {
    names.iter().position(|n| n.as_bytes() == name)
}

fn is_wanted(name: &[u8]) -> bool {
    place(&JOB_NAMES, name).is_some()
        || place(&RANK_NAMES, name).is_some()
        || place(&LOCAL_RANK_NAMES, name).is_some()
        || [ATTEMPT_NAME, REQUEUE_NAME, RESTART_NAME, ARRAY_INDEX_NAME]
            .iter()
            .any(|n| n.as_bytes() == name)
}

/// The id as the scheduler's own tools write it.
fn written_job_id(name: &str, value: Vec<u8>, array_index: Option<u32>) -> Vec<u8> {
    match (name, array_index) {
        ("POD_UID", _) => [b"pod:".as_slice(), &value].concat(),
        // LSF gives one id to a whole array; bjobs writes 17[3].
        ("LSB_JOBID", Some(index)) if index > 0 => {
            [value.as_slice(), format!("[{index}]").as_bytes()].concat()
        }
        _ => value,
    }
}

/// REQUEUE or REQUEUE.RESTART. Without `.RESTART` the launcher's own count
/// speaks, for it knows what the scheduler cannot.
fn parse_attempt(value: &[u8]) -> Result<(u32, Option<u32>), RefusedValue> {
    let mut parts = value.splitn(2, |b| *b == b'.');
    let requeue = parts
        .next()
        .and_then(parse_count)
        .ok_or(RefusedValue::NotAnAttempt)?;
    let restart = parts
        .next()
        .map(|part| parse_count(part).ok_or(RefusedValue::NotAnAttempt))
        .transpose()?;
    Ok((requeue, restart))
}

/// Decimal digits only: `parse` alone would take "+1".
fn parse_count(value: &[u8]) -> Option<u32> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

fn parse_rank(value: &[u8]) -> Option<i32> {
    parse_count(value).and_then(|rank| i32::try_from(rank).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn block(entries: &[&str]) -> Vec<u8> {
        entries.iter().flat_map(|e| e.bytes().chain([0])).collect()
    }

    fn read(entries: &[&str]) -> FromEnvironment {
        FromEnvironment::read(&block(entries))
    }

    fn attempt(entries: &[&str]) -> String {
        read(entries)
            .attempt
            .map(|a| a.to_string())
            .unwrap_or_default()
    }

    #[test]
    fn our_own_names_stand_before_the_schedulers() {
        let entries = [
            "SLURM_JOB_ID=9",
            "SLURM_RESTART_COUNT=4",
            "RDMESH_JOB_ID=llm-7",
            "RDMESH_ATTEMPT=2.1",
        ];
        assert_eq!(attempt(&entries), "llm-7/2.1");
        assert_eq!(attempt(&entries[..2]), "9/4");
    }

    #[test]
    fn restarts_of_the_launcher_join_the_schedulers_count() {
        let entries = [
            "SLURM_JOB_ID=9",
            "RDMESH_ATTEMPT=3",
            "TORCHELASTIC_RESTART_COUNT=5",
        ];
        assert_eq!(attempt(&entries), "9/3.5");
    }

    #[test]
    fn a_rank_comes_from_the_innermost_launcher() {
        let who = read(&[
            "SLURM_PROCID=0",
            "RANK=17",
            "SLURM_LOCALID=0",
            "LOCAL_RANK=1",
        ]);
        assert_eq!((who.rank, who.local_rank), (Some(17), Some(1)));
        let who = read(&[
            "SLURM_PROCID=3",
            "OMPI_COMM_WORLD_RANK=5",
            "RANK=",
            "LOCAL_RANK=-1",
        ]);
        assert_eq!((who.rank, who.local_rank), (Some(5), None));
    }

    #[test]
    fn arrays_and_pods_are_written_as_their_tools_do() {
        assert_eq!(attempt(&["LSB_JOBID=17", "LSB_JOBINDEX=3"]), "17[3]/0");
        assert_eq!(attempt(&["LSB_JOBID=17", "LSB_JOBINDEX=0"]), "17/0");
        assert_eq!(attempt(&["POD_UID=0f3e"]), "pod:0f3e/0");
    }

    #[test]
    fn a_refused_value_is_marked_and_no_lesser_one_taken() {
        let who = read(&["RDMESH_JOB_ID=a/b", "SLURM_JOB_ID=9", "RANK=1"]);
        assert_eq!(who.attempt, None);
        assert_eq!(who.refused, Some(RefusedValue::Forbidden));
        assert_eq!(who.refused_job, b"a/b");
        assert_eq!(who.rank, Some(1));

        let who = read(&["SLURM_JOB_ID=9", "RDMESH_ATTEMPT=two"]);
        assert_eq!(who.attempt.unwrap().to_string(), "9/0");
        assert_eq!(who.refused, Some(RefusedValue::NotAnAttempt));
    }

    #[test]
    fn a_long_job_id_is_refused_and_not_cut() {
        let long = format!("RDMESH_JOB_ID={}", "x".repeat(600));
        assert_eq!(read(&[&long]).refused, Some(RefusedValue::TooLong));
        assert_eq!(read(&[&long]).refused_job.len(), JOB_ID_BYTES + 1);
        let cut_at_the_limit = format!("RDMESH_JOB_ID={}", "x".repeat(300));
        assert_eq!(
            read(&[&cut_at_the_limit]).refused,
            Some(RefusedValue::TooLong)
        );
    }

    #[test]
    fn an_entry_that_the_kernel_cut_is_not_believed() {
        let mut bytes = block(&["RANK=4"]);
        bytes.extend_from_slice(b"SLURM_JOB_ID=12");
        let who = FromEnvironment::read(&bytes);
        assert_eq!((who.attempt, who.rank), (None, Some(4)));
    }

    #[test]
    fn four_megabytes_leave_no_memory_behind() {
        let mut reader = EnvironmentReader::default();
        for _ in 0..1024 {
            reader.feed(&[b'A'; 4096]);
        }
        assert!(reader.entry.capacity() <= 2 * ENTRY_BYTES);
        reader.feed(b"=secret\0RANK=2\0");
        assert_eq!(reader.finish().rank, Some(2));
    }

    #[test]
    fn every_name_fits_the_name_limit() {
        let all = JOB_NAMES.iter().chain(&RANK_NAMES).chain(&LOCAL_RANK_NAMES);
        assert!(
            all.chain([
                &ATTEMPT_NAME,
                &REQUEUE_NAME,
                &RESTART_NAME,
                &ARRAY_INDEX_NAME
            ])
            .all(|n| n.len() <= NAME_BYTES)
        );
    }

    proptest! {
        #[test]
        fn pieces_say_the_same_as_the_whole(
            entries in proptest::collection::vec(
                prop_oneof![
                    "[A-Z_]{1,40}=[ -~]{0,20}",
                    "RDMESH_JOB_ID=[a-z0-9/]{0,12}",
                    "RANK=[0-9]{0,4}",
                    Just("SLURM_JOB_ID=5".to_owned()),
                ], 0..12),
            cuts in proptest::collection::vec(1usize..40, 1..30),
        ) {
            let bytes: Vec<u8> = entries.iter().flat_map(|e| e.bytes().chain([0])).collect();
            let mut reader = EnvironmentReader::default();
            let mut rest = &bytes[..];
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (head, tail) = rest.split_at((*cut).min(rest.len()));
                reader.feed(head);
                rest = tail;
            }
            prop_assert_eq!(reader.finish(), FromEnvironment::read(&bytes));
        }

        #[test]
        fn any_bytes_are_taken(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            let who = FromEnvironment::read(&bytes);
            prop_assert!(who.rank.is_none_or(|r| r >= 0));
        }
    }
}
