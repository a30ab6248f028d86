//! Keys: what tells flows apart, spread over 64 bits.
//!
//! Two flows may in principle fall on one key. They then take turns as one; nothing
//! is lost or reordered by that.

use super::headers::{Flow, Link};

/// Fractional digits of the golden ratio and of the square roots of 2 and 3: numbers
/// without a pattern that anyone can check.
const SECRETS: [u64; 3] = [
    0x9e37_79b9_7f4a_7c15,
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
];

/// What a key stands for; keeps kinds of frames apart.
#[derive(Debug, Clone, Copy)]
enum Tag {
    Roce4 = 1,
    Roce6,
    Flow4,
    Flow6,
    Link,
    Odd,
}

/// A tag and a value of 48 bits in one word: one step less.
#[inline]
const fn beside(tag: Tag, value: u64) -> u64 {
    (tag as u64) << 48 | value
}

/// Spreads what tells flows apart over 64 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spread {
    seed: u64,
}

impl Spread {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            seed: seed ^ SECRETS[0],
        }
    }

    /// One step: a 128-bit product folded onto itself.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    const fn mix(self, a: u64, b: u64) -> Self {
        let product = (a ^ self.seed) as u128 * (b ^ SECRETS[1]) as u128;
        Self {
            seed: (product as u64) ^ ((product >> 64) as u64) ^ SECRETS[2],
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
    const fn mix_address(self, address: u128) -> Self {
        self.mix((address >> 64) as u64, address as u64)
    }

    #[inline]
    const fn tagged(self, value: u64, tag: Tag) -> u64 {
        self.mix(value, tag as u64).seed
    }

    #[inline]
    pub(super) const fn roce4(self, to: u32, destination_qp: u32) -> u64 {
        self.tagged((to as u64) << 32 | destination_qp as u64, Tag::Roce4)
    }

    pub(super) const fn roce6(self, to: u128, destination_qp: u32) -> u64 {
        self.mix_address(to)
            .tagged(destination_qp as u64, Tag::Roce6)
    }

    pub(super) const fn flow4(self, flow: &Flow<u32>) -> u64 {
        let rest = (flow.protocol as u64) << 32 | flow.ports as u64;
        self.mix(
            (flow.from as u64) << 32 | flow.to as u64,
            beside(Tag::Flow4, rest),
        )
        .seed
    }

    pub(super) const fn flow6(self, flow: &Flow<u128>) -> u64 {
        self.mix_address(flow.from)
            .mix_address(flow.to)
            .tagged((flow.protocol as u64) << 32 | flow.ports as u64, Tag::Flow6)
    }

    #[inline]
    pub(super) const fn link(self, link: &Link) -> u64 {
        let rest = (link.second as u64) << 16 | link.kind as u64;
        self.mix(link.first, beside(Tag::Link, rest)).seed
    }

    #[inline]
    pub(super) const fn odd(self) -> u64 {
        self.tagged(0, Tag::Odd)
    }
}
