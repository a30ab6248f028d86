//! The classifier on frames as they are sent, and on any bytes at all.

use proptest::prelude::*;
use rdmesh_shaper::classify::{Bth, Classifier, HEAD_BYTES, Kind, Verdict, head_of};

const SEED: u64 = 7;

fn classify(frame: &[u8]) -> Verdict {
    Classifier::new(SEED).classify(frame)
}

fn ethernet(tags: &[u16], kind: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    for tag in tags {
        frame.extend(tag.to_be_bytes());
        frame.extend([0, 42]);
    }
    frame.extend(kind.to_be_bytes());
    frame
}

/// What an IP packet carries.
#[derive(Debug, Clone)]
struct Packet {
    tags: Vec<u16>,
    /// Bytes of IPv4 options, a multiple of four.
    options: usize,
    to: u8,
    protocol: u8,
    fragment: u16,
    payload: Vec<u8>,
}

impl Packet {
    fn roce(destination_qp: u32, opcode: u8, psn: u32) -> Self {
        Self::udp(4791, &bth(destination_qp, opcode, psn))
    }

    fn udp(port: u16, payload: &[u8]) -> Self {
        let mut segment = vec![0xc0, 0x01];
        segment.extend(port.to_be_bytes());
        let bytes = u16::try_from(8 + payload.len()).expect("short");
        segment.extend(bytes.to_be_bytes());
        segment.extend([0, 0]);
        segment.extend(payload);
        Self {
            tags: vec![],
            options: 0,
            to: 9,
            protocol: 17,
            fragment: 0x4000,
            payload: segment,
        }
    }

    fn ipv4(&self) -> Vec<u8> {
        let mut frame = ethernet(&self.tags, 0x0800);
        let header = 20 + self.options;
        let total = u16::try_from(header + self.payload.len()).expect("short");
        frame.push(0x40 | u8::try_from(header / 4).expect("short"));
        frame.push(0);
        frame.extend(total.to_be_bytes());
        frame.extend([0, 0]);
        frame.extend(self.fragment.to_be_bytes());
        frame.extend([64, self.protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, self.to]);
        frame.extend(vec![1; self.options]);
        frame.extend(&self.payload);
        frame
    }

    /// With extension headers: each a kind and its bytes, next header left open.
    fn ipv6(&self, extensions: &[(u8, Vec<u8>)]) -> Vec<u8> {
        let mut frame = ethernet(&self.tags, 0x86dd);
        let kinds = extensions
            .iter()
            .map(|(kind, _)| *kind)
            .chain([self.protocol]);
        let kinds: Vec<u8> = kinds.collect();
        let bytes: usize = extensions.iter().map(|(_, bytes)| bytes.len()).sum();
        let payload = u16::try_from(bytes + self.payload.len()).expect("short");
        frame.extend([0x60, 0, 0, 0]);
        frame.extend(payload.to_be_bytes());
        frame.extend([kinds[0], 64]);
        frame.extend([0xfd; 15]);
        frame.push(1);
        frame.extend([0xfd; 15]);
        frame.push(self.to);
        for ((_, bytes), next) in extensions.iter().zip(&kinds[1..]) {
            frame.push(*next);
            frame.extend(&bytes[1..]);
        }
        frame.extend(&self.payload);
        frame
    }
}

fn bth(destination_qp: u32, opcode: u8, psn: u32) -> Vec<u8> {
    let mut header = vec![opcode, 0, 0xff, 0xff, 0];
    header.extend(&destination_qp.to_be_bytes()[1..]);
    header.push(0x80);
    header.extend(&psn.to_be_bytes()[1..]);
    header.extend([0; 32]);
    header
}

fn roce_kind(destination_qp: u32, opcode: u8, psn: u32) -> Kind {
    Kind::Roce(Bth {
        opcode,
        destination_qp,
        psn,
    })
}

#[test]
fn destination_qp_is_found_behind_every_kind_of_header() {
    let packet = Packet::roce(0x12_3456, 0x0a, 77);
    let plain = classify(&packet.ipv4());
    assert_eq!(plain.kind, roce_kind(0x12_3456, 0x0a, 77));
    for tags in [vec![0x8100], vec![0x88a8, 0x8100], vec![0x9100, 0x8100]] {
        for options in [0, 4, 40] {
            let frame = Packet {
                tags: tags.clone(),
                options,
                ..packet.clone()
            };
            assert_eq!(classify(&frame.ipv4()), plain, "{tags:?} {options}");
        }
    }
    let plain = classify(&packet.ipv6(&[]));
    assert_eq!(plain.kind, roce_kind(0x12_3456, 0x0a, 77));
    let options = |bytes: usize| {
        let mut header = vec![0; bytes];
        header[1] = u8::try_from(bytes / 8 - 1).expect("short");
        header
    };
    let authentication = vec![
        0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
    ];
    let whole = vec![0, 0, 0, 0, 1, 2, 3, 4];
    for extensions in [
        vec![(0, options(8))],
        vec![(0, options(16)), (60, options(8))],
        vec![(43, options(24))],
        vec![(51, authentication)],
        vec![(44, whole)],
    ] {
        assert_eq!(classify(&packet.ipv6(&extensions)), plain, "{extensions:?}");
    }
}

#[test]
fn address_and_qp_make_the_key() {
    let key = |packet: &Packet| classify(&packet.ipv4()).key;
    let packet = Packet::roce(5, 4, 1);
    let other_host = Packet {
        to: 10,
        ..packet.clone()
    };
    assert_eq!(key(&packet), key(&Packet::roce(5, 17, 900)));
    assert_ne!(key(&packet), key(&Packet::roce(6, 4, 1)));
    assert_ne!(key(&packet), key(&other_host));
    assert_ne!(key(&packet), classify(&packet.ipv6(&[])).key);
    let other_seed = Classifier::new(SEED + 1).classify(&packet.ipv4());
    assert_ne!(key(&packet), other_seed.key);
}

#[test]
fn a_cnp_is_known_by_its_opcode() {
    assert!(classify(&Packet::roce(5, 0x81, 0).ipv4()).is_cnp());
    assert!(classify(&Packet::roce(5, 0x81, 0).ipv6(&[])).is_cnp());
    assert!(!classify(&Packet::roce(5, 0x11, 0).ipv4()).is_cnp());
    let request = |opcode| {
        Bth {
            opcode,
            destination_qp: 0,
            psn: 0,
        }
        .is_reliable_request()
    };
    assert!(
        [0x00, 0x04, 0x0a, 0x0c, 0x14, 0x17]
            .into_iter()
            .all(request)
    );
    assert!(![0x0d, 0x11, 0x12, 0x64, 0x81].into_iter().any(request));
}

#[test]
fn another_port_or_protocol_is_not_roce() {
    let lookalike = Packet::udp(4790, &bth(5, 0x81, 0));
    assert_eq!(classify(&lookalike.ipv4()).kind, Kind::Flow);
    let tcp = Packet {
        protocol: 6,
        ..Packet::roce(5, 0x81, 0)
    };
    assert_eq!(classify(&tcp.ipv4()).kind, Kind::Flow);
    assert_eq!(classify(&tcp.ipv6(&[])).kind, Kind::Flow);
}

#[test]
fn other_traffic_is_keyed_by_flow() {
    let key = |packet: &Packet| classify(&packet.ipv4()).key;
    let flow = Packet::udp(53, b"query");
    assert_eq!(key(&flow), key(&Packet::udp(53, b"another")));
    assert_ne!(key(&flow), key(&Packet::udp(54, b"query")));
    assert_ne!(
        key(&flow),
        key(&Packet {
            to: 10,
            ..flow.clone()
        })
    );
    assert_ne!(
        key(&flow),
        key(&Packet {
            protocol: 6,
            ..flow.clone()
        })
    );
    let ping = Packet {
        protocol: 1,
        ..flow
    };
    let pong = Packet {
        payload: vec![0; 64],
        ..ping.clone()
    };
    assert_eq!(key(&ping), key(&pong));
}

#[test]
fn what_is_not_ip_is_keyed_by_its_stations() {
    let mut arp = ethernet(&[], 0x0806);
    arp.extend([0; 46]);
    let tagged = ethernet(&[0x8100], 0x0806);
    assert_eq!(classify(&arp).kind, Kind::Link);
    assert_eq!(classify(&arp), classify(&tagged));
    arp[0] ^= 4;
    assert_ne!(classify(&arp).key, classify(&tagged).key);
    assert_eq!(classify(&[0; 64]).kind, Kind::Link);
}

#[test]
fn fragments_and_malformed_headers_share_a_key() {
    let odd = classify(&[]);
    assert_eq!(odd.kind, Kind::Malformed);
    let roce = Packet::roce(5, 4, 1);
    for fragment in [0x2000, 0x0001, 0x2001] {
        let verdict = classify(
            &Packet {
                fragment,
                ..roce.clone()
            }
            .ipv4(),
        );
        assert_eq!((verdict.kind, verdict.key), (Kind::Fragment, odd.key));
    }
    let first_of_many = vec![0, 0, 0, 1, 1, 2, 3, 4];
    assert_eq!(
        classify(&roce.ipv6(&[(44, first_of_many)])).kind,
        Kind::Fragment
    );
    let mut frame = roce.ipv4();
    let bytes = frame.len();
    for (at, value) in [(14, 0x55), (14, 0x44), (17, 19), (17, 0)] {
        let mut broken = frame.clone();
        broken[at] = value;
        let verdict = classify(&broken);
        assert_eq!(
            (verdict.kind, verdict.key),
            (Kind::Malformed, odd.key),
            "{at}"
        );
    }
    for cut in [13, 20, 33, 35, 50] {
        assert_eq!(classify(&frame[..cut]).kind, Kind::Malformed, "{cut}");
    }
    // The transport header lies behind the end of the packet: padding.
    frame[17] = 20 + 8 + 11;
    assert_eq!(frame.len(), bytes);
    assert_eq!(classify(&frame).kind, Kind::Malformed);
    // So far out that it is not read.
    let mut options = vec![0; 56];
    options[1] = 6;
    let far = roce.ipv6(&[(60, options)]);
    assert_eq!(classify(&far).kind, Kind::Malformed);
}

proptest! {
    #[test]
    fn any_bytes_have_a_key_that_only_the_head_decides(
        mut frame in prop::collection::vec(any::<u8>(), 0..300),
        start in 0_usize..8,
        tail in any::<u8>(),
    ) {
        // Most random bytes are no IP packet; begin with one often.
        let seeds = [
            Packet::roce(1, 2, 3).ipv4(),
            Packet::roce(1, 2, 3).ipv6(&[]),
            Packet { options: 8, ..Packet::roce(1, 2, 3) }.ipv4(),
            ethernet(&[0x8100, 0x8100], 0x0800),
            ethernet(&[], 0x86dd),
        ];
        if let Some(seed) = seeds.get(start) {
            let bytes = seed.len().min(frame.len());
            let keep = bytes.min(frame.first().map_or(0, |first| usize::from(*first)));
            frame[..keep].copy_from_slice(&seed[..keep]);
        }
        let verdict = classify(&frame);
        if let Some(after) = frame.get_mut(HEAD_BYTES..) {
            after.fill(tail);
            prop_assert_eq!(classify(&frame), verdict);
        }
    }

    #[test]
    fn segments_do_not_matter(
        options in (0_usize..=10).prop_map(|words| words * 4),
        cuts in prop::collection::vec(0_usize..200, 0..8),
        payload in 0_usize..200,
    ) {
        let mut packet = Packet { options, tags: vec![0x8100], ..Packet::roce(99, 4, 1) };
        packet.payload.extend(vec![0; payload]);
        let frame = packet.ipv4();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(frame.len())).collect();
        cuts.extend([0, frame.len()]);
        cuts.sort_unstable();
        let segments = cuts.windows(2).map(|pair| &frame[pair[0]..pair[1]]);
        let mut buffer = [0; HEAD_BYTES];
        let head = head_of(segments, &mut buffer);
        prop_assert_eq!(head, &frame[..frame.len().min(HEAD_BYTES)]);
        prop_assert_eq!(classify(head).kind, roce_kind(99, 4, 1));
    }
}
