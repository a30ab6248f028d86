//! Which columns are shown, how wide, and where the last one stands.

use unicode_width::UnicodeWidthStr;

use super::{BELOW_INDENT, GAP, Table};

/// Widest name that is shown whole. A label of DNS has 63 bytes; what is longer
/// would push every other row out of sight.
pub(super) const LONGEST_NAME: usize = 64;

/// Names on a terminal that is too narrow are cut to this part of it, which
/// leaves room for three more.
const NARROW_PART: usize = 4;

/// No name is cut shorter: with less, hosts of one cluster look the same.
const SHORTEST_NAME: usize = 12;

/// One column as it is shown.
pub(super) struct Shown {
    pub(super) column: usize,
    pub(super) width: usize,
    /// Whether it is broken into lines.
    pub(super) wraps: bool,
    /// Names and words that are wider are cut.
    pub(super) cap: usize,
}

/// Where everything stands.
pub(super) struct Fit {
    pub(super) before: Vec<Shown>,
    pub(super) last: Shown,
    pub(super) tail: Tail,
    /// Columns that hold something and are not shown.
    pub(super) left_out: Vec<usize>,
}

/// Where the last column stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Tail {
    Beside,
    Below,
}

/// Absent when no cell holds anything. `room`: columns of the terminal; absent:
/// as much as it takes.
pub(super) fn fit(table: &Table, room: Option<usize>) -> Option<Fit> {
    let filled = |column: &usize| table.rows.iter().any(|row| !row[*column].is_empty());
    let filled: Vec<usize> = (0..table.columns.len()).filter(filled).collect();
    let last = *filled.last()?;
    let Some(room) = room else {
        return attempt(table, &filled, Tail::Beside, LONGEST_NAME, usize::MAX);
    };
    let order = giving_up(table, &filled, last);
    let without = |count: usize| -> Vec<usize> {
        let given_up = &order[..count];
        let kept = |column: &&usize| !given_up.contains(column);
        filled.iter().filter(kept).copied().collect()
    };
    let try_all = |tail, caps: &[usize], most: usize| {
        caps.iter().find_map(|cap| {
            (0..=most).find_map(|count| attempt(table, &without(count), tail, *cap, room))
        })
    };
    let narrow = (room / NARROW_PART).clamp(SHORTEST_NAME, LONGEST_NAME);
    let cheap = order.iter().filter(|c| table.columns[**c].is_cheap());
    let cheap = cheap.count();
    let second = match table.columns[last].least(true) {
        Some(_) => Tail::Below,
        None => Tail::Beside,
    };
    let found = try_all(Tail::Beside, &[LONGEST_NAME, narrow], cheap)
        .or_else(|| try_all(second, &[LONGEST_NAME, narrow], cheap))
        .or_else(|| try_all(second, &[narrow, SHORTEST_NAME], order.len()))
        // Nothing more can give way: the terminal breaks the lines.
        .or_else(|| {
            attempt(
                table,
                &without(order.len()),
                second,
                SHORTEST_NAME,
                usize::MAX,
            )
        });
    found.map(|mut fit| {
        let shown =
            |column: &usize| *column == last || fit.before.iter().any(|s| s.column == *column);
        fit.left_out = filled.iter().copied().filter(|c| !shown(c)).collect();
        fit
    })
}

/// Columns that can be given up, the first to go first.
fn giving_up(table: &Table, filled: &[usize], last: usize) -> Vec<usize> {
    let can_go = |column: &usize| *column != last && table.columns[*column].turn().is_some();
    let mut order: Vec<usize> = filled.iter().copied().filter(can_go).collect();
    order.sort_by_key(|column| table.columns[*column].turn());
    order
}

/// These columns in that room; absent when they do not fit.
fn attempt(table: &Table, kept: &[usize], tail: Tail, cap: usize, room: usize) -> Option<Fit> {
    let (last, before) = kept.split_last()?;
    let mut shown: Vec<(Shown, usize)> = Vec::with_capacity(kept.len());
    for column in before {
        shown.push(measured(table, *column, false, cap));
    }
    if tail == Tail::Beside {
        shown.push(measured(table, *last, true, cap));
    }
    let gaps = GAP.width() * shown.len().saturating_sub(1);
    let least: usize = shown.iter().map(|(_, least)| least).sum();
    let mut spare = room.checked_sub(least + gaps + table.indent.width())?;
    for (column, least) in &mut shown {
        column.wraps = *least < column.width;
        std::mem::swap(&mut column.width, least);
    }
    // Every broken column gets its share of what is left.
    while spare > 0 {
        let mut grew = false;
        for (column, natural) in &mut shown {
            if spare > 0 && column.width < *natural {
                column.width += 1;
                spare -= 1;
                grew = true;
            }
        }
        if !grew {
            break;
        }
    }
    let mut shown: Vec<Shown> = shown.into_iter().map(|(column, _)| column).collect();
    let last = match tail {
        Tail::Beside => shown.pop()?,
        Tail::Below => Shown {
            column: *last,
            width: room.saturating_sub(BELOW_INDENT),
            wraps: true,
            // It has the whole line.
            cap: LONGEST_NAME,
        },
    };
    Some(Fit {
        before: shown,
        last,
        tail,
        left_out: Vec::new(),
    })
}

/// A column at its natural width, and its least width.
fn measured(table: &Table, index: usize, is_last: bool, cap: usize) -> (Shown, usize) {
    let column = &table.columns[index];
    let texts = || {
        let cells = table.rows.iter().map(|row| row[index].text.as_str());
        cells.map(|text| column.shortened(text, cap))
    };
    let title = column.title.lines().map(UnicodeWidthStr::width).max();
    let title = title.unwrap_or(0);
    let natural = texts().map(|text| text.width()).fold(title, usize::max);
    let least = match column.least(is_last) {
        None => natural,
        Some(least) => {
            let longest_word = texts()
                .flat_map(|text| text.split(' ').map(UnicodeWidthStr::width).max())
                .fold(title, usize::max);
            natural.min(least.max(longest_word))
        }
    };
    let shown = Shown {
        column: index,
        width: natural,
        wraps: false,
        cap,
    };
    (shown, least)
}
