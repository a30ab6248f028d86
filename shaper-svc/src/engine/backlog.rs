//! The waiting frames of one wire: one slab, and lists that run through it.

/// No frame: the end of a list.
pub(super) const NONE: u32 = u32::MAX;

/// One waiting frame. 32 bytes: two to a cache line, and never across two lines.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(32))]
pub(super) struct Slot {
    pub(super) handle: u64,
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
    /// Frames that count as waiting: those in the list, and those picked but not
    /// yet committed.
    pub(super) frames: u32,
    /// More than one key has used it since it last was empty.
    pub(super) shared: bool,
    /// Its only key, unless shared.
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
    pub(super) fn is_empty(&self) -> bool {
        self.head == NONE
    }
}

/// Slab, free slots and lists.
#[derive(Debug)]
pub(super) struct Backlog {
    slots: Box<[Slot]>,
    /// A stack: the slot freed last is the one still in the cache.
    free: Vec<u32>,
    lists: Box<[List]>,
}

impl Backlog {
    pub(super) fn new(frames: u32, lists: u32) -> Self {
        let slot = Slot {
            handle: 0,
            key: 0,
            arrived_ps: 0,
            next: NONE,
            len: 0,
            is_cnp: false,
        };
        Self {
            slots: vec![slot; frames as usize].into_boxed_slice(),
            free: (0..frames).rev().collect(),
            lists: vec![EMPTY; lists as usize].into_boxed_slice(),
        }
    }

    /// Memory of a backlog of this size, bytes.
    pub(super) const fn memory_bytes(frames: u32, lists: u32) -> u64 {
        let per_frame = size_of::<Slot>() + size_of::<u32>();
        (frames as usize * per_frame + lists as usize * size_of::<List>()) as u64
    }

    pub(super) fn free_frames(&self) -> usize {
        self.free.len()
    }

    pub(super) fn waiting_frames(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    #[inline]
    pub(super) fn slot(&self, slot: u32) -> &Slot {
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
    pub(super) fn front(&self, list: u32) -> Option<(u32, &Slot)> {
        let head = self.lists[list as usize].head;
        self.slots.get(head as usize).map(|slot| (head, slot))
    }

    /// Stores a frame that belongs to no list yet.
    #[inline]
    pub(super) fn store(&mut self, frame: Slot) -> Option<u32> {
        let slot = self.free.pop()?;
        self.slots[slot as usize] = frame;
        Some(slot)
    }

    /// Gives a slot back.
    #[inline]
    pub(super) fn release(&mut self, slot: u32) {
        self.free.push(slot);
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

    /// Takes the first frame of a list out, leaving it counted; true if the list is
    /// empty now.
    #[inline]
    pub(super) fn detach_front(&mut self, list: u32, slot: u32) -> bool {
        let next = self.slots[slot as usize].next;
        let list = &mut self.lists[list as usize];
        list.head = next;
        next == NONE
    }

    /// Takes the first frame of a list out for good, to be appended to another.
    pub(super) fn unstage(&mut self, list: u32, slot: u32) {
        self.detach_front(list, slot);
        self.slots[slot as usize].next = NONE;
        let list = &mut self.lists[list as usize];
        list.frames = list.frames.wrapping_sub(1);
    }

    /// Puts the frame that was detached last back in front.
    pub(super) fn reattach_front(&mut self, list: u32, slot: u32) {
        let list = &mut self.lists[list as usize];
        if list.head == NONE {
            list.tail = slot;
        }
        self.slots[slot as usize].next = list.head;
        list.head = slot;
    }
}
