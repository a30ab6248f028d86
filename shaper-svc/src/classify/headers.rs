//! Ethernet, VLAN, IPv4, IPv6 and UDP headers, as far as a key needs them.

use super::bth::{BTH_BYTES, Bth};

/// How much of a frame is read. Ethernet with two tags, an IPv4 header of full
/// length, UDP and the RoCE transport header are 102 bytes; IPv6 leaves 46 for
/// extension headers. Ports give at least as much in one piece.
pub const HEAD_BYTES: usize = 128;

/// UDP destination port of RoCEv2 (IANA, `roce`).
pub const ROCE_PORT: u16 = 4791;

const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPE_8021Q: u16 = 0x8100;
const TYPE_8021AD: u16 = 0x88a8;
/// What QinQ used before 802.1ad.
const TYPE_QINQ: u16 = 0x9100;
/// Tags that are stepped over: QinQ has two.
const MOST_TAGS: usize = 2;

/// Of the fragment field of IPv4 all but "do not fragment" and the reserved bit: more
/// to come, or an offset.
const NOT_WHOLE: u16 = 0x3fff;

const HOP_BY_HOP: u8 = 0;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const DESTINATION_OPTIONS: u8 = 60;
const SCTP: u8 = 132;
const MOBILITY: u8 = 135;
const UDP_LITE: u8 = 136;
const HIP: u8 = 139;
const SHIM6: u8 = 140;

/// Addresses, protocol and ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flow<A> {
    pub(super) from: A,
    pub(super) to: A,
    pub(super) protocol: u8,
    /// Source and destination port; zero where the protocol has none.
    pub(super) ports: u32,
}

/// The stations of a frame and its type, tags left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    /// The first eight bytes: destination, and two bytes of the source.
    pub(super) first: u64,
    /// The rest of the source.
    pub(super) second: u32,
    pub(super) kind: u16,
}

impl Link {
    #[inline]
    fn of(header: &[u8; 14], kind: u16) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l, ..] = *header;
        Self {
            first: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            second: u32::from_be_bytes([i, j, k, l]),
            kind,
        }
    }
}

/// What the headers of a frame are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Roce4(u32, Bth),
    Roce6(u128, Bth),
    Flow4(Flow<u32>),
    Flow6(Flow<u128>),
    Link(Link),
    Fragment,
    Malformed,
}

/// What follows the IP header.
enum Transport {
    Roce(Bth),
    Ports(u32),
    Malformed,
}

/// Bytes of the commonest headers: Ethernet, IPv4 without options or IPv6 without
/// extensions, UDP, and the transport header.
const PLAIN_ROCE4_BYTES: usize = 14 + 20 + PLAIN_SEGMENT_BYTES as usize;
const PLAIN_ROCE6_BYTES: usize = 14 + 40 + PLAIN_SEGMENT_BYTES as usize;

/// UDP and the transport header, bytes.
const PLAIN_SEGMENT_BYTES: u16 = 8 + 12;

/// Frames by their type, where [`read`] need not go step by step.
pub(super) enum Plain {
    Ipv4,
    Ipv6,
    /// Neither IP nor tagged.
    Link(Link),
    /// Tagged, or cut short.
    Other,
}

/// One look at the type.
#[inline]
pub(super) fn plain_kind(head: &[u8]) -> Plain {
    let Some(header) = head.first_chunk::<14>() else {
        return Plain::Other;
    };
    match u16::from_be_bytes([header[12], header[13]]) {
        TYPE_IPV4 => Plain::Ipv4,
        TYPE_IPV6 => Plain::Ipv6,
        TYPE_8021Q | TYPE_8021AD | TYPE_QINQ => Plain::Other,
        kind => Plain::Link(Link::of(header, kind)),
    }
}

/// One look at fixed places of a frame whose type is IPv4: the same as [`read`] for
/// RoCEv2 without options, nothing for any other frame.
#[inline]
pub(super) fn read_plain_roce4(head: &[u8]) -> Option<(u32, Bth)> {
    let head = head.first_chunk::<PLAIN_ROCE4_BYTES>()?;
    let is_plain = head[14] == 0x45
        && head[23] == UDP
        && head[36..38] == ROCE_PORT.to_be_bytes()
        && u16::from_be_bytes([head[20], head[21]]) & NOT_WHOLE == 0
        && u16::from_be_bytes([head[16], head[17]]) >= 20 + PLAIN_SEGMENT_BYTES;
    let bth = head.last_chunk::<BTH_BYTES>()?;
    let to = u32::from_be_bytes([head[30], head[31], head[32], head[33]]);
    is_plain.then(|| (to, Bth::read(*bth)))
}

/// The same for RoCEv2 over IPv6 without extensions.
#[inline]
pub(super) fn read_plain_roce6(head: &[u8]) -> Option<(u128, Bth)> {
    let head = head.first_chunk::<PLAIN_ROCE6_BYTES>()?;
    let is_plain = head[14] >> 4 == 6
        && head[20] == UDP
        && head[56..58] == ROCE_PORT.to_be_bytes()
        && u16::from_be_bytes([head[18], head[19]]) >= PLAIN_SEGMENT_BYTES;
    let bth = head.last_chunk::<BTH_BYTES>()?;
    let to = head[38..54].first_chunk::<16>()?;
    is_plain.then(|| (u128::from_be_bytes(*to), Bth::read(*bth)))
}

/// Reads the first [`HEAD_BYTES`] of a frame.
pub(super) fn read(head: &[u8]) -> Found {
    let head = head.get(..HEAD_BYTES).unwrap_or(head);
    let Some(link) = head.first_chunk::<14>() else {
        return Found::Malformed;
    };
    let mut kind = u16::from_be_bytes([link[12], link[13]]);
    let mut rest = &head[14..];
    let mut tags = 0;
    while matches!(kind, TYPE_8021Q | TYPE_8021AD | TYPE_QINQ) && tags < MOST_TAGS {
        let Some((tag, after)) = rest.split_first_chunk::<4>() else {
            return Found::Malformed;
        };
        kind = u16::from_be_bytes([tag[2], tag[3]]);
        rest = after;
        tags += 1;
    }
    match kind {
        TYPE_IPV4 => read_ipv4(rest).unwrap_or(Found::Malformed),
        TYPE_IPV6 => read_ipv6(rest).unwrap_or(Found::Malformed),
        _ => Found::Link(Link::of(link, kind)),
    }
}

#[inline]
fn read_ipv4(packet: &[u8]) -> Option<Found> {
    let fixed = packet.first_chunk::<20>()?;
    let header_bytes = usize::from(fixed[0] & 0x0f) * 4;
    let total_bytes = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if fixed[0] >> 4 != 4 || header_bytes < 20 || total_bytes < header_bytes {
        return None;
    }
    if u16::from_be_bytes([fixed[6], fixed[7]]) & NOT_WHOLE != 0 {
        return Some(Found::Fragment);
    }
    let from = u32::from_be_bytes([fixed[12], fixed[13], fixed[14], fixed[15]]);
    let to = u32::from_be_bytes([fixed[16], fixed[17], fixed[18], fixed[19]]);
    let protocol = fixed[9];
    // Padding behind a short packet is no part of it.
    let packet = packet.get(..total_bytes).unwrap_or(packet);
    match read_transport(protocol, packet.get(header_bytes..)?) {
        Transport::Roce(bth) => Some(Found::Roce4(to, bth)),
        Transport::Ports(ports) => Some(Found::Flow4(Flow {
            from,
            to,
            protocol,
            ports,
        })),
        Transport::Malformed => None,
    }
}

fn read_ipv6(packet: &[u8]) -> Option<Found> {
    let (fixed, rest) = packet.split_first_chunk::<40>()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    let payload_bytes = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let address = |from: usize| {
        let bytes = fixed.get(from..from + 16)?.first_chunk::<16>()?;
        Some(u128::from_be_bytes(*bytes))
    };
    let (from, to) = (address(8)?, address(24)?);
    let payload = rest.get(..payload_bytes).unwrap_or(rest);
    let (protocol, payload) = match skip_extensions(fixed[6], payload)? {
        Extensions::Fragment => return Some(Found::Fragment),
        Extensions::Over(protocol, payload) => (protocol, payload),
    };
    match read_transport(protocol, payload) {
        Transport::Roce(bth) => Some(Found::Roce6(to, bth)),
        Transport::Ports(ports) => Some(Found::Flow6(Flow {
            from,
            to,
            protocol,
            ports,
        })),
        Transport::Malformed => None,
    }
}

enum Extensions<'a> {
    Fragment,
    Over(u8, &'a [u8]),
}

/// Steps over extension headers (RFC 8200). Each takes eight bytes at least, so the
/// bytes at hand bound their number.
fn skip_extensions(first: u8, payload: &[u8]) -> Option<Extensions<'_>> {
    let (mut kind, mut rest) = (first, payload);
    loop {
        let bytes = match kind {
            HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS | MOBILITY | HIP | SHIM6 => {
                (usize::from(*rest.get(1)?) + 1) * 8
            }
            AUTHENTICATION => (usize::from(*rest.get(1)?) + 2) * 4,
            FRAGMENT => {
                let header = rest.first_chunk::<8>()?;
                // Offset zero and no more to come: a whole packet (RFC 6946).
                if u16::from_be_bytes([header[2], header[3]]) & 0xfff9 != 0 {
                    return Some(Extensions::Fragment);
                }
                8
            }
            _ => return Some(Extensions::Over(kind, rest)),
        };
        kind = *rest.first()?;
        rest = rest.get(bytes..)?;
    }
}

#[inline]
fn read_transport(protocol: u8, segment: &[u8]) -> Transport {
    if !matches!(protocol, TCP | UDP | DCCP | SCTP | UDP_LITE) {
        return Transport::Ports(0);
    }
    let Some(ports) = segment.first_chunk::<4>() else {
        return Transport::Malformed;
    };
    if protocol == UDP && u16::from_be_bytes([ports[2], ports[3]]) == ROCE_PORT {
        return match segment.get(8..).and_then(<[u8]>::first_chunk::<BTH_BYTES>) {
            Some(bytes) => Transport::Roce(Bth::read(*bytes)),
            None => Transport::Malformed,
        };
    }
    Transport::Ports(u32::from_be_bytes(*ports))
}
