//! Asking the database as its readers do: psql, the read-only role, the documented
//! views. One psql serves many questions.

use crate::children::{self, Child};
use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use std::process::Stdio;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::Mutex;

/// The role that sees the documented views and nothing else.
pub const READER: &str = "rdmesh_reader";

/// A psql that waits for questions.
#[derive(Debug)]
pub struct Sql(Mutex<Session>);

#[derive(Debug)]
struct Session {
    questions: ChildStdin,
    answers: BufReader<ChildStdout>,
    errors: ChildStderr,
    _psql: Child,
}

impl Sql {
    /// Starts psql on a database.
    pub fn open(url: &str) -> Result<Self> {
        let mut psql = children::spawn("psql", Signal::TERM, None, |command| {
            // One answer is one line: unaligned, tuples only, first error ends it.
            command.args(["-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", url]);
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped());
        })
        .context("psql (package postgresql-client)")?;
        let (questions, answers, errors) = psql.take_streams()?;
        Ok(Self(Mutex::new(Session {
            questions: ChildStdin::from_std(questions)?,
            answers: BufReader::new(ChildStdout::from_std(answers)?),
            errors: ChildStderr::from_std(errors)?,
            _psql: psql,
        })))
    }

    /// The rows of a query.
    pub async fn rows<T: DeserializeOwned>(&self, query: &str) -> Result<Vec<T>> {
        let mut session = self.0.lock().await;
        let question = format!("SELECT coalesce(json_agg(q), '[]')::jsonb FROM ({query}) q;\n");
        session
            .questions
            .write_all(question.as_bytes())
            .await
            .context("psql has ended")?;
        let mut answer = String::new();
        if session.answers.read_line(&mut answer).await? == 0 {
            let mut said = String::new();
            session.errors.read_to_string(&mut said).await?;
            bail!("{query}: {}", said.trim_end());
        }
        serde_json::from_str(&answer).with_context(|| format!("{query}: {}", answer.trim_end()))
    }

    /// The only row of a query.
    pub async fn row<T: DeserializeOwned>(&self, query: &str) -> Result<T> {
        let mut rows = self.rows(query).await?;
        match (rows.pop(), rows.is_empty()) {
            (Some(row), true) => Ok(row),
            (row, _) => {
                bail!(
                    "{query}: want one row, not {}",
                    rows.len() + usize::from(row.is_some())
                )
            }
        }
    }
}
