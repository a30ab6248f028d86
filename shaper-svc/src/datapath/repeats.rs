//! Repeated PSNs: the only trace of a sender that resent what was merely queued,
//! since false retransmits leave every NIC counter at zero.

/// QPs watched at once. Direct-mapped: two that fall together watch each other away,
/// which loses repeats and never makes any up. 4,096 entries of 16 bytes.
const ENTRIES: usize = 4096;

/// QPs that a window tells apart; what others repeat is summed under QP 0, which
/// carries no such traffic.
pub const REPEATED_QPS: usize = 8;

/// A PSN further back is a QP number in new use, not a repeat: go-back-N goes back
/// over what is unacknowledged, and 65,536 packets of 1 KiB are 22 ms at 25 Gbit/s
/// and more than NICs keep in flight.
const FURTHEST_REPEAT: u32 = 1 << 16;

/// PSNs count modulo 2^24 (`InfiniBand` specification, 9.2).
const PSN_MASK: u32 = (1 << 24) - 1;

/// A request packet of a reliable connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Stands for (destination address, destination QP).
    pub(super) key: u64,
    pub(super) destination_qp: u32,
    pub(super) psn: u32,
    pub(super) bytes: u32,
}

/// What one QP repeated in a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Repeated {
    /// Destination QP; 0 sums the QPs that had no line of their own.
    pub destination_qp: u32,
    /// Frames whose PSN had been sent before.
    pub frames: u64,
    /// Their bytes, without FCS.
    pub bytes: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    key: u64,
    highest: u32,
    /// The window in which it last repeated; 0: not since it is watched.
    repeated_in: u16,
    /// Its line in that window.
    line: u8,
    used: bool,
}

/// Watches the request packets of one wire.
#[derive(Debug)]
pub(super) struct Repeats {
    entries: Box<[Entry]>,
    window: [Repeated; REPEATED_QPS],
    /// Number of the window, from 1.
    number: u16,
}

impl Repeats {
    pub(super) fn new() -> Self {
        Self {
            entries: vec![Entry::default(); ENTRIES].into_boxed_slice(),
            window: [Repeated::default(); REPEATED_QPS],
            number: 1,
        }
    }

    #[inline]
    pub(super) fn see(&mut self, request: Request) {
        let Request { key, psn, .. } = request;
        #[expect(clippy::cast_possible_truncation, reason = "masked to the table")]
        let place = (key ^ (key >> 32)) as usize % ENTRIES;
        let entry = &mut self.entries[place];
        if !entry.used || entry.key != key {
            *entry = Entry {
                key,
                highest: psn,
                used: true,
                ..Entry::default()
            };
            return;
        }
        let behind = entry.highest.wrapping_sub(psn) & PSN_MASK;
        if behind >= FURTHEST_REPEAT {
            entry.highest = psn;
            return;
        }
        // A sender that goes back repeats thousands: the line is looked for once.
        if entry.repeated_in != self.number {
            entry.repeated_in = self.number;
            entry.line = line_for(&mut self.window, request.destination_qp);
        }
        if let Some(line) = self.window.get_mut(usize::from(entry.line)) {
            line.frames += 1;
            line.bytes += u64::from(request.bytes);
        }
    }

    /// The lines of the window, which begins anew.
    pub(super) fn take(&mut self) -> [Repeated; REPEATED_QPS] {
        // After 65,535 windows, days, a number comes again: a QP that was silent for so
        // long would count in another's line. Zero is left out.
        self.number = self.number.checked_add(1).unwrap_or(1);
        std::mem::take(&mut self.window)
    }
}

/// Place of the QP's line, which is begun if there is room; else of the last one.
#[cold]
fn line_for(window: &mut [Repeated; REPEATED_QPS], destination_qp: u32) -> u8 {
    #[expect(clippy::cast_possible_truncation, reason = "there are eight")]
    const LAST: u8 = REPEATED_QPS as u8 - 1;
    for (place, line) in (0..LAST).zip(window) {
        if line.frames == 0 {
            line.destination_qp = destination_qp;
        }
        if line.destination_qp == destination_qp {
            return place;
        }
    }
    LAST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(qp: u32, psn: u32) -> Request {
        Request {
            key: u64::from(qp) << 8,
            destination_qp: qp,
            psn: psn & PSN_MASK,
            bytes: 1000,
        }
    }

    #[test]
    fn a_go_back_counts_until_the_sender_has_caught_up() {
        let mut repeats = Repeats::new();
        for psn in (0..10_u32).chain(4..12) {
            repeats.see(request(7, psn.wrapping_sub(5)));
        }
        let lines = repeats.take();
        assert_eq!(
            lines[0],
            Repeated {
                destination_qp: 7,
                frames: 6,
                bytes: 6000
            }
        );
        assert_eq!(lines[1].frames, 0);
        assert_eq!(repeats.take()[0].frames, 0);
    }

    #[test]
    fn reads_that_skip_numbers_and_qps_in_new_use_are_no_repeats() {
        let mut repeats = Repeats::new();
        for psn in [0, 32, 64, 5_000_000, 100, 101] {
            repeats.see(request(9, psn));
        }
        assert_eq!(repeats.take()[0].frames, 0);
    }

    #[test]
    fn more_qps_than_lines_are_summed() {
        let mut repeats = Repeats::new();
        for qp in 1..=20 {
            repeats.see(request(qp, 1));
            repeats.see(request(qp, 1));
        }
        let lines = repeats.take();
        assert_eq!(lines.iter().map(|line| line.frames).sum::<u64>(), 20);
        assert_eq!(lines[REPEATED_QPS - 1].destination_qp, 0);
        assert_eq!(lines[REPEATED_QPS - 1].frames, 13);
    }
}
