//! Writing a small BTF.

use std::collections::HashMap;

use super::Kind;

/// Collects types and strings and writes them as one BTF.
#[derive(Debug)]
pub struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    known: HashMap<Vec<u8>, u32>,
    count: u32,
    /// Ids and strings of the BTF that this one continues, if any.
    before: (u32, u32),
}

impl Default for Writer {
    fn default() -> Self {
        Self {
            types: Vec::new(),
            // Offset 0 is the empty name.
            strings: vec![0],
            known: HashMap::new(),
            count: 0,
            before: (0, 0),
        }
    }
}

impl Writer {
    /// A writer of a module's BTF, which continues that of the kernel: `types`
    /// and `strings` are how many types and bytes of strings the other one has.
    #[must_use]
    pub fn continuing(types: u32, strings: u32) -> Self {
        Self {
            strings: Vec::new(),
            before: (types, strings),
            ..Self::default()
        }
    }

    /// Offset of a string, added once.
    pub fn string(&mut self, name: &[u8]) -> u32 {
        if name.is_empty() {
            return 0;
        }
        if let Some(offset) = self.known.get(name) {
            return *offset;
        }
        let offset = self.before.1 + u32::try_from(self.strings.len()).unwrap_or(0);
        self.strings.extend_from_slice(name);
        self.strings.push(0);
        self.known.insert(name.to_vec(), offset);
        offset
    }

    /// The id that the next [`Writer::add`] will give.
    #[must_use]
    pub fn next_id(&self) -> u32 {
        self.before.0 + self.count + 1
    }

    /// Adds a type; `extra` are its members or the like as words. Returns its id.
    pub fn add(
        &mut self,
        name: u32,
        kind: Kind,
        (vlen, flag): (u32, bool),
        size_or_type: u32,
        extra: &[u32],
    ) -> u32 {
        let info = u32::from(flag) << 31 | u32::from(kind as u8) << 24 | (vlen & 0xffff);
        for word in [name, info, size_or_type].iter().chain(extra) {
            self.types.extend_from_slice(&word.to_ne_bytes());
        }
        self.count += 1;
        self.before.0 + self.count
    }

    /// The whole as bytes.
    #[must_use]
    pub fn finish(&self) -> Vec<u8> {
        let types = u32::try_from(self.types.len()).unwrap_or(0);
        let strings = u32::try_from(self.strings.len()).unwrap_or(0);
        let mut out = Vec::with_capacity(24 + self.types.len() + self.strings.len());
        out.extend_from_slice(&0xeb9f_u16.to_ne_bytes());
        // Version 1, no flags.
        out.extend_from_slice(&[1, 0]);
        for word in [24, 0, types, types, strings] {
            out.extend_from_slice(&u32::to_ne_bytes(word));
        }
        out.extend_from_slice(&self.types);
        out.extend_from_slice(&self.strings);
        out
    }
}
