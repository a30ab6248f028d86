//! The classifier, per header.

use super::Figure;
use crate::classify::{Classifier, HEAD_BYTES};
use std::hint::black_box;
use std::time::Instant;

/// Headers of one round: below a millisecond, so that most rounds are not interrupted.
const ROUND_HEADS: usize = 40_000;

/// Rounds of one figure.
const ROUNDS: usize = 101;

/// Different headers: as many as a busy host has queue pairs in use.
const KEYS: u8 = 64;

/// A kind of header.
#[derive(Debug, Clone, Copy)]
pub struct Head {
    name: &'static str,
    bytes: fn(u8) -> Vec<u8>,
}

/// All kinds that are measured.
pub static HEADS: [Head; 3] = [
    Head {
        name: "zero",
        bytes: |_| Vec::new(),
    },
    Head {
        name: "roce4",
        bytes: roce4,
    },
    Head {
        name: "roce6",
        bytes: roce6,
    },
];

impl Head {
    /// The name of its figure.
    #[must_use]
    pub fn name(&self) -> String {
        format!("shaper.classify.{}.ns", self.name)
    }

    /// Nanoseconds per header.
    #[must_use]
    pub fn measure(&self) -> Figure {
        let heads = self.heads();
        let rounds = (0..ROUNDS).map(|_| round(&heads)).collect();
        Figure::median_of(self.name(), "ns", rounds)
    }

    fn heads(&self) -> Vec<Vec<u8>> {
        let head = |queue_pair| {
            let mut head = (self.bytes)(queue_pair);
            head.resize(HEAD_BYTES, 0);
            head
        };
        (0..KEYS).map(head).collect()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a count of headers")]
fn round(heads: &[Vec<u8>]) -> f64 {
    let classifier = Classifier::new(1);
    let from = Instant::now();
    for head in heads.iter().cycle().take(ROUND_HEADS) {
        black_box(classifier.classify(black_box(head)));
    }
    from.elapsed().as_secs_f64() * 1e9 / ROUND_HEADS as f64
}

fn ethernet(kind: [u8; 2]) -> Vec<u8> {
    [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2][..], &kind].concat()
}

/// UDP to port 4791 and a transport header.
fn transport(queue_pair: u8) -> Vec<u8> {
    let udp = [0xc0, 0x01, 0x12, 0xb7, 4, 20, 0, 0];
    let bth = [4, 0, 0xff, 0xff, 0, 0, 0, queue_pair, 0, 0, 0, 1];
    [&udp[..], &bth].concat()
}

fn roce4(queue_pair: u8) -> Vec<u8> {
    let mut head = ethernet([0x08, 0x00]);
    head.extend([0x45, 0, 4, 40, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    head.extend([10, 0, 0, 1, 10, 0, 0, 2]);
    head.extend(transport(queue_pair));
    head
}

fn roce6(queue_pair: u8) -> Vec<u8> {
    let mut head = ethernet([0x86, 0xdd]);
    head.extend([0x60, 0, 0, 0, 4, 20, 17, 64]);
    head.extend([0xfd; 32]);
    head.extend(transport(queue_pair));
    head
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::classify::Kind;

    #[test]
    fn the_headers_are_what_they_say() {
        let classifier = Classifier::new(1);
        let kinds = HEADS.map(|head| classifier.classify(&head.heads()[5]).kind);
        assert_eq!(kinds[0], Kind::Link);
        for kind in &kinds[1..] {
            assert!(matches!(kind, Kind::Roce(bth) if bth.destination_qp == 5));
        }
    }
}
