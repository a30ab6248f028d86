//! The lab's end of the control channel: requests go out with a number, answers come
//! back in any order.

use anyhow::{Context, Result, anyhow, bail, ensure};
use rdmesh_guest::{Command, Line, MAX_REQUEST_BYTES, Reply, Request};
use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Mutex as AsyncMutex, oneshot};
use tokio::time::{Instant, timeout_at};

/// How often a socket that does not exist yet is tried again.
const CONNECT_POLL: Duration = Duration::from_millis(20);

/// Answers that are awaited, by request number.
type Waiting = Arc<Mutex<Option<HashMap<u64, oneshot::Sender<Result<Reply, String>>>>>>;

/// What the guest said about lines that it did not understand.
type Complaints = Arc<Mutex<Vec<String>>>;

/// An open control channel.
#[derive(Debug)]
pub struct Control {
    out: AsyncMutex<OwnedWriteHalf>,
    waiting: Waiting,
    complaints: Complaints,
    next_id: AtomicU64,
}

/// What a guest said first.
#[derive(Debug, Clone)]
pub struct Ready {
    /// `uname -r`.
    pub release: String,
    /// RDMA devices.
    pub devices: Vec<String>,
}

impl Control {
    /// Connects to QEMU's end and waits until the guest says that it is ready.
    pub async fn open(socket: &Path, deadline: Instant) -> Result<(Self, Ready)> {
        let stream = timeout_at(deadline, connect(socket))
            .await
            .context("QEMU did not start")??;
        let (read, write) = stream.into_split();
        let mut lines = BufReader::new(read);
        let first = timeout_at(deadline, next_line(&mut lines)).await;
        let first = first.context("the guest did not boot in time")??;
        let ready = match first {
            Some(Line::Ready { release, devices }) => Ready { release, devices },
            Some(Line::Failed { message }) => bail!("the guest could not set up: {message}"),
            Some(other) => bail!("the guest said {other:?} before it was ready"),
            None => bail!("the guest ended before it was ready"),
        };
        let waiting: Waiting = Arc::new(Mutex::new(Some(HashMap::new())));
        let complaints = Complaints::default();
        tokio::spawn(dispatch(
            lines,
            Arc::clone(&waiting),
            Arc::clone(&complaints),
        ));
        let out = AsyncMutex::new(write);
        let control = Self {
            out,
            waiting,
            complaints,
            next_id: AtomicU64::new(1),
        };
        Ok((control, ready))
    }

    /// Sends a request and awaits its answer.
    pub async fn ask(&self, command: Command, limit: Duration) -> Result<Reply> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut line = serde_json::to_vec(&Request { id, command })?;
        ensure!(
            line.len() <= MAX_REQUEST_BYTES,
            "request is over {MAX_REQUEST_BYTES} bytes"
        );
        line.push(b'\n');
        let (answer, answered) = oneshot::channel();
        lock(&self.waiting)
            .as_mut()
            .ok_or_else(gone)?
            .insert(id, answer);
        self.send_line(&line).await?;
        let answer = tokio::time::timeout(limit, answered).await;
        let answer = answer.with_context(|| format!("no answer from the guest in {limit:?}"))?;
        answer
            .map_err(|_| gone())?
            .map_err(|message| anyhow!("guest: {message}"))
    }

    /// What the guest said about lines that it did not understand, oldest first.
    pub fn complaints(&self) -> Vec<String> {
        lock(&self.complaints).clone()
    }

    /// Sends bytes as they are; for tests of what the guest refuses.
    pub async fn send_line(&self, line: &[u8]) -> Result<()> {
        self.out
            .lock()
            .await
            .write_all(line)
            .await
            .context("the guest is gone")
    }
}

fn gone() -> anyhow::Error {
    anyhow!("the guest is gone")
}

fn lock<T>(waiting: &Mutex<T>) -> MutexGuard<'_, T> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn connect(socket: &Path) -> Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            Ok(stream) => return Ok(stream),
            // QEMU has not made it yet.
            Err(_) => tokio::time::sleep(CONNECT_POLL).await,
        }
    }
}

async fn next_line(lines: &mut BufReader<OwnedReadHalf>) -> Result<Option<Line>> {
    let mut line = String::new();
    if lines.read_line(&mut line).await? == 0 {
        return Ok(None);
    }
    let parsed = serde_json::from_str(&line);
    parsed
        .map(Some)
        .with_context(|| format!("not a line of the guest: {}", line.trim_end()))
}

/// Hands answers to those who wait, until the channel ends.
async fn dispatch(mut lines: BufReader<OwnedReadHalf>, waiting: Waiting, complaints: Complaints) {
    while let Ok(Some(line)) = next_line(&mut lines).await {
        let (id, result) = match line {
            Line::Reply { id, reply } => (id, Ok(reply)),
            Line::Error {
                id: Some(id),
                message,
            } => (id, Err(message)),
            Line::Error { id: None, message } => {
                lock(&complaints).push(message);
                continue;
            }
            Line::Ready { .. } | Line::Failed { .. } => continue,
        };
        if let Some(answer) = lock(&waiting)
            .as_mut()
            .and_then(|waiting| waiting.remove(&id))
        {
            // The asker may have given up.
            let _ = answer.send(result);
        }
    }
    *lock(&waiting) = None;
}
