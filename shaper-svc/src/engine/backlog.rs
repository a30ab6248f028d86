//! The waiting frames of one wire: one slab, and lists that run through it.

use super::Frame;

/// No frame: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// One waiting frame. 32 bytes with a handle of eight: two to a cache line, and never
/// across two lines.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
pub(super) struct Slot<H> {
    pub(super) handle: H,
    pub(super) key: u64,
    pub(super) arrived_ps: u64,
    pub(super) next: u32,
    pub(super) len: u16,
    pub(super) is_cnp: bool,
}

/// A list through the slab. `shared` and `key` speak of the sub-queue it stands for.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct List {
    head: u32,
    tail: u32,
    /// Its length.
    pub(super) frames: u32,
    /// More than one key has used it since it last was empty.
    pub(super) shared: bool,
    /// The key that got it for itself last.
    pub(super) key: u64,
}

const EMPTY: List = List {
    head: NONE,
    tail: NONE,
    frames: 0,
    shared: false,
    key: 0,
};

impl List {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }

    #[inline]
    pub(super) fn head(&self) -> u32 {
        self.head
    }

    /// Takes the first frame out; `next` follows it.
    #[inline]
    pub(super) fn detach(&mut self, next: u32) {
        self.head = next;
        self.frames = self.frames.wrapping_sub(1);
    }
}

/// Slab, free slots and lists.
#[derive(Debug)]
pub(super) struct Backlog<H> {
    pub(super) slots: Box<[Slot<H>]>,
    pub(super) lists: Box<[List]>,
    /// A stack: the slot freed last is the one still in the cache.
    free: Box<[u32]>,
    free_frames: usize,
}

impl<H: Default> Backlog<H> {
    pub(super) fn new(frames: u32, lists: u32) -> Self {
        let vacant = |_| Slot {
            next: NONE,
            ..Slot::default()
        };
        Self {
            slots: (0..frames).map(vacant).collect(),
            lists: vec![EMPTY; lists as usize].into_boxed_slice(),
            free: (0..frames).rev().collect(),
            free_frames: frames as usize,
        }
    }

    /// Memory of a backlog of this size, bytes.
    pub(super) const fn memory_bytes(frames: u32, lists: u32) -> u64 {
        let per_frame = size_of::<Slot<H>>() + size_of::<u32>();
        (frames as usize * per_frame + lists as usize * size_of::<List>()) as u64
    }

    #[inline]
    pub(super) fn free_frames(&self) -> usize {
        self.free_frames
    }

    #[inline]
    pub(super) fn waiting_frames(&self) -> usize {
        self.slots.len() - self.free_frames
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &Slot<H> {
        &self.slots[slot as usize]
    }

    #[inline]
    pub(super) fn list(&self, list: u32) -> &List {
        &self.lists[list as usize]
    }

    #[inline]
    pub(super) fn list_mut(&mut self, list: u32) -> &mut List {
        &mut self.lists[list as usize]
    }

    /// The first frame of a list.
    #[inline]
    pub(super) fn front(&self, list: u32) -> Option<(u32, &Slot<H>)> {
        let head = self.lists[list as usize].head;
        self.slots.get(head as usize).map(|slot| (head, slot))
    }

    /// Takes `count` free slots, no more than there are; [`Backlog::store`] then fills
    /// them. Gives the place of the first one.
    #[inline]
    pub(super) fn take_slots(&mut self, count: usize) -> usize {
        self.free_frames -= count;
        self.free_frames
    }

    /// Gives back what was taken beyond the first `used` of `count` slots from a place.
    #[inline]
    pub(super) fn return_slots(&mut self, place: usize, used: usize, count: usize) {
        if used < count {
            self.free.copy_within(place + used..place + count, place);
            self.free_frames += count - used;
        }
    }

    /// Stores a frame that belongs to no list yet in the slot at a place taken before.
    #[inline]
    pub(super) fn store(&mut self, place: usize, frame: Frame<H>) -> u32 {
        let slot = self.free[place];
        self.slots[slot as usize] = Slot {
            handle: frame.handle,
            key: frame.key,
            arrived_ps: frame.arrived_ps,
            next: NONE,
            len: frame.len,
            is_cnp: frame.is_cnp,
        };
        slot
    }

    /// Gives slots back. They are taken again in the same order, so that frames in
    /// turn lie side by side.
    #[inline]
    pub(super) fn release(&mut self, slots: &[u32]) {
        let until = self.free_frames + slots.len();
        if let Some(places) = self.free.get_mut(self.free_frames..until) {
            places.copy_from_slice(slots);
            self.free_frames = until;
        }
    }

    /// Empties everything and returns what was waiting, in no order. Relies on nothing
    /// but the stack of free slots; takes memory.
    pub(super) fn take_all(&mut self) -> Vec<H> {
        let mut is_free = vec![false; self.slots.len()];
        for slot in &self.free[..self.free_frames] {
            is_free[*slot as usize] = true;
        }
        let held = self.slots.iter_mut().zip(is_free);
        let held = held.filter(|(_, is_free)| !is_free);
        let held = held
            .map(|(slot, _)| std::mem::take(&mut slot.handle))
            .collect();
        self.lists.fill(EMPTY);
        for (place, slot) in self.free.iter_mut().rev().zip(0..) {
            *place = slot;
        }
        self.free_frames = self.free.len();
        held
    }

    /// Appends a stored frame, whose `next` is [`NONE`]; true if the list was empty.
    #[inline]
    pub(super) fn append(&mut self, list: u32, slot: u32) -> bool {
        let list = &mut self.lists[list as usize];
        let tail = list.tail;
        list.tail = slot;
        list.frames = list.frames.wrapping_add(1);
        let was_empty = list.head == NONE;
        if was_empty {
            list.head = slot;
        } else {
            self.slots[tail as usize].next = slot;
        }
        was_empty
    }

    /// Takes the first frame of a list out, to be appended to another.
    pub(super) fn unstage(&mut self, list: u32, slot: u32) {
        let next = std::mem::replace(&mut self.slots[slot as usize].next, NONE);
        self.lists[list as usize].detach(next);
    }

    /// Puts the frame that was detached last back in front. If it was the only one, it
    /// still is the tail.
    pub(super) fn reattach_front(&mut self, list: u32, slot: u32) {
        let list = &mut self.lists[list as usize];
        self.slots[slot as usize].next = list.head;
        list.head = slot;
        list.frames = list.frames.wrapping_add(1);
    }
}
