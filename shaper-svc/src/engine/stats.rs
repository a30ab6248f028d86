//! What a wire counts, and how it hands the counts on.

use super::histogram::Histogram;

/// Counts of one wire since they were taken last. All of fixed size, so that taking
/// them is a copy without allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WireStats {
    /// Frames that the wire took in.
    pub pushed_frames: u64,
    /// Pushes refused because the queue was full; the frame stayed with the port.
    pub refused_pushes: u64,
    /// Frames that the port took.
    pub sent_frames: u64,
    /// What those frames occupied on the wire, overhead included, bytes.
    pub sent_line_bytes: u64,
    /// Congestion notification packets among them.
    pub sent_cnps: u64,
    /// Frames offered to the port and not taken; they stayed at the head.
    pub not_accepted: u64,
    /// Frames that had to share a sub-queue with another key.
    pub shared_frames: u64,
    /// Times that the wire had stood still for longer than the catch-up forgives,
    /// with frames waiting: a poll gap, or a port that took nothing.
    pub catch_up_exhausted: u64,
    /// Wire time lost by that, ps.
    pub lost_ps: u64,
    /// The longest delay between the instant at which a frame was due and the poll
    /// that sent it, ps.
    pub catch_up_used_ps: u64,
    /// Rules that ended by themselves.
    pub expired_rules: u64,
    /// Waiting frames, sampled at each poll.
    pub queue_frames: Histogram,
    /// Time from arrival to departure of each frame sent, ps.
    pub waited_ps: Histogram,
}

impl WireStats {
    pub(super) fn clear(&mut self) {
        let Self {
            pushed_frames,
            refused_pushes,
            sent_frames,
            sent_line_bytes,
            sent_cnps,
            not_accepted,
            shared_frames,
            catch_up_exhausted,
            lost_ps,
            catch_up_used_ps,
            expired_rules,
            queue_frames,
            waited_ps,
        } = self;
        for counter in [
            pushed_frames,
            refused_pushes,
            sent_frames,
            sent_line_bytes,
            sent_cnps,
            not_accepted,
            shared_frames,
            catch_up_exhausted,
            lost_ps,
            catch_up_used_ps,
            expired_rules,
        ] {
            *counter = 0;
        }
        queue_frames.clear();
        waited_ps.clear();
    }
}
