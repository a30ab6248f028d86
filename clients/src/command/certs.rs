//! `rdmesh certs`: a private authority for a small site, its certificates, and what they say.

use std::fmt::Write as _;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueHint};
use rdmesh_tls::authority::{
    AUTHORITY_DAYS, Authority, AuthorityError, CERTIFICATE_DAYS, Issued, Request,
};
use rdmesh_tls::live::read_certificates;
use rdmesh_tls::{Facts, Role, identity, now};
use serde::Serialize;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::exit::{Code, CommandError};
use crate::output::Output;

/// Only the owner reads a key; certificates are for everybody.
const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;

/// Seconds of a day.
const DAY: i64 = 86_400;

const INIT_EXAMPLE: &str = "\
Keep ca.key where no service runs: whoever has it can be anybody. ca.crt goes to every
machine.

Example:
  rdmesh certs init --site site-a --directory /root/rdmesh-ca";

const ISSUE_EXAMPLE: &str = "\
Writes ROLE-NAME.crt and ROLE-NAME.key. The name of an agent is its host's as it reports
it; a shaper on a DPU names the hosts that it shapes with --for. A scheduler's name is that
with which its jobs are started. --renew makes a new key and certificate in place of one
that this authority issued; services take them into use without a restart.

Examples:
  rdmesh certs issue collector c1 --address collector.site
  rdmesh certs issue agent gpu-01
  rdmesh certs issue agent dpu-01 --for gpu-01
  rdmesh certs issue operator ada --days 30
  rdmesh certs issue agent gpu-01 --renew";

const SHOW_EXAMPLE: &str = "\
Example:
  rdmesh certs show /etc/rdmesh/agent-gpu-01.crt";

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Make an authority: ca.crt and ca.key
    #[command(after_help = INIT_EXAMPLE)]
    Init(InitArgs),
    /// Issue a certificate with a new key
    #[command(after_help = ISSUE_EXAMPLE)]
    Issue(IssueArgs),
    /// Show whom certificates name, and how long they hold
    #[command(after_help = SHOW_EXAMPLE)]
    Show(ShowArgs),
}

#[derive(Debug, Args)]
pub(crate) struct InitArgs {
    /// Name of the site: only its own members talk to one another
    #[arg(long, value_name = "NAME")]
    site: String,
    /// Where the two files are written; made when it is missing
    #[arg(long, value_name = "PATH", default_value = ".", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// How long the authority holds, at most 7300
    #[arg(long, default_value_t = AUTHORITY_DAYS)]
    days: u32,
    /// Replace the files that are there: every certificate of before is worth nothing then
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct IssueArgs {
    /// agent, scheduler, operator, reader or collector
    role: String,
    /// Its name
    name: String,
    /// A host besides its own of which an agent reports; may be repeated
    #[arg(long = "for", value_name = "HOST")]
    also_for: Vec<String>,
    /// A name of DNS or an IP address, for clients that look at those (grpcurl); may be
    /// repeated
    #[arg(long, value_name = "ADDRESS")]
    address: Vec<String>,
    /// Where ca.crt and ca.key are
    #[arg(long, value_name = "PATH", default_value = ".", value_hint = ValueHint::DirPath)]
    directory: PathBuf,
    /// Where the two files are written; the directory of the authority unless said
    #[arg(long, value_name = "PATH", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,
    /// How long the certificate holds, at most 7300
    #[arg(long, default_value_t = CERTIFICATE_DAYS)]
    days: u32,
    /// Replace the certificate and the key of the same name; --for and --address of before
    /// are taken over
    #[arg(long, conflicts_with = "force")]
    renew: bool,
    /// Replace whatever files are there
    #[arg(long)]
    force: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ShowArgs {
    /// Files with certificates (PEM)
    #[arg(required = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    files: Vec<PathBuf>,
}

/// One certificate, for people and programs.
#[derive(Debug, Serialize)]
struct Shown {
    file: String,
    /// The identity, then hosts of which an agent reports besides.
    identities: Vec<String>,
    is_authority: bool,
    addresses: Vec<String>,
    issuer: String,
    serial: String,
    not_before: String,
    not_after: String,
    expires_in_seconds: i64,
    /// `valid`, `expired` or `not_yet_valid`.
    state: &'static str,
}

#[derive(Debug, Serialize)]
struct ShownAll {
    certificates: Vec<Shown>,
}

pub(crate) fn run(command: &CertsCommand, output: &mut Output) -> Result<Code, CommandError> {
    let shown = match command {
        CertsCommand::Init(args) => init(args)?,
        CertsCommand::Issue(args) => issue(args)?,
        CertsCommand::Show(args) => show(&args.files)?,
    };
    output.answer(
        &ShownAll {
            certificates: shown,
        },
        |all, _, _| all.certificates.iter().map(text).collect(),
    )?;
    Ok(Code::Answered)
}

fn init(args: &InitArgs) -> Result<Vec<Shown>, CommandError> {
    let (_, issued) = Authority::create(&args.site, now(), args.days).map_err(refused)?;
    fs::create_dir_all(&args.directory).map_err(|e| unwritable(&args.directory, &e))?;
    let certificate = args.directory.join("ca.crt");
    let key = args.directory.join("ca.key");
    write_both(&certificate, &key, &issued, args.force)?;
    show(&[certificate])
}

fn issue(args: &IssueArgs) -> Result<Vec<Shown>, CommandError> {
    let role: Role = args
        .role
        .parse()
        .map_err(|e: identity::IdentityError| CommandError::Usage(e.to_string()))?;
    // Before it is part of a file's name.
    identity::check_name(&args.name).map_err(|e| CommandError::Usage(e.to_string()))?;
    let ca = args.directory.join("ca.crt");
    let authority =
        Authority::open(&read(&ca)?, &read(&args.directory.join("ca.key"))?).map_err(refused)?;
    let out = args.out.as_ref().unwrap_or(&args.directory);
    let file = |ending: &str| out.join(format!("{role}-{}.{ending}", args.name));
    let (certificate, key) = (file("crt"), file("key"));
    let mut request = Request::new(role, &args.name, now(), args.days).map_err(refused)?;
    request.also_for.clone_from(&args.also_for);
    request.addresses.clone_from(&args.address);
    if args.renew {
        take_over(&mut request, &authority, &certificate)?;
    } else if role == Role::Collector && request.addresses.is_empty() {
        request.addresses.push(args.name.clone());
    }
    let issued = authority.issue(&request, now()).map_err(refused)?;
    fs::create_dir_all(out).map_err(|e| unwritable(out, &e))?;
    write_both(&certificate, &key, &issued, args.force || args.renew)?;
    show(&[certificate])
}

/// What the certificate of before says besides its name.
fn take_over(
    request: &mut Request,
    authority: &Authority,
    certificate: &Path,
) -> Result<(), CommandError> {
    let before = facts_of(certificate)?;
    let first = before
        .first()
        .ok_or_else(|| nothing_to_renew(certificate))?;
    let peer = first.peer().map_err(|_| nothing_to_renew(certificate))?;
    let is_same = peer.identity.role == request.role
        && peer.identity.name == request.name
        && peer.identity.site == authority.site();
    if !is_same {
        return Err(nothing_to_renew(certificate));
    }
    if request.also_for.is_empty() {
        request.also_for = peer.hosts.into_iter().skip(1).collect();
    }
    if request.addresses.is_empty() {
        request.addresses.clone_from(&first.addresses);
    }
    Ok(())
}

fn nothing_to_renew(certificate: &Path) -> CommandError {
    CommandError::Input(format!(
        "{} is no certificate of that role, name and site; leave --renew out to issue a first one",
        certificate.display()
    ))
}

fn show(files: &[PathBuf]) -> Result<Vec<Shown>, CommandError> {
    let now = now();
    let mut shown = Vec::new();
    for file in files {
        for facts in facts_of(file)? {
            shown.push(shown_of(file, facts, now));
        }
    }
    Ok(shown)
}

fn facts_of(file: &Path) -> Result<Vec<Facts>, CommandError> {
    let certificates =
        read_certificates(file).map_err(|error| CommandError::Input(error.to_string()))?;
    let facts = certificates.iter().map(|der| Facts::read(der));
    facts
        .collect::<Result<_, _>>()
        .map_err(|error| CommandError::Input(format!("{}: {error}", file.display())))
}

fn shown_of(file: &Path, facts: Facts, now: i64) -> Shown {
    let at = |seconds| {
        let at = OffsetDateTime::from_unix_timestamp(seconds).ok();
        at.and_then(|at| at.format(&Rfc3339).ok())
            .unwrap_or_default()
    };
    Shown {
        file: file.display().to_string(),
        is_authority: facts.is_authority,
        identities: facts.identities,
        addresses: facts.addresses,
        issuer: facts.issuer,
        serial: facts.serial,
        not_before: at(facts.not_before),
        not_after: at(facts.not_after),
        expires_in_seconds: facts.not_after - now,
        state: if now >= facts.not_after {
            "expired"
        } else if now < facts.not_before {
            "not_yet_valid"
        } else {
            "valid"
        },
    }
}

fn text(shown: &Shown) -> String {
    let mut text = format!("{}\n", shown.file);
    let who = match shown.identities.split_first() {
        None if shown.is_authority => format!("authority: {}", shown.issuer),
        None => "nobody: it names no identity".to_owned(),
        Some((first, [])) => first.clone(),
        Some((first, more)) => format!("{first}, also for {}", more.join(", ")),
    };
    let days = shown.expires_in_seconds.div_euclid(DAY);
    let state = match shown.state {
        "expired" => format!("expired on {}", shown.not_after),
        "not_yet_valid" => format!("not valid before {}", shown.not_before),
        _ => format!("valid until {} ({days} days)", shown.not_after),
    };
    // Writing to a text cannot fail.
    let _ = writeln!(text, "  {who}\n  {state}\n  serial {}", shown.serial);
    if !shown.addresses.is_empty() {
        let _ = writeln!(text, "  addresses {}", shown.addresses.join(", "));
    }
    text
}

fn refused(error: AuthorityError) -> CommandError {
    match error {
        AuthorityError::NoAuthority(_)
        | AuthorityError::Make(_)
        | AuthorityError::Unreadable(_) => CommandError::Input(error.to_string()),
        usage => CommandError::Usage(usage.to_string()),
    }
}

fn read(path: &Path) -> Result<String, CommandError> {
    fs::read_to_string(path).map_err(|error| {
        CommandError::Input(format!(
            "cannot read {}: {error}; --directory says where the authority is, `rdmesh certs \
             init` makes one",
            path.display()
        ))
    })
}

fn unwritable(path: &Path, error: &io::Error) -> CommandError {
    CommandError::Input(match error.kind() {
        io::ErrorKind::AlreadyExists => format!(
            "{} is there already, and is not replaced; say --renew for a new certificate of the \
             same name, or --force",
            path.display()
        ),
        _ => format!("cannot write {}: {error}", path.display()),
    })
}

/// The key first: a service that looks between the two keeps what it has.
fn write_both(
    certificate: &Path,
    key: &Path,
    issued: &Issued,
    replace: bool,
) -> Result<(), CommandError> {
    if !replace {
        for path in [certificate, key] {
            if path.symlink_metadata().is_ok() {
                return Err(unwritable(path, &io::ErrorKind::AlreadyExists.into()));
            }
        }
    }
    write(key, &issued.key, KEY_MODE, replace).map_err(|e| unwritable(key, &e))?;
    write(certificate, &issued.certificate, CERTIFICATE_MODE, replace)
        .map_err(|e| unwritable(certificate, &e))
}

/// Whole or not at all, and never with more rights than `mode`.
fn write(path: &Path, text: &str, mode: u32, replace: bool) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}.new", std::process::id()));
    let beside = PathBuf::from(beside);
    let written = fill(&beside, text, mode).and_then(|()| {
        if replace {
            fs::rename(&beside, path)
        } else {
            // Fails where there is a file meanwhile, which a rename would not.
            fs::hard_link(&beside, path)
        }
    });
    if !replace || written.is_err() {
        // What is left of it says nothing that the error does not.
        let _ = fs::remove_file(&beside);
    }
    written
}

fn fill(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file: File = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()
}
