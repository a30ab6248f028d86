//! How much memory frame buffers take, known before anything is touched.

/// `RTE_PKTMBUF_HEADROOM`: room in front of a frame that drivers expect, bytes.
const HEADROOM_BYTES: u32 = 128;

/// The mbuf itself, the pool's own header and trailer, and what rounding to a cache
/// line and an odd number of memory channels may add, bytes.
const OVERHEAD_BYTES: u64 = 128 + 64 + 64 + 128;

/// The least that a buffer takes beside its bytes: the mbuf and the pool's header.
const LEAST_OVERHEAD_BYTES: u64 = 128 + 64;

/// Smallest huge page, bytes. Larger ones waste less.
pub const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// Buffers that a thread keeps for itself. Half of DPDK's limit of 512: enough for
/// eight bursts between visits to the shared ring.
pub const POOL_CACHE: u32 = 256;

/// Frames in a burst.
const BURST_FRAMES: u32 = 32;

/// Anything a DPDK pool takes beside its buffers (ring, heap bookkeeping), bytes.
const POOL_BYTES: u64 = 4 << 20;

/// How large a pool must be, known before DPDK starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolPlan {
    /// Buffers.
    pub mbufs: u32,
    /// Bytes of a frame that one buffer holds.
    pub buffer_bytes: u32,
}

impl PoolPlan {
    /// A pool for a port that feeds a wire: its receive ring, the wire's queue, the
    /// other port's send ring, and what is on its way in bursts and caches. Frames wait
    /// and travel in as many buffers as the longest one takes; rings count buffers.
    #[must_use]
    pub fn for_wire(
        rx_descriptors: u16,
        queue_frames: u32,
        tx_descriptors: u16,
        buffer_bytes: u32,
        frame_bytes: u32,
    ) -> Self {
        let buffers_a_frame = frame_bytes.div_ceil(buffer_bytes).max(1);
        let on_the_way = 2 * POOL_CACHE + 8 * BURST_FRAMES;
        let mbufs = queue_frames
            .saturating_add(on_the_way)
            .saturating_mul(buffers_a_frame)
            .saturating_add(u32::from(rx_descriptors))
            .saturating_add(u32::from(tx_descriptors));
        Self {
            mbufs,
            buffer_bytes,
        }
    }

    /// Memory that the pool takes at the most on pages of `page_bytes`, bytes.
    #[must_use]
    pub fn memory_bytes(&self, page_bytes: u64) -> u64 {
        let rest = POOL_BYTES + 16 * u64::from(self.mbufs);
        rest + self.buffers(OVERHEAD_BYTES, page_bytes)
    }

    /// Memory below which the pool cannot be made, bytes.
    #[must_use]
    pub fn least_bytes(&self, page_bytes: u64) -> u64 {
        self.buffers(LEAST_OVERHEAD_BYTES, page_bytes)
    }

    fn buffers(&self, overhead: u64, page_bytes: u64) -> u64 {
        let each = u64::from(self.buffer_bytes) + u64::from(HEADROOM_BYTES) + overhead;
        on_pages(u64::from(self.mbufs), each, page_bytes)
    }

    /// Bytes of one buffer as DPDK counts them, room in front of a frame included.
    #[must_use]
    pub fn data_room(self) -> u16 {
        u16::try_from(self.buffer_bytes + HEADROOM_BYTES).unwrap_or(u16::MAX)
    }
}

/// Pages that no buffer may lie across the end of, bytes. A device on the PCI bus reaches
/// memory by itself, and outside huge pages only what lies on one page is in one piece.
/// Without such a device buffers are packed: on pages of 4,096 bytes each would begin at
/// the start of one, so that their first lines, which are used most, shared a few sets of
/// the first-level cache (measured with two `net_null`: 13.6 ns a frame, packed 7).
#[must_use]
pub fn buffer_page_bytes(huge_pages: bool, on_pci: bool) -> u64 {
    if huge_pages || !on_pci {
        HUGE_PAGE_BYTES
    } else {
        rustix::param::page_size() as u64
    }
}

/// Bytes of so many objects of `each` bytes. DPDK lays none across the end of a page, so
/// that a buffer of 2,048 bytes takes a whole page of 4,096.
#[must_use]
pub fn on_pages(objects: u64, each: u64, page_bytes: u64) -> u64 {
    match page_bytes / each.max(1) {
        0 => objects * each.next_multiple_of(page_bytes.max(1)),
        in_a_page => objects.div_ceil(in_a_page) * page_bytes,
    }
}

/// Why a configuration cannot run on this machine.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "the wires need {needed_mb} MB of {kind} and {available_mb} MB are free: {advice}; nothing \
     was touched"
)]
pub struct TooLittleMemory {
    /// `huge pages` or `memory`.
    pub kind: &'static str,
    /// Megabytes asked for, rounded up.
    pub needed_mb: u64,
    /// Megabytes that are free.
    pub available_mb: u64,
    /// What to do.
    pub advice: &'static str,
}

/// What to do where the wires ask for too much.
pub const FEWER_FRAMES: &str = "give fewer `queue_frames` or `rx_descriptors`, or more memory";

/// Compares with what `/proc/meminfo` says.
///
/// # Errors
/// [`TooLittleMemory`] when `huge_bytes` of huge pages or `bytes` of other memory are
/// not free.
pub fn check_memory(meminfo: &str, huge_bytes: u64, bytes: u64) -> Result<(), TooLittleMemory> {
    let page_bytes = field(meminfo, "Hugepagesize:") << 10;
    // Pages that others have reserved and not touched yet count as free, and are not.
    let unreserved =
        field(meminfo, "HugePages_Free:").saturating_sub(field(meminfo, "HugePages_Rsvd:"));
    let huge_free = unreserved * page_bytes;
    let free = field(meminfo, "MemAvailable:") << 10;
    for (kind, needed, available) in [
        ("huge pages", huge_bytes, huge_free),
        ("memory", bytes, free),
    ] {
        if needed > available {
            return Err(TooLittleMemory {
                kind,
                needed_mb: needed.div_ceil(1 << 20),
                available_mb: available >> 20,
                advice: FEWER_FRAMES,
            });
        }
    }
    Ok(())
}

fn field(meminfo: &str, name: &str) -> u64 {
    meminfo
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMINFO: &str = "MemTotal: 16000000 kB\nMemAvailable:    8388608 kB\n\
                           HugePages_Free:      512\nHugepagesize:       2048 kB\n";

    #[test]
    fn what_does_not_fit_is_told_in_megabytes() {
        assert_eq!(check_memory(MEMINFO, 1 << 30, 8 << 30), Ok(()));
        let error = check_memory(MEMINFO, (1 << 30) + 1, 0).unwrap_err();
        assert_eq!(
            (error.kind, error.needed_mb, error.available_mb),
            ("huge pages", 1025, 1024)
        );
        let others = format!("{MEMINFO}HugePages_Rsvd:       12\n");
        let error = check_memory(&others, 1 << 30, 0).unwrap_err();
        assert_eq!(error.available_mb, 1000);
        let error = check_memory(MEMINFO, 0, 9 << 30).unwrap_err();
        assert_eq!((error.kind, error.needed_mb), ("memory", 9216));
        assert!(error.to_string().contains("nothing was touched"));
        assert!(
            check_memory("", 1, 0).is_err(),
            "a machine that does not say has none"
        );
    }

    #[test]
    fn a_default_wire_takes_0_7_gb_and_3_gb_with_large_buffers() {
        let mb = |plan: PoolPlan| plan.memory_bytes(HUGE_PAGE_BYTES) >> 20;
        let plan = PoolPlan::for_wire(32_768, 262_144, 1024, 2048, 1522);
        assert!((690..780).contains(&mb(plan)), "{}", mb(plan));
        let plan = PoolPlan::for_wire(32_768, 262_144, 1024, 9728, 9022);
        assert!((2_900..3_200).contains(&mb(plan)), "{}", mb(plan));
    }

    #[test]
    fn on_small_pages_a_buffer_takes_a_page_of_its_own() {
        assert_eq!(buffer_page_bytes(true, true), HUGE_PAGE_BYTES);
        assert_eq!(buffer_page_bytes(false, false), HUGE_PAGE_BYTES, "packed");
        assert!(buffer_page_bytes(false, true) < HUGE_PAGE_BYTES);
        let plan = PoolPlan::for_wire(32_768, 262_144, 1024, 2048, 1522);
        assert_eq!(plan.mbufs, 296_704);
        assert!(plan.memory_bytes(4096) >= 296_704 * 4096);
        assert_eq!(plan.least_bytes(4096), 296_704 * 4096);
        assert!(plan.least_bytes(HUGE_PAGE_BYTES) < plan.memory_bytes(HUGE_PAGE_BYTES));
        for (each, bytes) in [(1000, 3 * 4096), (4096, 10 * 4096), (4097, 20 * 4096)] {
            assert_eq!(on_pages(10, each, 4096), bytes, "objects of {each} bytes");
        }
    }

    #[test]
    fn long_frames_in_short_buffers_have_room_to_wait_too() {
        let plan = PoolPlan::for_wire(1024, 4096, 512, 2048, 9022);
        assert!(plan.mbufs >= 5 * 4096 + 1024 + 512, "{plan:?}");
        let one = PoolPlan::for_wire(1024, 4096, 512, 2048, 2048);
        assert_eq!(one, PoolPlan::for_wire(1024, 4096, 512, 2048, 60));
        assert!(one.mbufs < 2 * 4096 + 1024, "{one:?}");
    }
}
