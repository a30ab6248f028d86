//! The text dictionary of a message.

use std::collections::HashMap;

/// Each text once, in order of first use.
#[derive(Debug, Default)]
pub(super) struct Strings {
    places: HashMap<Vec<u8>, u32>,
    texts: Vec<Vec<u8>>,
}

impl Strings {
    /// Place of a text in the dictionary.
    pub(super) fn place(&mut self, text: &[u8]) -> u32 {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        // The budget of a message keeps this far below 2^32.
        let place = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_vec());
        self.places.insert(text.to_vec(), place);
        place
    }

    /// Bytes that a text would add to the message.
    pub(super) fn would_add(&self, text: &[u8]) -> usize {
        if self.places.contains_key(text) {
            0
        } else {
            cost(text)
        }
    }

    pub(super) fn into_texts(self) -> Vec<Vec<u8>> {
        self.texts
    }
}

/// A tag, a length of at most four bytes, the text.
fn cost(text: &[u8]) -> usize {
    text.len() + 5
}
