//! The rules' choice on a kernel that the catalogue was not checked on.
//!
//! The analysis of the module files takes half a second and 150 MB. Another process
//! does it, so that the tracer stays small and a broken module file ends only that.

use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Tracer;
use crate::resolve::{Chosen, checked_text, extend, is_checked};

/// Longest time of the analysis when the tracer starts: twenty times what it takes on a machine with
/// nothing else to do.
const LIMIT: Duration = Duration::from_secs(20);

/// When the rules are asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ByRules {
    /// On a kernel of a series that the catalogue was not checked on.
    #[default]
    Unchecked,
    /// On every kernel.
    Always,
    /// On none: the catalogue as it is.
    Never,
}

impl Tracer {
    /// Asks the rules about each driver once, and adds what they choose.
    pub(super) fn choose(&mut self, drivers: impl Iterator<Item = String>) {
        let release = rustix::system::uname();
        let release = release.release().to_string_lossy();
        let checked = is_checked(&release);
        match self.by_rules {
            ByRules::Never => return,
            ByRules::Unchecked if checked => return,
            ByRules::Unchecked | ByRules::Always => {}
        }
        for driver in drivers {
            if !self.asked.insert(driver.clone()) {
                continue;
            }
            let started = Instant::now();
            let chosen = selection::<Chosen>(&driver, LIMIT);
            let seconds = started.elapsed().as_secs_f64();
            let outcome = match chosen.map(|chosen| extend(&mut self.catalogue, &chosen)) {
                Ok(added) if added.is_empty() => format!(
                    "with {driver} the rules choose what the catalogue has ({seconds:.1} s)"
                ),
                Ok(added) => format!(
                    "with {driver} the rules add {} ({seconds:.1} s)",
                    added.join(", ")
                ),
                Err(why) => format!(
                    "with {driver} the rules could not be asked, so that the catalogue is used as \
                     it is: {why}"
                ),
            };
            tracing::info!(kernel = %release, outcome, "resolved by the rules");
            if self.resolution.is_empty() {
                self.resolution = match checked {
                    true => format!("kernel {release}"),
                    false => format!(
                        "kernel {release} is of no series that the catalogue was checked on ({})",
                        checked_text()
                    ),
                };
            }
            self.resolution = format!("{}; {outcome}", self.resolution);
        }
    }
}

/// What `tracer-svc select` says of the running kernel.
pub(super) fn selection<T: DeserializeOwned>(driver: &str, limit: Duration) -> Result<T, String> {
    let mut child = Command::new("/proc/self/exe")
        .args([
            "select",
            "--running",
            "--output",
            "json",
            "--driver",
            driver,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("tracer-svc select: {error}"))?;
    let said = answer(&mut child, limit);
    // Also where it answered: an ended process is only collected.
    let _ = child.kill();
    let _ = child.wait();
    let (out, error) = said?;
    serde_json::from_str(&out).map_err(|_| error.trim().to_owned())
}

/// Both outputs, in time.
fn answer(child: &mut Child, limit: Duration) -> Result<(String, String), String> {
    let (Some(mut out), Some(mut error)) = (child.stdout.take(), child.stderr.take()) else {
        return Err("tracer-svc select has no output".to_owned());
    };
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut said, mut complained) = (String::new(), String::new());
        let read = out
            .read_to_string(&mut said)
            .and_then(|_| error.read_to_string(&mut complained));
        // Nobody listens any more when it took too long.
        let _ = sender.send(read.map(|_| (said, complained)));
    });
    match receiver.recv_timeout(limit) {
        Ok(said) => said.map_err(|error| format!("tracer-svc select: {error}")),
        Err(_) => Err(format!(
            "tracer-svc select did not end within {} s",
            limit.as_secs()
        )),
    }
}
