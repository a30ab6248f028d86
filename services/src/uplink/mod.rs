//! (being written)
/// limit
pub const MAX_ITEM_BYTES: usize = 2 << 20;
