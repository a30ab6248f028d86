//! What one wire did between two instants, as words.

use super::gaps::GAP_BUCKETS;
use super::repeats::{REPEATED_QPS, Repeated};
use crate::engine::WireStats;

/// Fields of [`WindowCounts`] that are single words.
const SINGLE: usize = 28;

/// Words of a window.
pub(super) const WINDOW_WORDS: usize = SINGLE + 3 * REPEATED_QPS + GAP_BUCKETS;

/// One reporting interval of a wire as the poll loop saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WindowCounts {
    /// First instant, ps of the data path's clock.
    pub from_ps: u64,
    /// Last instant, ps of the data path's clock.
    pub to_ps: u64,
    /// Policy in force at the end.
    pub generation: u64,
    /// Rate asked, bit/s; 0: not shaped. A window has one.
    pub rate_bps: u64,
    /// The wire was bypassed.
    pub bypass: bool,
    /// Frames taken in from the port.
    pub pushed_frames: u64,
    /// Polls at which the wire was full, so that frames stayed with the port.
    pub full_polls: u64,
    /// Frames that the port took.
    pub sent_frames: u64,
    /// What they occupied on the wire, bytes.
    pub sent_line_bytes: u64,
    /// Congestion notification packets among them.
    pub sent_cnps: u64,
    /// Frames offered to the port and not taken; they stayed.
    pub tx_not_accepted: u64,
    /// Frames that shared a sub-queue.
    pub shared_frames: u64,
    /// Times that a poll gap used up the catch-up while frames waited.
    pub catch_up_exhausted: u64,
    /// Wire time lost by that, ps.
    pub lost_ps: u64,
    /// Longest delay between due and sent, ps.
    pub catch_up_used_ps: u64,
    /// Rules that ended by themselves.
    pub expired_rules: u64,
    /// Frames waiting at the end.
    pub queue_frames_now: u64,
    /// Waiting frames at a poll: median.
    pub queue_frames_p50: u64,
    /// Waiting frames at a poll: 99th percentile.
    pub queue_frames_p99: u64,
    /// Waiting frames at a poll: most.
    pub queue_frames_max: u64,
    /// Arrival to departure: median, ps.
    pub waited_p50_ps: u64,
    /// Arrival to departure: 99th percentile, ps.
    pub waited_p99_ps: u64,
    /// Arrival to departure: longest, ps.
    pub waited_max_ps: u64,
    /// Longest time between two polls, ns.
    pub longest_gap_ns: u64,
    /// Frames that could not be held and were given back unsent. Stays 0.
    pub discarded_frames: u64,
    /// Frames marked as having met congestion.
    pub ce_marks: u64,
    /// From the end until the rate ends by itself, ps; 0: it does not.
    pub expires_after_ps: u64,
    /// The loop was stopping: what waited left unshaped.
    pub opened: bool,
    /// Repeated PSNs by QP.
    pub repeated: [Repeated; REPEATED_QPS],
    /// Poll gaps: [1, 2), [2, 4), … ns.
    pub poll_gaps: [u64; GAP_BUCKETS],
}

impl Default for WindowCounts {
    fn default() -> Self {
        Self::from_words(&[0; WINDOW_WORDS])
    }
}

impl WindowCounts {
    /// Takes what the engine counted.
    pub(super) fn fill_from(&mut self, stats: &WireStats) {
        self.pushed_frames = stats.pushed_frames;
        self.sent_frames = stats.sent_frames;
        self.sent_line_bytes = stats.sent_line_bytes;
        self.sent_cnps = stats.sent_cnps;
        self.tx_not_accepted = stats.not_accepted;
        self.shared_frames = stats.shared_frames;
        self.catch_up_exhausted = stats.catch_up_exhausted;
        self.lost_ps = stats.lost_ps;
        self.catch_up_used_ps = stats.catch_up_used_ps;
        self.expired_rules = stats.expired_rules;
        self.queue_frames_p50 = stats.queue_frames.quantile(500);
        self.queue_frames_p99 = stats.queue_frames.quantile(990);
        self.queue_frames_max = stats.queue_frames.max();
        self.waited_p50_ps = stats.waited_ps.quantile(500);
        self.waited_p99_ps = stats.waited_ps.quantile(990);
        self.waited_max_ps = stats.waited_ps.max();
    }

    pub(super) fn to_words(&self) -> [u64; WINDOW_WORDS] {
        let mut words = [0; WINDOW_WORDS];
        words[..SINGLE].copy_from_slice(&[
            self.from_ps,
            self.to_ps,
            self.generation,
            self.rate_bps,
            u64::from(self.bypass),
            self.pushed_frames,
            self.full_polls,
            self.sent_frames,
            self.sent_line_bytes,
            self.sent_cnps,
            self.tx_not_accepted,
            self.shared_frames,
            self.catch_up_exhausted,
            self.lost_ps,
            self.catch_up_used_ps,
            self.expired_rules,
            self.queue_frames_now,
            self.queue_frames_p50,
            self.queue_frames_p99,
            self.queue_frames_max,
            self.waited_p50_ps,
            self.waited_p99_ps,
            self.waited_max_ps,
            self.longest_gap_ns,
            self.discarded_frames,
            self.ce_marks,
            self.expires_after_ps,
            u64::from(self.opened),
        ]);
        for (line, words) in self
            .repeated
            .iter()
            .zip(words[SINGLE..].chunks_exact_mut(3))
        {
            words.copy_from_slice(&[u64::from(line.destination_qp), line.frames, line.bytes]);
        }
        words[SINGLE + 3 * REPEATED_QPS..].copy_from_slice(&self.poll_gaps);
        words
    }

    pub(super) fn from_words(words: &[u64; WINDOW_WORDS]) -> Self {
        let lines = &words[SINGLE..];
        Self {
            from_ps: words[0],
            to_ps: words[1],
            generation: words[2],
            rate_bps: words[3],
            bypass: words[4] != 0,
            pushed_frames: words[5],
            full_polls: words[6],
            sent_frames: words[7],
            sent_line_bytes: words[8],
            sent_cnps: words[9],
            tx_not_accepted: words[10],
            shared_frames: words[11],
            catch_up_exhausted: words[12],
            lost_ps: words[13],
            catch_up_used_ps: words[14],
            expired_rules: words[15],
            queue_frames_now: words[16],
            queue_frames_p50: words[17],
            queue_frames_p99: words[18],
            queue_frames_max: words[19],
            waited_p50_ps: words[20],
            waited_p99_ps: words[21],
            waited_max_ps: words[22],
            longest_gap_ns: words[23],
            discarded_frames: words[24],
            ce_marks: words[25],
            expires_after_ps: words[26],
            opened: words[27] != 0,
            repeated: std::array::from_fn(|i| Repeated {
                destination_qp: u32::try_from(lines[3 * i]).unwrap_or(0),
                frames: lines[3 * i + 1],
                bytes: lines[3 * i + 2],
            }),
            poll_gaps: std::array::from_fn(|i| lines[3 * REPEATED_QPS + i]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_come_back_as_they_went() {
        let mut words: [u64; WINDOW_WORDS] = std::array::from_fn(|i| i as u64 + 1000);
        (words[4], words[27]) = (1, 1);
        assert_eq!(WindowCounts::from_words(&words).to_words(), words);
    }
}
