//! Which columns are shown, how wide, and where the last one stands.

use unicode_width::UnicodeWidthStr;

use super::{BELOW_INDENT, GAP, STACKED_INDENT, Table};

/// Widest name that is shown whole. A label of DNS has 63 bytes; what is longer
/// would push every other row out of sight.
pub(super) const LONGEST_NAME: usize = 64;

/// Names on a terminal that is too narrow are cut to this part of it, which
/// leaves room for three more.
const NARROW_PART: usize = 4;

/// No name is cut shorter: with less, hosts of one cluster look the same.
const SHORTEST_NAME: usize = 12;

/// Nor is a function of the kernel: its module and its verb stand at its ends. The
/// longest of those that fail most is rdma_addr_find_l2_eth_by_grh, just as wide.
const SHORTEST_FUNCTION: usize = 28;

/// Where names are cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Caps {
    pub(super) name: usize,
    pub(super) function: usize,
    /// A word of text that has lines of its own, and no wider ones.
    pub(super) word: usize,
}

impl Caps {
    /// Nothing that is not absurd.
    pub(super) const WHOLE: Caps = Caps::of(LONGEST_NAME, LONGEST_NAME);

    const fn of(name: usize, function: usize) -> Caps {
        Caps {
            name,
            function,
            word: usize::MAX,
        }
    }

    /// The same for text on lines of so many columns.
    pub(super) const fn on_lines_of(mut self, columns: usize) -> Caps {
        self.word = columns;
        self
    }
}

/// One column as it is shown.
pub(super) struct Shown {
    pub(super) column: usize,
    pub(super) width: usize,
    /// Whether it is broken into lines.
    pub(super) wraps: bool,
    /// Names that are wider are cut.
    pub(super) caps: Caps,
}

/// Where everything stands.
pub(super) struct Fit {
    pub(super) before: Vec<Shown>,
    pub(super) last: Shown,
    pub(super) tail: Tail,
    /// Columns that stand below the row.
    pub(super) folded: Vec<usize>,
    /// Columns that hold something and are not shown.
    pub(super) left_out: Vec<usize>,
}

/// Where the last column stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tail {
    Beside,
    Below,
    /// Nothing stands in columns any more: every cell follows its title.
    Stacked,
}

/// Absent when no cell holds anything. `room`: columns of the terminal; absent:
/// as much as it takes.
pub(super) fn fit(table: &Table, room: Option<usize>) -> Option<Fit> {
    let filled = |column: &usize| table.rows.iter().any(|row| !row[*column].is_empty());
    let filled: Vec<usize> = (0..table.columns.len()).filter(filled).collect();
    let last = *filled.last()?;
    let Some(room) = room else {
        return attempt(table, &filled, Tail::Beside, Caps::WHOLE, usize::MAX);
    };
    let order = giving_up(table, &filled, last);
    let without = |count: usize| -> Vec<usize> {
        let given_up = &order[..count];
        let kept = |column: &&usize| !given_up.contains(column);
        filled.iter().filter(kept).copied().collect()
    };
    let try_all = |tail, caps: &[Caps], most: usize| {
        caps.iter().find_map(|caps| {
            (0..=most).find_map(|count| attempt(table, &without(count), tail, *caps, room))
        })
    };
    let narrow = (room / NARROW_PART).clamp(SHORTEST_NAME, LONGEST_NAME);
    let names_cut = Caps::of(narrow, LONGEST_NAME);
    let functions_cut = Caps::of(LONGEST_NAME, SHORTEST_FUNCTION);
    let both_cut = Caps::of(narrow, SHORTEST_FUNCTION);
    let shortest = Caps::of(SHORTEST_NAME, SHORTEST_FUNCTION);
    let cheap = order.iter().filter(|c| table.columns[**c].is_cheap());
    let cheap = cheap.count();
    let second = match table.columns[last].least(true) {
        Some(_) => Tail::Below,
        None => Tail::Beside,
    };
    let found = try_all(Tail::Beside, &[Caps::WHOLE, names_cut], cheap)
        .or_else(|| try_all(second, &[Caps::WHOLE, functions_cut, both_cut], cheap))
        .or_else(|| try_all(second, &[both_cut, shortest], order.len()))
        .or_else(|| stacked(table, &without(cheap), room));
    found.map(|mut fit| {
        let shown = |column: &usize| {
            *column == fit.last.column || fit.before.iter().any(|s| s.column == *column)
        };
        let gone = filled.iter().copied().filter(|c| !shown(c));
        // Where the last column stands below, so do those that fold.
        (fit.folded, fit.left_out) =
            gone.partition(|c| table.columns[*c].folds() && fit.tail == Tail::Below);
        fit
    })
}

/// Columns that can be given up, the first to go first. A last column of prose has
/// lines of its own to go to.
fn giving_up(table: &Table, filled: &[usize], last: usize) -> Vec<usize> {
    let can_go = |column: &usize| {
        let has_place = *column == last && table.columns[last].least(true).is_some();
        !has_place && table.columns[*column].turn().is_some()
    };
    let mut order: Vec<usize> = filled.iter().copied().filter(can_go).collect();
    order.sort_by_key(|column| table.columns[*column].turn());
    order
}

/// Each cell after its title, as many on a line as it holds.
fn stacked(table: &Table, kept: &[usize], room: usize) -> Option<Fit> {
    let (last, before) = kept.split_last()?;
    let line = room.saturating_sub(table.indent.width() + STACKED_INDENT);
    let longest = line.clamp(SHORTEST_NAME, LONGEST_NAME);
    let shown = |column: &usize| Shown {
        column: *column,
        width: line,
        wraps: true,
        caps: Caps::of(longest, longest).on_lines_of(line),
    };
    let mut last = shown(last);
    if table.columns[last.column].least(true).is_some() {
        last.caps = last.caps.on_lines_of(below(table, room));
    }
    Some(Fit {
        before: before.iter().map(shown).collect(),
        last,
        tail: Tail::Stacked,
        folded: Vec::new(),
        left_out: Vec::new(),
    })
}

/// Columns of a line below a row.
pub(super) fn below(table: &Table, room: usize) -> usize {
    room.saturating_sub(table.indent.width() + BELOW_INDENT)
}

/// These columns in that room; absent when they do not fit.
fn attempt(table: &Table, kept: &[usize], tail: Tail, caps: Caps, room: usize) -> Option<Fit> {
    let (last, before) = kept.split_last()?;
    let mut shown: Vec<(Shown, usize)> = Vec::with_capacity(kept.len());
    for column in before {
        shown.push(measured(table, *column, false, caps));
    }
    if tail == Tail::Beside {
        shown.push(measured(table, *last, true, caps));
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
            width: below(table, room),
            wraps: true,
            // It has the whole line.
            caps: Caps::WHOLE.on_lines_of(below(table, room)),
        },
        Tail::Stacked => return None,
    };
    Some(Fit {
        before: shown,
        last,
        tail,
        folded: Vec::new(),
        left_out: Vec::new(),
    })
}

/// A column at its natural width, and its least width.
fn measured(table: &Table, index: usize, is_last: bool, caps: Caps) -> (Shown, usize) {
    let column = &table.columns[index];
    let texts = || {
        let cells = table.rows.iter().map(|row| row[index].text.as_str());
        cells.map(|text| column.shortened(text, caps))
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
        caps,
    };
    (shown, least)
}
