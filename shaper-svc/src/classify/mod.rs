//! Whose turn a frame takes, read from its header.
//!
//! | frame | key |
//! |---|---|
//! | RoCEv2 (UDP to port 4791, over IPv4 or IPv6) | destination address and destination QP |
//! | other IP | addresses, protocol, and ports where the protocol has them |
//! | not IP | both MAC addresses and the type |
//! | IP fragments, and whatever contradicts itself | one key for all |
//!
//! QP numbers belong to a device, hence the address. VLAN tags, up to two, are
//! stepped over. Only the first [`HEAD_BYTES`] of a frame are read, however many
//! there are, so the answer does not depend on how a frame lies in memory.

mod bth;
mod head;
mod headers;
mod key;

pub use bth::{Bth, CNP_OPCODE};
pub use head::head_of;
pub use headers::{HEAD_BYTES, ROCE_PORT};

use headers::{Found, Plain};
use key::Spread;

/// What a header says of its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Whose turn the frame takes.
    pub key: u64,
    /// What kind of frame it is.
    pub kind: Kind,
}

/// Kinds of frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// RoCEv2, with its transport header.
    Roce(Bth),
    /// Any other IP packet.
    Flow,
    /// Not IP.
    Link,
    /// A fragment of an IP packet: only the first one tells its ports, so all
    /// fragments keep their order among each other.
    Fragment,
    /// A header that contradicts itself or is cut short.
    Malformed,
}

impl Verdict {
    /// Whether the frame is a congestion notification packet.
    #[inline]
    #[must_use]
    pub const fn is_cnp(&self) -> bool {
        matches!(self.kind, Kind::Roce(bth) if bth.is_cnp())
    }
}

/// Reads headers. Keys are spread with a seed, so that nobody can choose addresses
/// that crowd one place of the key table.
#[derive(Debug, Clone, Copy)]
pub struct Classifier {
    spread: Spread,
}

impl Classifier {
    /// A classifier whose keys depend on `seed` and the headers alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self {
            spread: Spread::new(seed),
        }
    }

    /// Reads the beginning of a frame, Ethernet header first: its first
    /// [`HEAD_BYTES`] bytes, or all if it is shorter. Takes any bytes.
    #[inline]
    #[must_use]
    pub fn classify(&self, head: &[u8]) -> Verdict {
        let plain = match headers::plain_kind(head) {
            Plain::Ipv4 => headers::read_plain_roce4(head)
                .map(|(to, bth)| (self.spread.roce4(to, bth.destination_qp), Kind::Roce(bth))),
            Plain::Ipv6 => headers::read_plain_roce6(head)
                .map(|(to, bth)| (self.spread.roce6(to, bth.destination_qp), Kind::Roce(bth))),
            Plain::Link(link) => Some((self.spread.link(&link), Kind::Link)),
            Plain::Other => None,
        };
        let Some((key, kind)) = plain else {
            return self.classify_any(head);
        };
        Verdict { key, kind }
    }

    /// The same for any frame, step by step.
    #[inline(never)]
    fn classify_any(&self, head: &[u8]) -> Verdict {
        let (key, kind) = match headers::read(head) {
            Found::Roce4(to, bth) => (self.spread.roce4(to, bth.destination_qp), Kind::Roce(bth)),
            Found::Roce6(to, bth) => (self.spread.roce6(to, bth.destination_qp), Kind::Roce(bth)),
            Found::Flow4(flow) => (self.spread.flow4(&flow), Kind::Flow),
            Found::Flow6(flow) => (self.spread.flow6(&flow), Kind::Flow),
            Found::Link(link) => (self.spread.link(&link), Kind::Link),
            Found::Fragment => (self.spread.odd(), Kind::Fragment),
            Found::Malformed => (self.spread.odd(), Kind::Malformed),
        };
        Verdict { key, kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLAIN4: [u8; 54] = [
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 17, 0, 0, 10,
        0, 0, 1, 10, 0, 0, 2, 0xc0, 1, 0x12, 0xb7, 0, 20, 0, 0, 4, 0, 0xff, 0xff, 0, 0, 0, 7, 0, 0,
        0, 9,
    ];

    fn plain6() -> Vec<u8> {
        let fixed = [0x86, 0xdd, 0x60, 0, 0, 0, 0, 20, 17, 64];
        [&PLAIN4[..12], &fixed, &[0xfd; 32], &PLAIN4[34..]].concat()
    }

    proptest! {
        /// The quick look at the commonest headers and the walk through all headers
        /// agree on them and on everything close to them.
        #[test]
        fn the_quick_look_agrees_with_the_walk(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            is_ipv6: bool,
            cut in 0_usize..14,
        ) {
            let classifier = Classifier::new(3);
            let mut head = if is_ipv6 { plain6() } else { PLAIN4.to_vec() };
            let kind = classifier.classify(&head).kind;
            prop_assert!(matches!(kind, Kind::Roce(bth) if bth.destination_qp == 7));
            for (at, value) in changes {
                let at = at.index(head.len());
                head[at] = value;
            }
            let head = &head[..head.len() - cut];
            prop_assert_eq!(classifier.classify(head), classifier.classify_any(head));
        }
    }
}
