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

    pub(crate) fn int4_or_null(&mut self, value: Option<i32>) -> &mut Self {
        match value {
            Some(value) => self.int4(value),
            None => self.null(),
        }
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
        let micros = (value - POSTGRES_EPOCH).whole_microseconds();
        self.int8(i64::try_from(micros).unwrap_or(i64::MAX))
    }

    pub(crate) fn time_or_null(&mut self, value: Option<OffsetDateTime>) -> &mut Self {
        match value {
            Some(value) => self.time(value),
            None => self.null(),
        }
    }

    pub(crate) fn jsonb_or_null(&mut self, value: Option<&str>) -> &mut Self {
        let Some(value) = value else {
            return self.null();
        };
        self.missing -= 1;
        self.length(value.len() + 1);
        // Version of the binary form of jsonb.
        self.bytes.push(1);
        self.bytes.extend_from_slice(value.as_bytes());
        self
    }

    pub(crate) fn text_array(&mut self, values: &[String]) -> &mut Self {
        self.array(OID_TEXT, values.len(), |rows| {
            for value in values {
                rows.length(value.len());
                rows.bytes.extend_from_slice(value.as_bytes());
            }
        })
    }

    pub(crate) fn int2_array(&mut self, values: &[i16]) -> &mut Self {
        self.array(OID_INT2, values.len(), |rows| {
            for value in values {
                rows.length(2);
                rows.bytes.extend_from_slice(&value.to_be_bytes());
            }
        })
    }

    pub(crate) fn int4_array(&mut self, values: &[i32]) -> &mut Self {
        self.array(OID_INT4, values.len(), |rows| {
            for value in values {
                rows.length(4);
                rows.bytes.extend_from_slice(&value.to_be_bytes());
            }
        })
    }

    pub(crate) fn int8_array(&mut self, values: &[i64]) -> &mut Self {
        self.array(OID_INT8, values.len(), |rows| {
            for value in values {
                rows.length(8);
                rows.bytes.extend_from_slice(&value.to_be_bytes());
            }
        })
    }

    fn array(&mut self, oid: i32, count: usize, elements: impl FnOnce(&mut Self)) -> &mut Self {
        self.missing -= 1;
        let length_at = self.bytes.len();
        self.length(0);
        let begin = self.bytes.len();
        // Dimensions, a flag for nulls, the type of the elements.
        for word in [i32::from(count > 0), 0, oid] {
            self.bytes.extend_from_slice(&word.to_be_bytes());
        }
        if count > 0 {
            self.length(count);
            // Lower bound.
            self.bytes.extend_from_slice(&1_i32.to_be_bytes());
            elements(self);
        }
        let length = i32::try_from(self.bytes.len() - begin).unwrap_or(i32::MAX);
        self.bytes[length_at..begin].copy_from_slice(&length.to_be_bytes());
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
