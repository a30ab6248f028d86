//! What a snapshot weighs once it is rows, told from its columns before a row is made.
//!
//! A message names a text once and points to it from any number of rows, so a few
//! kilobytes can become gigabytes of rows. Here each row is counted with the texts that it
//! will hold; what is too heavy is refused before it takes memory.

use rdmesh_proto::tracer::v1::{ProbeCountColumns, Snapshot};

use crate::ingest::columns::Refusal;
use crate::ingest::limits::{ITEM_MAX_BYTES, TEXT_MAX_BYTES};

/// A row's fixed part in memory: a chain has some 400 bytes and the heads of ten
/// allocations, all other rows less.
pub(crate) const ROW_BYTES: usize = 512;
/// A step's fixed part: two texts, two numbers, the heads of their allocations.
const STEP_BYTES: usize = 96;
/// The arguments of a chain, as JSON: the longest, of modify_qp, has about as much.
const ARGUMENTS_BYTES: usize = 1_024;

/// Texts of a snapshot, by their place.
struct Texts<'a>(&'a [Vec<u8>]);

impl Texts<'_> {
    /// What a text will take; an index that points nowhere is refused later.
    fn at(&self, index: u32) -> usize {
        let text = usize::try_from(index).ok().and_then(|i| self.0.get(i));
        text.map_or(0, |text| text.len().min(TEXT_MAX_BYTES))
    }

    /// Rows that hold the texts of these columns.
    fn rows(&self, columns: &[&[u32]]) -> usize {
        let rows = columns.iter().map(|column| column.len()).max().unwrap_or(0);
        let texts = columns.iter().flat_map(|column| column.iter());
        rows * ROW_BYTES + texts.map(|index| self.at(*index)).sum::<usize>()
    }
}

/// Weights of a table's rows, by their place.
struct Weights(Vec<usize>);

impl Weights {
    fn at(&self, index: u32) -> usize {
        let weight = usize::try_from(index).ok().and_then(|i| self.0.get(i));
        weight.copied().unwrap_or(0)
    }
}

/// Bytes that the rows of `snapshot` will take, its tables included.
///
/// # Errors
/// When they are more than an item may take.
pub(crate) fn weigh(snapshot: &Snapshot) -> Result<usize, Refusal> {
    let texts = Texts(&snapshot.strings);
    let own: usize = (0..snapshot.strings.len())
        .map(|index| STEP_BYTES + texts.at(u32::try_from(index).unwrap_or(u32::MAX)))
        .sum();
    let probes = probe_weights(snapshot, &texts);
    let cgroups = cgroup_weights(snapshot, &texts);
    let bytes = [
        own,
        tables(snapshot, &texts),
        chains(snapshot, &texts, &probes, &cgroups),
        counters(snapshot, &probes, &cgroups),
        signals(snapshot, &texts),
        snapshot
            .samples
            .as_ref()
            .map_or(0, |samples| samples.chain.len() * ARGUMENTS_BYTES),
    ]
    .into_iter()
    .fold(0, usize::saturating_add);
    if bytes > ITEM_MAX_BYTES {
        return Err(Refusal::value(
            "snapshot",
            format!("{bytes} bytes once its rows are written out"),
            &format!("at most {ITEM_MAX_BYTES}; report fewer chains or counters at once"),
        ));
    }
    Ok(bytes)
}

fn probe_weights(snapshot: &Snapshot, texts: &Texts<'_>) -> Weights {
    let Some(probes) = &snapshot.probes else {
        return Weights(Vec::new());
    };
    let names = probes.function.iter().zip(&probes.module);
    Weights(
        names
            .map(|(function, module)| texts.at(*function) + texts.at(*module))
            .collect(),
    )
}

fn cgroup_weights(snapshot: &Snapshot, texts: &Texts<'_>) -> Weights {
    let Some(cgroups) = &snapshot.cgroups else {
        return Weights(Vec::new());
    };
    let named = cgroups.path.iter().zip(&cgroups.job_id);
    Weights(
        named
            .map(|(path, job)| texts.at(*path) + texts.at(*job))
            .collect(),
    )
}

/// The tables that chains and counters point into.
fn tables(snapshot: &Snapshot, texts: &Texts<'_>) -> usize {
    let mut bytes = 0;
    if let Some(probes) = &snapshot.probes {
        bytes += texts.rows(&[&probes.function, &probes.module]);
    }
    if let Some(cgroups) = &snapshot.cgroups {
        bytes += texts.rows(&[&cgroups.path, &cgroups.job_id]);
    }
    if let Some(tasks) = &snapshot.tasks {
        bytes += texts.rows(&[&tasks.comm, &tasks.job_id]);
    }
    if let Some(devices) = &snapshot.devices {
        bytes += texts.rows(&[&devices.name, &devices.netdev, &devices.pci]);
    }
    bytes
}

fn chains(snapshot: &Snapshot, texts: &Texts<'_>, probes: &Weights, cgroups: &Weights) -> usize {
    let mut signatures = Vec::new();
    let mut bytes = 0;
    if let Some(columns) = &snapshot.signatures {
        let mut steps = columns.step_probe.iter();
        for (driver, count) in columns.driver.iter().zip(&columns.steps) {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            let own = steps.by_ref().take(count);
            let weight: usize = own.map(|probe| STEP_BYTES + probes.at(*probe)).sum();
            signatures.push(weight + texts.at(*driver));
        }
        bytes += signatures.len() * ROW_BYTES + signatures.iter().sum::<usize>();
    }
    let Some(columns) = &snapshot.chains else {
        return bytes;
    };
    let signatures = Weights(signatures);
    let tasks = Weights(snapshot.tasks.as_ref().map_or_else(Vec::new, |tasks| {
        let named = tasks.comm.iter().zip(&tasks.job_id).zip(&tasks.cgroup);
        named
            .map(|((comm, job), cgroup)| texts.at(*comm) + texts.at(*job) + cgroups.at(*cgroup))
            .collect()
    }));
    let devices = Weights(snapshot.devices.as_ref().map_or_else(Vec::new, |devices| {
        let named = devices.name.iter().zip(&devices.netdev).zip(&devices.pci);
        named
            .map(|((name, netdev), pci)| texts.at(*name) + texts.at(*netdev) + texts.at(*pci))
            .collect()
    }));
    let sum = |column: &[u32], weights: &Weights| -> usize {
        column.iter().map(|index| weights.at(*index)).sum()
    };
    let of_devices = columns.device_plus_one.iter();
    bytes
        + columns.signature.len() * ROW_BYTES
        + sum(&columns.signature, &signatures)
        + sum(&columns.task, &tasks)
        + of_devices
            .filter_map(|index| index.checked_sub(1))
            .map(|index| devices.at(index))
            .sum::<usize>()
}

fn counters(snapshot: &Snapshot, probes: &Weights, cgroups: &Weights) -> usize {
    let by_probe = |column: &[u32]| -> usize {
        column
            .iter()
            .map(|probe| ROW_BYTES + probes.at(*probe))
            .sum()
    };
    let losses = [&snapshot.overflow, &snapshot.drops, &snapshot.unseen];
    let of_losses = |columns: &ProbeCountColumns| by_probe(&columns.probe);
    let mut bytes: usize = losses.into_iter().flatten().map(of_losses).sum();
    if let Some(columns) = &snapshot.counters {
        bytes += by_probe(&columns.probe);
    }
    if let Some(columns) = &snapshot.cgroup_counters {
        bytes += by_probe(&columns.probe);
        let of_cgroups = columns.cgroup.iter();
        bytes += of_cgroups.map(|index| cgroups.at(*index)).sum::<usize>();
    }
    bytes
}

fn signals(snapshot: &Snapshot, texts: &Texts<'_>) -> usize {
    let Some(columns) = &snapshot.co_signals else {
        return 0;
    };
    texts.rows(&[&columns.name, &columns.detail])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rdmesh_proto::tracer::v1::{
        CgroupColumns, ChainColumns, CounterColumns, ProbeColumns, SignatureColumns, TaskColumns,
    };

    /// `chains` chains of one signature whose one function has a name of `name` bytes.
    fn snapshot(chains: usize, name: usize) -> Snapshot {
        Snapshot {
            strings: vec![Vec::new(), vec![b'f'; name]],
            probes: Some(ProbeColumns {
                function: vec![1],
                module: vec![0],
                ..ProbeColumns::default()
            }),
            signatures: Some(SignatureColumns {
                driver: vec![0],
                steps: vec![1],
                step_probe: vec![0],
                step_errno: vec![14],
            }),
            cgroups: Some(CgroupColumns {
                path: vec![0],
                job_id: vec![0],
                ..CgroupColumns::default()
            }),
            tasks: Some(TaskColumns {
                comm: vec![0],
                job_id: vec![0],
                cgroup: vec![0],
                ..TaskColumns::default()
            }),
            chains: Some(ChainColumns {
                signature: vec![0; chains],
                task: vec![0; chains],
                ..ChainColumns::default()
            }),
            ..Snapshot::default()
        }
    }

    #[test]
    fn a_row_weighs_what_it_will_hold() {
        let one = weigh(&snapshot(1, 100)).unwrap();
        let two = weigh(&snapshot(2, 100)).unwrap();
        assert_eq!(two - one, ROW_BYTES + STEP_BYTES + 100);
        let mut counted = snapshot(1, 100);
        counted.counters = Some(CounterColumns {
            probe: vec![0; 10],
            ..CounterColumns::default()
        });
        let with_counters = weigh(&counted).unwrap();
        assert_eq!(with_counters - one, 10 * (ROW_BYTES + 100));
        // Indices that point nowhere are somebody else's to refuse.
        counted.counters = Some(CounterColumns {
            probe: vec![u32::MAX; 10],
            ..CounterColumns::default()
        });
        assert_eq!(weigh(&counted).unwrap() - one, 10 * ROW_BYTES);
    }

    #[test]
    fn a_small_message_of_gigabytes_of_rows_is_refused() {
        let heavy = weigh(&snapshot(65_536, 4_096)).unwrap_err().to_string();
        assert!(heavy.starts_with("snapshot is 3"), "{heavy}");
        assert!(heavy.contains("fewer chains or counters"), "{heavy}");
        // What a tracer sends at most is far from it.
        assert!(weigh(&snapshot(4_096, 32)).unwrap() < ITEM_MAX_BYTES / 8);
    }
}
