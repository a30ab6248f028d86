use proptest::prelude::*;

use super::*;
use crate::port::memory::{Frames, MemoryPort};

/// Sum of RFC 1071, from nothing.
fn checksum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or_default()
}

/// A RoCEv2 frame over IPv4 with this type of service, and a right checksum.
fn ipv4(tags: &[[u8; 4]], tos: u8, words: [u16; 4]) -> Vec<u8> {
    let mut frame = vec![2; 12];
    tags.iter().for_each(|tag| frame.extend(tag));
    frame.extend(TYPE_IPV4);
    let at = frame.len();
    frame.extend([0x45, tos]);
    words
        .iter()
        .for_each(|word| frame.extend(word.to_be_bytes()));
    frame.extend([0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame[at + 9] = 17;
    frame[at + 10..at + 12].fill(0);
    let sum = checksum(&frame[at..at + 20]);
    frame[at + 10..at + 12].copy_from_slice(&sum.to_be_bytes());
    // UDP, transport header, payload, ICRC.
    frame.extend([0xc0, 1, 0x12, 0xb7, 0, 40, 0, 0, 4]);
    frame.extend(1..40);
    frame
}

fn ipv6(class: u8) -> Vec<u8> {
    let mut frame = vec![2; 12];
    frame.extend(TYPE_IPV6);
    frame.extend([0x60 | class >> 4, class << 4 | 0x5, 0x12, 0x34]);
    frame.extend([0; 76]);
    frame
}

proptest! {
    /// Only the two bits and the checksum change, and the checksum is right: no other
    /// bit that an ICRC covers.
    #[test]
    fn a_mark_changes_nothing_but_ecn_and_a_right_checksum(
        tos: u8,
        words: [u16; 4],
        tags in prop::sample::select(vec![0_usize, 1, 2]),
    ) {
        let tags = &[[0x88, 0xa8, 0, 5], [0x81, 0, 0, 9]][2 - tags..];
        let before = ipv4(tags, tos, words);
        let mut after = before.clone();
        let marked = mark_ce(&mut after);
        prop_assert_eq!(marked, matches!(tos & 3, 1 | 2));
        let at = 14 + 4 * tags.len();
        prop_assert_eq!(checksum(&after[at..at + 20]), 0, "the sum over all is right");
        let mut expected = before;
        if marked {
            expected[at + 1] |= 3;
            expected[at + 10..at + 12].copy_from_slice(&after[at + 10..at + 12]);
        }
        prop_assert_eq!(after, expected);
    }

    #[test]
    fn any_bytes_are_marked_or_left_alone(mut head in prop::collection::vec(any::<u8>(), 0..128)) {
        let before = head.clone();
        if !mark_ce(&mut head) {
            prop_assert_eq!(head, before);
        }
    }
}

#[test]
fn ipv6_is_marked_in_its_traffic_class() {
    for class in 0..=255 {
        let before = ipv6(class);
        let mut after = before.clone();
        let marked = mark_ce(&mut after);
        assert_eq!(marked, matches!(class & 3, 1 | 2));
        let expected = if marked { ipv6(class | 3) } else { before };
        assert_eq!(after, expected, "class {class:#x}");
    }
    assert!(!mark_ce(&mut ipv6(2)[..50]), "a header that is cut");
}

const MARKING: Marking = Marking {
    kmin_bytes: 40_000,
    kmax_bytes: 160_000,
    pmax_permille: 200,
};

/// Share of marks at a depth, thousandths.
fn share_at(depth: u64, seed: u64) -> u64 {
    let mut marker = Marker::new(MARKING, seed);
    (0..100_000).filter(|_| marker.draw(depth)).count() as u64 / 100
}

#[test]
fn the_share_of_marks_follows_the_profile() {
    for (depth, expected) in [
        (0, 0),
        (40_000, 0),
        (70_000, 50),
        (100_000, 100),
        (159_999, 200),
        (160_000, 1000),
        (u64::MAX, 1000),
    ] {
        let share = share_at(depth, 7);
        assert!(share.abs_diff(expected) <= 5, "{share} of 1,000 at {depth}");
    }
    assert_eq!(share_at(100_000, 7), share_at(100_000, 7), "the same seed");
}

#[test]
fn cnps_and_those_who_cannot_be_told_are_left_alone() {
    let frames = Frames::default();
    let mut port = MemoryPort::new(&frames);
    for tos in [2, 2, 0, 3] {
        port.arrive(ipv4(&[], tos, [100, 1, 0, 0x4000]));
    }
    let mut handles = Vec::new();
    port.receive(BURST, |_, _| (), |handle, ()| handles.push(handle));
    let departures: Vec<_> = handles
        .iter()
        .enumerate()
        .map(|(at, _)| Departure {
            len: 100,
            is_cnp: at == 0,
            ..Departure::default()
        })
        .collect();
    let mut marker = Marker::new(MARKING, 1);
    marker.arrived(200_000);
    marker.mark(&mut port, &departures, &mut handles);
    assert_eq!((marker.take_marks(), marker.take_marks()), (1, 0));
    let ecn = |at: usize| frames.bytes_of(handles[at]).map(|bytes| bytes[15] & 3);
    assert_eq!([0, 1, 2, 3].map(ecn), [Some(2), Some(3), Some(0), Some(3)]);
    // Below the depth nobody is looked at.
    marker.departed(&departures);
    marker.queued_bytes = 40_000;
    marker.mark(&mut port, &departures, &mut handles);
    assert_eq!(marker.take_marks(), 0);
}
