//! What the data path needs of a port, and the two that there are: [`memory`] for
//! tests, and DPDK's in [`crate::dpdk`].

pub mod memory;

/// Most frames that one call receives or sends. 32 is what DPDK's vector drivers are
/// written for: fewer wastes calls, more adds waiting.
pub const BURST: usize = 32;

/// One end of a wire: frames in, frames out.
///
/// A received frame first stands in the port's burst, where its header can be read;
/// [`Port::take`] takes it out as a token. Whoever holds the token gives it back by
/// [`Port::transmit`] or [`Port::discard`], of this or of any other port of the same
/// kind; a token given back twice is refused, not sent.
pub trait Port {
    /// Stands for a frame that the data path holds.
    type Frame: Copy;

    /// Receives at most `max` frames ([`BURST`] at the most) into the burst, in place
    /// of what was in it, and returns how many.
    fn receive(&mut self, max: usize) -> usize;

    /// The first bytes of frame `index` of the burst, contiguous, at least 128 or the
    /// whole frame; empty when there is no such frame, or when it was taken.
    fn head(&self, index: usize) -> &[u8];

    /// Length of frame `index` of the burst without FCS, bytes; 0 when there is no
    /// such frame.
    fn bytes(&self, index: usize) -> u32;

    /// Takes frame `index` out of the burst; `None` when it was taken before.
    fn take(&mut self, index: usize) -> Option<Self::Frame>;

    /// Sends a prefix of `frames` (of the first [`BURST`]) and returns its length; the
    /// rest is still held.
    fn transmit(&mut self, frames: &[Self::Frame]) -> usize;

    /// Gives frames back unsent and returns how many there were.
    fn discard(&mut self, frames: &[Self::Frame]) -> usize;
}
