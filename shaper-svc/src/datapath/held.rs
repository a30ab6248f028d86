//! The frames that the data path holds, by the small number that the engine carries
//! in their place.

/// A table of held frames. Takes its memory when it is made.
#[derive(Debug)]
pub(super) struct HeldFrames<F> {
    frames: Box<[Option<F>]>,
    /// A stack: the place freed last is the one still in the cache.
    free: Vec<u32>,
}

impl<F: Copy> HeldFrames<F> {
    /// Room for `capacity` frames.
    pub(super) fn with_capacity(capacity: u32) -> Self {
        Self {
            frames: vec![None; capacity as usize].into_boxed_slice(),
            free: (0..capacity).rev().collect(),
        }
    }

    /// Memory of a table for `capacity` frames, bytes.
    pub(super) const fn memory_bytes(capacity: u32) -> u64 {
        capacity as u64 * (size_of::<Option<F>>() + size_of::<u32>()) as u64
    }

    /// Keeps a frame; `None` without room.
    #[inline]
    pub(super) fn keep(&mut self, frame: F) -> Option<u64> {
        let place = self.free.pop()?;
        self.frames[place as usize] = Some(frame);
        Some(u64::from(place))
    }

    /// The frame behind a handle; it stays.
    #[inline]
    pub(super) fn get(&self, handle: u64) -> Option<F> {
        let place = usize::try_from(handle).ok()?;
        self.frames.get(place).copied().flatten()
    }

    /// Forgets a frame that was given back.
    #[inline]
    pub(super) fn release(&mut self, handle: u64) {
        if let Ok(place) = u32::try_from(handle)
            && let Some(frame) = self.frames.get_mut(place as usize)
            && frame.take().is_some()
        {
            self.free.push(place);
        }
    }

    /// Forgets all frames and returns them.
    pub(super) fn drain(&mut self) -> Vec<F> {
        self.free = (0..u32::try_from(self.frames.len()).unwrap_or(u32::MAX))
            .rev()
            .collect();
        self.frames.iter_mut().filter_map(Option::take).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_used_again_once_it_is_free() {
        let mut held = HeldFrames::with_capacity(2);
        let (a, b) = (held.keep('a').unwrap(), held.keep('b').unwrap());
        assert_eq!(held.keep('c'), None);
        assert_eq!(
            (held.get(a), held.get(b), held.get(99)),
            (Some('a'), Some('b'), None)
        );
        held.release(a);
        held.release(a);
        assert_eq!(held.get(a), None);
        assert_eq!(held.keep('c'), Some(a));
        assert_eq!(held.keep('d'), None, "a place freed twice is free once");
        assert_eq!(held.drain(), ['c', 'b']);
        assert!(held.keep('e').is_some());
    }
}
