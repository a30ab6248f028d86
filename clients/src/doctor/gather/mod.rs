//! Looks at a machine: files below a root, programs, addresses.
//!
//! Each part has a time, on a thread of its own: reading a file of a NIC whose firmware hangs
//! waits in the kernel, and that is when somebody asks what is wrong.

mod disk;
mod files;
mod kernel;
mod links;
mod nccl;
mod process;
mod program;
mod rdma;
mod settings;

#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::time::Duration;

use self::process::{Processes, Told};
use self::program::Said;
use super::facts::{Clock, Facts, Looked, Preflight, Service, ServiceFacts, Verdict};
use crate::endpoint::{AddressError, CollectorAddress};
use crate::links::TlsSettings;

/// How long the files of one part may take: reading those of a hundred devices takes some tens
/// of milliseconds.
const PART_WITHIN: Duration = Duration::from_secs(10);

/// How long a program may take for its answer: `timedatectl` may have to start a service first.
const PROGRAM_WITHIN: Duration = Duration::from_secs(5);

/// How long the services may take: four programs, one after the other.
const SERVICES_WITHIN: Duration = Duration::from_secs(25);

/// What is asked, and by whom.
#[derive(Debug)]
pub struct Question {
    /// Where the machine's files are: `/`, but for tests.
    pub root: PathBuf,
    /// The caller's variables that begin with `NCCL_`.
    pub environment: Vec<(String, String)>,
    /// The caller's home.
    pub home: Option<PathBuf>,
    /// Whether the caller says that a shaper stands before this host.
    pub is_shaped: bool,
    /// The caller's collector.
    pub collector: Result<CollectorAddress, AddressError>,
    /// The caller's certificate.
    pub tls: Result<TlsSettings, AddressError>,
}

/// Looks. Takes as long as the slowest part, whose time is bounded.
pub async fn gather(question: &Question) -> Facts {
    let mut facts = look(question);
    links::dial(question, &mut facts).await;
    facts
}

/// All but the addresses.
fn look(question: &Question) -> Facts {
    let root = &question.root;
    let (proc, sys) = (files::under(root, "/proc"), files::under(root, "/sys"));
    let now = rdmesh_tls::now();
    let host = files::text_or_nothing(&proc.join("sys/kernel/hostname"));
    let kernel = Part::of({
        let (proc, sys) = (proc.clone(), sys.clone());
        move || Looked::Found(kernel::look(&proc, &sys))
    });
    let devices = Part::of(move || rdma::devices(&sys));
    let shell = Part::of({
        let proc = proc.clone();
        move || process::own(&proc)
    });
    let processes = Part::of(move || process::scan(&proc));
    let clock = Part::of(|| Looked::Found(synchronized()));
    let nccl = nccl::look(
        root,
        &question.environment,
        question.home.as_deref(),
        question.is_shaped.then_some(true),
    );
    let own = question.tls.as_ref().ok().and_then(|tls| {
        let files = [&tls.ca, &tls.certificate, &tls.key].map(Option::as_ref);
        let is_any = files.iter().any(Option::is_some);
        let files = files.map(|path| path.cloned().unwrap_or_default());
        // Of the caller and not of the machine: as they stand.
        is_any.then(|| disk::certificate(Path::new("/"), &files.map(absolute), now))
    });
    let processes = processes.end();
    let services = {
        let (root, processes, host) = (root.clone(), processes.clone(), host.clone());
        Part::of(move || services(&root, processes, &host, now)).end_within(SERVICES_WITHIN)
    };
    let processes = processes.found().cloned().unwrap_or_default();
    Facts {
        kernel: kernel.end(),
        shell: shell.end(),
        services,
        devices: devices.end(),
        launchers: Looked::Found(processes.launchers),
        nccl,
        clock: Clock {
            synchronized: match clock.end() {
                Looked::Found(told) => told,
                Looked::Absent => Looked::Absent,
                Looked::Unknown(why) => Looked::Unknown(why),
            },
            daemons: processes.clock_daemons,
        },
        own,
        unusable: unusable(question),
        dials: Vec::new(),
        host,
        now,
    }
}

fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn unusable(question: &Question) -> Option<String> {
    let collector = question.collector.as_ref().err();
    collector
        .or(question.tls.as_ref().err())
        .map(ToString::to_string)
}

/// One part, which is looked at beside the others.
struct Part<T> {
    told: std::sync::mpsc::Receiver<Looked<T>>,
}

impl<T: Send + 'static> Part<T> {
    fn of(look: impl FnOnce() -> Looked<T> + Send + 'static) -> Part<T> {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // Who asked may have given up.
            let _ = tell.send(look());
        });
        Part { told }
    }

    fn end(self) -> Looked<T> {
        self.end_within(PART_WITHIN)
    }

    fn end_within(self, within: Duration) -> Looked<T> {
        self.told.recv_timeout(within).unwrap_or_else(|_| {
            let seconds = within.as_secs();
            Looked::Unknown(format!(
                "the kernel did not give it within {seconds} s: something hangs there"
            ))
        })
    }
}

/// The services that are set up here or run.
fn services(
    root: &Path,
    processes: Looked<Processes>,
    host: &str,
    now: i64,
) -> Looked<Vec<ServiceFacts>> {
    let running = match processes {
        Looked::Found(processes) => processes.services,
        Looked::Absent => Vec::new(),
        Looked::Unknown(why) => return Looked::Unknown(why),
    };
    let here = Service::ALL.into_iter().filter_map(|service| {
        let told: Vec<&Told> = running
            .iter()
            .filter(|(of, _)| *of == service)
            .map(|(_, told)| told)
            .collect();
        service_facts(root, service, &told, host, now)
    });
    Looked::Found(here.collect())
}

fn service_facts(
    root: &Path,
    service: Service,
    told: &[&Told],
    host: &str,
    now: i64,
) -> Option<ServiceFacts> {
    let default = PathBuf::from(format!("/etc/rdmesh/{}.toml", service.short()));
    let first = told.first().copied();
    let named = first.and_then(|told| settings::named_file(&told.arguments));
    let file = named.unwrap_or(default);
    let at = files::under(root, &file);
    let text = match files::bytes(&at, files::CONFIGURATION_BYTES) {
        Looked::Absent if told.is_empty() => return None,
        Looked::Absent => Looked::Absent,
        Looked::Found(bytes) => Looked::Found(String::from_utf8_lossy(&bytes).into_owned()),
        Looked::Unknown(why) => Looked::Unknown(why),
    };
    // Without a file variables, flags and defaults are all there is.
    let settings = match &text {
        Looked::Unknown(why) => Looked::Unknown(why.clone()),
        text => {
            let text = text.found().map_or("", String::as_str);
            match settings::settings(service, text, first, host) {
                Ok(settings) => Looked::Found(settings),
                Err(why) => Looked::Unknown(format!("{}: {why}", file.display())),
            }
        }
    };
    let found = settings.found();
    let certificate = found.and_then(|settings| settings.tls.as_ref());
    let has_spool = found.is_some_and(|settings| !settings.spool.as_os_str().is_empty());
    Some(ServiceFacts {
        verdict: match &text {
            Looked::Found(_) => verdict(service, &at),
            Looked::Absent => Looked::Absent,
            Looked::Unknown(why) => Looked::Unknown(why.clone()),
        },
        preflight: match (service, &text, found) {
            (Service::Shaper, Looked::Found(_), Some(settings))
                if told.is_empty() && settings.wires > 0 =>
            {
                preflight(&at)
            }
            _ => Vec::new(),
        },
        running: told.iter().map(|told| told.process.clone()).collect(),
        user: match first {
            Some(told) => Looked::Found((told.process.uid, told.process.gids.clone())),
            None => process::user(root, service.user()),
        },
        certificate: certificate.map(|paths| disk::certificate(root, paths, now)),
        spool: found
            .filter(|_| has_spool)
            .map(|settings| disk::spool(root, settings)),
        has_file: text != Looked::Absent,
        service,
        file,
        settings,
    })
}

/// What the program says of the file.
fn verdict(service: Service, file: &Path) -> Looked<Verdict> {
    let file = file.to_string_lossy();
    let arguments = ["--check-config", "--config", &file];
    let said = program::run(service.program(), &arguments, PROGRAM_WITHIN);
    said.map(|Said { code, out, error }| match code {
        Some(0) => Verdict::Valid,
        _ => {
            let words = if error.trim().is_empty() { out } else { error };
            let mut words = words.trim().to_owned();
            if words.is_empty() {
                words = format!("{} ended with {code:?}", service.program());
            }
            Verdict::Refused(words)
        }
    })
}

/// What the shaper's own look at the machine finds wanting.
fn preflight(file: &Path) -> Vec<Preflight> {
    let file = file.to_string_lossy();
    let said = program::run("shaper-svc", &["check", "--config", &file], PROGRAM_WITHIN);
    let Looked::Found(said) = said else {
        // That the program is not there is told of its configuration.
        return Vec::new();
    };
    said.out.lines().filter_map(preflight_line).collect()
}

/// `fail   text`, `check  text`; what is fine is left out.
fn preflight_line(line: &str) -> Option<Preflight> {
    let (is_refused, text) = match line.split_once("  ")? {
        ("fail", text) => (true, text),
        ("check", text) => (false, text),
        _ => return None,
    };
    Some(Preflight {
        is_refused,
        text: text.trim().to_owned(),
    })
}

/// What systemd says of the kernel's clock, which is what adjtimex(2) says (`STA_UNSYNC`).
fn synchronized() -> Looked<bool> {
    let arguments = ["show", "--property=NTPSynchronized", "--value"];
    match program::run("timedatectl", &arguments, PROGRAM_WITHIN) {
        Looked::Found(said) => match (said.code, said.out.trim()) {
            (Some(0), "yes") => Looked::Found(true),
            (Some(0), "no") => Looked::Found(false),
            // It says why in its first line.
            _ => match said.error.lines().next() {
                Some(why) => Looked::Unknown(format!("timedatectl says: {why}")),
                None => Looked::Unknown(format!("timedatectl ended with {:?}", said.code)),
            },
        },
        Looked::Absent => Looked::Absent,
        Looked::Unknown(why) => Looked::Unknown(why),
    }
}
