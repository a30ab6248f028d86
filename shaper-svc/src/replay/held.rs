//! Frames that wait at the wire, by the number that the engine carries.

use crate::capture::Record;

#[derive(Debug, Default)]
pub(super) struct Held {
    records: Vec<Option<Record>>,
    free: Vec<usize>,
}

impl Held {
    pub(super) fn put(&mut self, record: Record) -> u64 {
        let place = self.free.pop().unwrap_or_else(|| {
            self.records.push(None);
            self.records.len() - 1
        });
        self.records[place] = Some(record);
        place as u64
    }

    pub(super) fn take(&mut self, handle: u64) -> Option<Record> {
        let place = usize::try_from(handle).ok()?;
        let record = self.records.get_mut(place)?.take();
        if record.is_some() {
            self.free.push(place);
        }
        record
    }
}
