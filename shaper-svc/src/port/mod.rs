//! What the data path needs of a port, and the two that there are: [`memory`] for
//! tests, and DPDK's in [`crate::dpdk`].

pub mod memory;

/// Most frames that one call receives or sends. 32 is what DPDK's vector drivers are
/// written for: fewer wastes calls, more adds waiting.
pub const BURST: usize = 32;

/// One end of a wire: frames in, frames out.
///
/// A received frame becomes a token. Whoever holds the token gives it back by
/// [`Port::transmit`] or [`Port::discard`], of this or of any other port of the same
/// kind, and then holds none any more: a frame cannot be given back twice.
pub trait Port {
    /// Stands for a frame that the data path holds; its default stands for none.
    type Frame: Default;

    /// Receives at most `max` frames ([`BURST`] at the most) and returns how many. One
    /// after the other, `read` sees a frame's first bytes (contiguous, at least 128 or
    /// the whole frame) and its length without FCS in bytes, then `hold` gets its token
    /// with what `read` made of it.
    fn receive<R>(
        &mut self,
        max: usize,
        read: impl FnMut(&[u8], u32) -> R,
        hold: impl FnMut(Self::Frame, R),
    ) -> usize;

    /// Sends a prefix of `frames` (of the first [`BURST`], up to one that is none) and
    /// returns its length; the rest is still held.
    fn transmit(&mut self, frames: &mut [Self::Frame]) -> usize;

    /// Shows `change` the first bytes of some held frames, to be changed in place: as
    /// many as lie in a frame's first piece. Bit `n` of `which` stands for frame `n`, of
    /// the first [`BURST`].
    fn rewrite(&mut self, frames: &mut [Self::Frame], which: u32, change: impl FnMut(&mut [u8]));

    /// Gives frames back unsent and returns how many there were.
    fn discard(&mut self, frames: &mut [Self::Frame]) -> usize;
}
