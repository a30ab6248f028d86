//! Checks of columnar messages. Every error names the field.

use rdmesh_store::text::storable;

use crate::attempt::BadRequest;
use crate::ingest::limits::{COUNT_MAX, ERRNO_MAX, TEXT_MAX_BYTES};
use crate::times::BadTime;

/// Why an item is refused: which field, what is wrong, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// A message that must be there is not.
    #[error("{field} is missing")]
    Missing { field: String },
    /// Two columns of a table differ in length.
    #[error(
        "{field} has {found} entries where {other} has {expected}; columns of a table have the same length"
    )]
    Length {
        field: String,
        found: usize,
        other: String,
        expected: usize,
    },
    /// A table has too many rows.
    #[error("{field} has {found} entries; at most {most} are allowed")]
    TooMany {
        field: String,
        found: usize,
        most: usize,
    },
    /// An index points outside its table.
    #[error("{field}[{row}] is {value}, which points outside {table} ({rows} rows)")]
    Index {
        field: String,
        row: usize,
        value: u64,
        table: String,
        rows: usize,
    },
    /// A time that is none.
    #[error(transparent)]
    Time(BadTime),
    /// A text that names nothing; it says itself which field it is.
    #[error(transparent)]
    Text(BadRequest),
    /// An item without content, or of a newer contract.
    #[error("item is missing, or of a kind that this collector does not know: is the agent newer?")]
    NoItem,
    /// A value that is not allowed.
    #[error("{field} is {value}; allowed: {allowed}")]
    Value {
        field: String,
        value: String,
        allowed: String,
    },
}

impl Refusal {
    pub(crate) fn missing(field: &str) -> Self {
        Self::Missing {
            field: field.to_owned(),
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers pass numbers")]
    pub(crate) fn value(field: impl Into<String>, value: impl ToString, allowed: &str) -> Self {
        Self::Value {
            field: field.into(),
            value: value.to_string(),
            allowed: allowed.to_owned(),
        }
    }
}

/// Columns of one table: their names and lengths.
pub(crate) struct Table<'a> {
    name: &'a str,
    rows: usize,
    most: usize,
}

impl<'a> Table<'a> {
    /// A table whose first column is `column`.
    pub(crate) fn new(name: &'a str, most: usize, rows: usize) -> Result<Self, Refusal> {
        if rows > most {
            return Err(Refusal::TooMany {
                field: name.to_owned(),
                found: rows,
                most,
            });
        }
        Ok(Self { name, rows, most })
    }

    /// Checks the length of further columns against the first.
    pub(crate) fn columns(&self, first: &str, others: &[(&str, usize)]) -> Result<(), Refusal> {
        for (column, length) in others {
            if *length != self.rows {
                return Err(Refusal::Length {
                    field: format!("{}.{column}", self.name),
                    found: *length,
                    other: format!("{}.{first}", self.name),
                    expected: self.rows,
                });
            }
        }
        debug_assert!(self.rows <= self.most);
        Ok(())
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// The row of `target` that `value` points to.
    pub(crate) fn index(
        &self,
        column: &str,
        row: usize,
        value: u32,
        target: (&str, usize),
    ) -> Result<usize, Refusal> {
        let (table, rows) = target;
        match usize::try_from(value) {
            Ok(index) if index < rows => Ok(index),
            _ => Err(Refusal::Index {
                field: format!("{}.{column}", self.name),
                row,
                value: u64::from(value),
                table: table.to_owned(),
                rows,
            }),
        }
    }

    /// The row that a column with zero for "none" points to.
    pub(crate) fn index_plus_one(
        &self,
        column: &str,
        row: usize,
        value: u32,
        target: (&str, usize),
    ) -> Result<Option<usize>, Refusal> {
        match value.checked_sub(1) {
            None => Ok(None),
            Some(index) => match usize::try_from(index) {
                Ok(index) if index < target.1 => Ok(Some(index)),
                // Told as it came.
                _ => self.index(column, row, value, target).map(Some),
            },
        }
    }

    fn field(&self, column: &str, row: usize) -> String {
        format!("{}.{column}[{row}]", self.name)
    }

    pub(crate) fn errno(&self, column: &str, row: usize, value: u32) -> Result<i32, Refusal> {
        if (1..=ERRNO_MAX).contains(&value)
            && let Ok(errno) = i32::try_from(value)
        {
            return Ok(errno);
        }
        Err(Refusal::value(self.field(column, row), value, "1 to 4095"))
    }

    /// A count.
    pub(crate) fn count(&self, column: &str, row: usize, value: u64) -> Result<i64, Refusal> {
        count(&self.field(column, row), value)
    }

    /// The same of what happened at least once.
    pub(crate) fn positive(&self, column: &str, row: usize, value: u64) -> Result<i64, Refusal> {
        match i64::try_from(value) {
            Ok(count @ 1..=COUNT_MAX) => Ok(count),
            _ => {
                let allowed = format!("1 to {COUNT_MAX}");
                Err(Refusal::value(self.field(column, row), value, &allowed))
            }
        }
    }

    /// Times that Postgres can hold.
    pub(crate) fn long(&self, column: &str, row: usize, value: u64) -> Result<i64, Refusal> {
        long(&self.field(column, row), value)
    }
}

/// A `u64` that Postgres can hold.
pub(crate) fn long(field: &str, value: u64) -> Result<i64, Refusal> {
    i64::try_from(value).map_err(|_| Refusal::value(field, value, "0 to 9223372036854775807"))
}

/// A count: bounded, so that sums over all hosts and years stay within 64 bits.
pub(crate) fn count(field: &str, value: u64) -> Result<i64, Refusal> {
    match i64::try_from(value) {
        Ok(count) if count <= COUNT_MAX => Ok(count),
        _ => Err(Refusal::value(field, value, &format!("0 to {COUNT_MAX}"))),
    }
}

/// A text of a snapshot, fit for the store.
#[derive(Debug, Clone)]
pub(crate) struct Text {
    pub(crate) text: String,
    /// Whether the bytes were no UTF-8, held control characters, or were too long.
    pub(crate) changed: bool,
}

impl Text {
    pub(crate) fn new(bytes: &[u8]) -> Self {
        let kept = storable(bytes, TEXT_MAX_BYTES);
        Self {
            text: kept.text,
            changed: kept.changed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_name_the_field_and_what_is_allowed() {
        let table = Table::new("chains", 10, 2).unwrap();
        let told = |refusal: Refusal| refusal.to_string();
        assert_eq!(
            told(
                table
                    .columns("signature", &[("task", 2), ("count", 1)])
                    .unwrap_err()
            ),
            "chains.count has 1 entries where chains.signature has 2; columns of a table have \
             the same length"
        );
        assert_eq!(
            told(table.index("task", 1, 9, ("tasks", 3)).unwrap_err()),
            "chains.task[1] is 9, which points outside tasks (3 rows)"
        );
        assert_eq!(
            told(table.errno("errno", 0, 0).unwrap_err()),
            "chains.errno[0] is 0; allowed: 1 to 4095"
        );
        for value in [0, u64::MAX, 1_000_000_000_001] {
            assert_eq!(
                told(table.positive("count", 0, value).unwrap_err()),
                format!("chains.count[0] is {value}; allowed: 1 to 1000000000000")
            );
        }
        assert_eq!(table.positive("count", 0, 1).unwrap(), 1);
        assert_eq!(
            told(Table::new("chains", 10, 11).map(|_| ()).unwrap_err()),
            "chains has 11 entries; at most 10 are allowed"
        );
        assert_eq!(
            table.index_plus_one("device", 0, 0, ("devices", 0)),
            Ok(None)
        );
        assert_eq!(table.errno("errno", 0, 524), Ok(524));
    }
}
