//! Rows in the format of `COPY … FROM STDIN (FORMAT binary)` (PostgreSQL
//! documentation, COPY, Binary Format).

use sqlx::PgConnection;
use sqlx::types::Uuid;
use time::OffsetDateTime;
use time::macros::datetime;

use crate::StoreError;

const SIGNATURE: &[u8] = b"PGCOPY\n\xff\r\n\0";
/// Postgres counts time from here.
const POSTGRES_EPOCH: OffsetDateTime = datetime!(2000-01-01 00:00 UTC);

/// Bytes of one COPY statement, beyond which the rows that follow go into another one:
/// some 10,000 rows, which take far less than the time that a statement may take, and
/// little memory.
const STATEMENT_BYTES: usize = 2 << 20;

const OID_INT2: i32 = 21;
const OID_INT4: i32 = 23;
const OID_INT8: i32 = 20;
const OID_TEXT: i32 = 25;
const OID_TIMESTAMPTZ: i32 = 1184;

/// What an array can hold.
pub(crate) trait Element {
    /// As `pg_type` numbers it.
    const OID: i32;

    /// Length and value.
    fn write(&self, to: &mut Vec<u8>);
}

macro_rules! number {
    ($type:ty, $oid:expr, $bytes:expr) => {
        impl Element for $type {
            const OID: i32 = $oid;

            fn write(&self, to: &mut Vec<u8>) {
                const BYTES: i32 = $bytes;
                to.extend_from_slice(&BYTES.to_be_bytes());
                to.extend_from_slice(&self.to_be_bytes());
            }
        }
    };
}

number!(i16, OID_INT2, 2);
number!(i32, OID_INT4, 4);
number!(i64, OID_INT8, 8);

impl Element for &str {
    const OID: i32 = OID_TEXT;

    fn write(&self, to: &mut Vec<u8>) {
        let length = i32::try_from(self.len()).unwrap_or(i32::MAX);
        to.extend_from_slice(&length.to_be_bytes());
        to.extend_from_slice(self.as_bytes());
    }
}

impl Element for String {
    const OID: i32 = OID_TEXT;

    fn write(&self, to: &mut Vec<u8>) {
        self.as_str().write(to);
    }
}

/// A time as Postgres counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Micros(pub(crate) i64);

impl From<OffsetDateTime> for Micros {
    fn from(at: OffsetDateTime) -> Self {
        let micros = (at - POSTGRES_EPOCH).whole_microseconds();
        Self(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

impl Element for Micros {
    const OID: i32 = OID_TIMESTAMPTZ;

    fn write(&self, to: &mut Vec<u8>) {
        self.0.write(to);
    }
}

/// A table's rows, encoded as they are added.
pub(crate) struct CopyRows {
    table: &'static str,
    columns: &'static [&'static str],
    bytes: Vec<u8>,
    rows: u64,
    /// Fields that the last row still misses.
    missing: usize,
}

impl CopyRows {
    pub(crate) fn new(table: &'static str, columns: &'static [&'static str]) -> Self {
        let mut rows = Self {
            table,
            columns,
            bytes: Vec::new(),
            rows: 0,
            missing: 0,
        };
        rows.begin();
        rows
    }

    /// What stands before the rows.
    fn begin(&mut self) {
        self.bytes.clear();
        self.bytes.extend_from_slice(SIGNATURE);
        // No flags, no header extension.
        self.bytes.extend_from_slice(&[0; 8]);
        self.rows = 0;
    }

    /// Begins a row; exactly one value for each column must follow.
    pub(crate) fn row(&mut self) -> &mut Self {
        assert_eq!(self.missing, 0, "a row of {} misses fields", self.table);
        self.missing = self.columns.len();
        let count = i16::try_from(self.columns.len()).unwrap_or(i16::MAX);
        self.bytes.extend_from_slice(&count.to_be_bytes());
        self.rows += 1;
        self
    }

    fn field(&mut self, value: &[u8]) -> &mut Self {
        self.missing -= 1;
        self.length(value.len());
        self.bytes.extend_from_slice(value);
        self
    }

    /// A length as the format has it. Nothing that is encoded comes near 2 GB: a whole
    /// message is bounded to a few megabytes on receipt.
    fn length(&mut self, length: usize) {
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        self.bytes.extend_from_slice(&length.to_be_bytes());
    }

    pub(crate) fn null(&mut self) -> &mut Self {
        self.missing -= 1;
        self.bytes.extend_from_slice(&(-1_i32).to_be_bytes());
        self
    }

    pub(crate) fn text(&mut self, value: &str) -> &mut Self {
        self.field(value.as_bytes())
    }

    pub(crate) fn bytes(&mut self, value: &[u8]) -> &mut Self {
        self.field(value)
    }

    pub(crate) fn text_or_null(&mut self, value: Option<&str>) -> &mut Self {
        match value {
            Some(value) => self.text(value),
            None => self.null(),
        }
    }

    pub(crate) fn int2(&mut self, value: i16) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    pub(crate) fn int4(&mut self, value: i32) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    pub(crate) fn int8(&mut self, value: i64) -> &mut Self {
        self.field(&value.to_be_bytes())
    }

    pub(crate) fn int8_or_null(&mut self, value: Option<i64>) -> &mut Self {
        match value {
            Some(value) => self.int8(value),
            None => self.null(),
        }
    }

    pub(crate) fn boolean(&mut self, value: bool) -> &mut Self {
        self.field(&[u8::from(value)])
    }

    pub(crate) fn uuid(&mut self, value: Uuid) -> &mut Self {
        self.field(value.as_bytes())
    }

    pub(crate) fn time(&mut self, value: OffsetDateTime) -> &mut Self {
        self.int8(Micros::from(value).0)
    }

    pub(crate) fn time_or_null(&mut self, value: Option<OffsetDateTime>) -> &mut Self {
        match value {
            Some(value) => self.time(value),
            None => self.null(),
        }
    }

    /// An array without nulls in it.
    pub(crate) fn array<T: Element>(&mut self, values: &[T]) -> &mut Self {
        self.begin_array::<T>(values.len(), false);
        let begin = self.bytes.len();
        for value in values {
            value.write(&mut self.bytes);
        }
        self.end_array::<T>(values.len(), begin)
    }

    /// The same, or null.
    pub(crate) fn array_or_null<T: Element>(&mut self, values: Option<&[T]>) -> &mut Self {
        match values {
            Some(values) => self.array(values),
            None => self.null(),
        }
    }

    /// An array with nulls in it; null itself where it has nothing but those.
    pub(crate) fn array_of_some<T: Element>(&mut self, values: &[Option<T>]) -> &mut Self {
        if values.iter().all(Option::is_none) {
            return self.null();
        }
        self.begin_array::<T>(values.len(), values.iter().any(Option::is_none));
        let begin = self.bytes.len();
        for value in values {
            match value {
                Some(value) => value.write(&mut self.bytes),
                None => self.bytes.extend_from_slice(&(-1_i32).to_be_bytes()),
            }
        }
        self.end_array::<T>(values.len(), begin)
    }

    /// Length (set at the end), dimensions, a flag for nulls, the type of the elements; of
    /// what has elements their number and the lower bound.
    fn begin_array<T: Element>(&mut self, count: usize, nulls: bool) {
        self.missing -= 1;
        let dimensions = i32::from(count > 0);
        for word in [0, dimensions, i32::from(nulls), T::OID] {
            self.bytes.extend_from_slice(&word.to_be_bytes());
        }
        if count > 0 {
            self.length(count);
            self.bytes.extend_from_slice(&1_i32.to_be_bytes());
        }
    }

    fn end_array<T: Element>(&mut self, count: usize, begin: usize) -> &mut Self {
        let head = if count > 0 { 20 } else { 12 };
        let length = self.bytes.len() - begin + head;
        let length = i32::try_from(length).unwrap_or(i32::MAX);
        let at = begin - head - 4;
        self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        self
    }

    /// Sends the rows so far once they fill a statement.
    pub(crate) async fn send_full(
        &mut self,
        connection: &mut PgConnection,
    ) -> Result<(), StoreError> {
        if self.bytes.len() < STATEMENT_BYTES {
            return Ok(());
        }
        self.send(connection).await
    }

    /// Sends the rows so far; nothing is sent when there are none.
    pub(crate) async fn send(&mut self, connection: &mut PgConnection) -> Result<(), StoreError> {
        assert_eq!(self.missing, 0, "a row of {} misses fields", self.table);
        if self.rows == 0 {
            return Ok(());
        }
        self.bytes.extend_from_slice(&(-1_i16).to_be_bytes());
        let statement = format!(
            "COPY rdmesh_store.{} ({}) FROM STDIN (FORMAT binary)",
            self.table,
            self.columns.join(", ")
        );
        let mut copy = connection.copy_in_raw(&statement).await?;
        copy.send(self.bytes.as_slice()).await?;
        copy.finish().await?;
        self.begin();
        Ok(())
    }
}
