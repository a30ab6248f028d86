//! The beginning of a frame that lies in several pieces.

use super::HEAD_BYTES;

/// The first [`HEAD_BYTES`] of a frame (or all, if it is shorter) in one piece: the
/// first segment where it suffices, else a copy in `buffer`.
#[inline]
pub fn head_of<'a>(
    mut segments: impl Iterator<Item = &'a [u8]>,
    buffer: &'a mut [u8; HEAD_BYTES],
) -> &'a [u8] {
    let first = segments.next().unwrap_or_default();
    if first.len() >= HEAD_BYTES {
        return &first[..HEAD_BYTES];
    }
    let mut filled = 0;
    for segment in std::iter::once(first).chain(segments) {
        let room = &mut buffer[filled..];
        let taken = segment.len().min(room.len());
        room[..taken].copy_from_slice(&segment[..taken]);
        filled += taken;
        if filled == HEAD_BYTES {
            break;
        }
    }
    &buffer[..filled]
}
