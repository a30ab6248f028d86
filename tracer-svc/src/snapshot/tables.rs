//! The tables of a message that rows point into.

use std::collections::HashMap;

use rdmesh_proto::tracer::v1 as wire;

use super::arguments::arguments;
use super::strings::Strings;
use super::words;
use crate::host::Devices;
use crate::identity::Registry;
use crate::record::{ProbeId, Record};
use crate::resolve::Report;

/// Bytes that paths and job ids of cgroups may take in one message. Beyond it a
/// cgroup goes without its path: its id is still exact.
const CGROUP_TEXT_BYTES: usize = 384 << 10;

/// Cgroups in one message: with 45 bytes for each of these the message stays
/// below its bound, also when no path finds room.
const CGROUPS: usize = 8192;

pub(super) struct Tables<'a> {
    report: &'a Report,
    devices: &'a Devices,
    registry: &'a mut Registry,
    strings: Strings,
    probe_places: HashMap<ProbeId, u32>,
    probes: wire::ProbeColumns,
    cgroup_places: HashMap<u64, u32>,
    cgroups: wire::CgroupColumns,
    cgroup_text_bytes: usize,
    stack_places: HashMap<Vec<u64>, u32>,
    stacks: wire::StackColumns,
}

impl<'a> Tables<'a> {
    pub(super) fn new(
        report: &'a Report,
        devices: &'a Devices,
        registry: &'a mut Registry,
    ) -> Self {
        let mut strings = Strings::default();
        // So that the empty text, which means "not known", is always place 0.
        strings.place(b"");
        Self {
            report,
            devices,
            registry,
            strings,
            probe_places: HashMap::new(),
            probes: wire::ProbeColumns::default(),
            cgroup_places: HashMap::new(),
            cgroups: wire::CgroupColumns::default(),
            cgroup_text_bytes: 0,
            stack_places: HashMap::new(),
            stacks: wire::StackColumns::default(),
        }
    }

    pub(super) fn string(&mut self, text: &[u8]) -> u32 {
        self.strings.place(text)
    }

    /// Whether a row may name a cgroup that is not in the message yet.
    pub(super) fn has_room(&self) -> bool {
        self.cgroup_places.len() < CGROUPS
    }

    pub(super) fn probe(&mut self, probe: ProbeId) -> u32 {
        if let Some(place) = self.probe_places.get(&probe) {
            return *place;
        }
        let place = u32::try_from(self.probe_places.len()).unwrap_or(u32::MAX);
        self.probe_places.insert(probe, place);
        let (function, module, hook) = match self.report.probe(probe) {
            Some(found) => (
                found.function.clone(),
                words::module(&found.module),
                Some(&found.hook),
            ),
            // Only when the report lacks it; the failure is not to be lost for that.
            None => (format!("probe_{}", probe.0), "", None),
        };
        let layer = hook.map_or(0, |h| words::layer(h.layer).into());
        let verb = hook.map_or(0, |h| words::verb(h).into());
        let object = hook.map_or(0, |h| words::object(h).into());
        self.probes
            .function
            .push(self.strings.place(function.as_bytes()));
        self.probes
            .module
            .push(self.strings.place(module.as_bytes()));
        self.probes.layer.push(layer);
        self.probes.verb.push(verb);
        self.probes.object.push(object);
        place
    }

    pub(super) fn cgroup(&mut self, id: u64) -> u32 {
        if let Some(place) = self.cgroup_places.get(&id) {
            return *place;
        }
        let place = u32::try_from(self.cgroup_places.len()).unwrap_or(u32::MAX);
        self.cgroup_places.insert(id, place);
        let info = self.registry.cgroup(id);
        let job_id = info.attempt.as_ref().map_or("", |(a, _)| a.job_id());
        let path = self.bounded(&info.path);
        let job = self.bounded(job_id.as_bytes());
        let attempt = info.attempt.as_ref().filter(|_| job != 0);
        self.cgroups.id.push(id);
        self.cgroups.path.push(path);
        self.cgroups.job_id.push(job);
        self.cgroups
            .requeue
            .push(attempt.map_or(0, |(a, _)| a.requeue));
        self.cgroups
            .restart
            .push(attempt.map_or(0, |(a, _)| a.restart));
        let source = attempt.map_or(crate::identity::Source::None, |(_, source)| *source);
        self.cgroups.source.push(words::source(source).into());
        place
    }

    fn bounded(&mut self, text: &[u8]) -> u32 {
        let added = self.strings.would_add(text);
        if self.cgroup_text_bytes + added > CGROUP_TEXT_BYTES {
            return 0;
        }
        self.cgroup_text_bytes += added;
        self.strings.place(text)
    }

    pub(super) fn push_device(&mut self, columns: &mut wire::DeviceColumns, name: &[u8]) {
        let known = std::str::from_utf8(name)
            .ok()
            .and_then(|n| self.devices.get(n));
        let (netdev, pci, driver) =
            known.map_or(("", "", ""), |d| (&d.netdev, &d.pci_address, &d.driver));
        columns.name.push(self.strings.place(name));
        columns.netdev.push(self.strings.place(netdev.as_bytes()));
        columns.pci.push(self.strings.place(pci.as_bytes()));
        columns.driver.push(self.strings.place(driver.as_bytes()));
    }

    /// Adds a record of the sample that is written, whose chain began at `first_boot_ns`.
    pub(super) fn push_record(
        &mut self,
        samples: &mut wire::SampleColumns,
        record: &Record,
        first_boot_ns: u64,
    ) {
        let after = record.boot_ns.wrapping_sub(first_boot_ns).cast_signed();
        samples.after_first_ns.push(after);
        samples.probe.push(self.probe(record.probe));
        samples.errno.push(u32::from(record.errno));
        samples.stack_plus_one.push(self.stack_plus_one(record));
        let place = match arguments(record) {
            Some(read) => {
                samples.arguments.push(read);
                samples.arguments.len()
            }
            None => 0,
        };
        // The budget of a message keeps this far below 2^32.
        let place = u32::try_from(place).unwrap_or(u32::MAX);
        samples.arguments_plus_one.push(place);
    }

    fn stack_plus_one(&mut self, record: &Record) -> u32 {
        let frames = record.stack.iter().copied().take_while(|a| *a != 0);
        let stack: Vec<u64> = frames.collect();
        if stack.is_empty() {
            return 0;
        }
        if let Some(place) = self.stack_places.get(&stack) {
            return *place;
        }
        // Symbols are not looked up on the host.
        self.stacks.address.extend(&stack);
        let frames = u32::try_from(stack.len()).unwrap_or(u32::MAX);
        self.stacks.frames.push(frames);
        let place = u32::try_from(self.stacks.frames.len()).unwrap_or(u32::MAX);
        self.stack_places.insert(stack, place);
        place
    }

    pub(super) fn finish(self, snapshot: &mut wire::Snapshot) {
        snapshot.probes = Some(self.probes);
        snapshot.cgroups = Some(self.cgroups);
        snapshot.stacks = Some(self.stacks).filter(|stacks| !stacks.frames.is_empty());
        snapshot.strings = self.strings.into_texts();
    }
}
