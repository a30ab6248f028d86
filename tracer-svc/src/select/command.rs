//! `tracer-svc select`: arguments in, text out.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgGroup, Args};

use super::{
    Difference, Rules, SelectError, Selection, Source, compare, difference_text, read_old, select,
    selection_text,
};

/// Ended by a difference that is worse, and by nothing else.
pub const EXIT_WORSE: u8 = 3;

/// What to select from, and how to print it.
#[derive(Clone, Debug, PartialEq, Eq, Args)]
#[command(group(ArgGroup::new("from").required(true).args(["directory", "running"])))]
pub struct SelectArgs {
    /// Directory with a kernel's modules: lib/modules/RELEASE, or any with .ko,
    /// .ko.xz, .ko.zst or .ko.gz files
    #[arg(value_name = "DIR")]
    pub directory: Option<PathBuf>,
    /// The running kernel's modules
    #[arg(long)]
    pub running: bool,
    /// The driver whose operations are followed
    #[arg(long, value_name = "MODULE", default_value = "mlx5_ib")]
    pub driver: String,
    /// The kernel of the modules: vmlinuz, vmlinux or a raw BTF; without it the
    /// one beside the modules
    #[arg(long, value_name = "FILE")]
    pub kernel: Option<PathBuf>,
    /// What changed since an earlier selection (JSON); exit code 3 when coverage
    /// is worse
    #[arg(long, value_name = "OLD.json")]
    pub diff: Option<PathBuf>,
    /// Every function that is reached, with the reason why it was removed
    #[arg(long)]
    pub all: bool,
}

/// What a selection prints, and how the program ends.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// For standard output, with a newline at the end.
    pub text: String,
    /// Coverage is worse than before.
    pub worse: bool,
}

impl Outcome {
    /// The program's exit code.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.worse { EXIT_WORSE } else { 0 })
    }
}

/// Selects and writes. `release` is `uname -r`, for `--running`.
///
/// # Errors
/// As [`select`] and [`read_old`].
pub fn run(args: &SelectArgs, release: &str, json: bool) -> Result<Outcome, SelectError> {
    let source = match &args.directory {
        Some(directory) => Source {
            directory: directory.clone(),
            kernel: args.kernel.clone(),
            driver: args.driver.clone(),
        },
        None => {
            let mut source = Source::running(release, &args.driver);
            source.kernel = args.kernel.clone().or(source.kernel);
            source
        }
    };
    // Before the work: a wrong name should not cost a second.
    let old = args.diff.as_deref().map(read_old).transpose()?;
    let selection = select(&source, &Rules::built_in()?)?;
    if let Some(old) = &old {
        comparable(old, &selection)?;
    }
    let difference = old.map(|old| compare(&old, &selection));
    let worse = difference.as_ref().is_some_and(|d| !d.worse.is_empty());
    let text = match (difference, json) {
        (Some(difference), true) => to_json::<Difference>(&difference),
        (Some(difference), false) => difference_text(&difference),
        (None, true) => to_json::<Selection>(&selection),
        (None, false) => selection_text(&selection, args.all),
    };
    Ok(Outcome { text, worse })
}

/// Of another driver or processor everything differs, and nothing follows from it.
fn comparable(old: &Selection, new: &Selection) -> Result<(), SelectError> {
    if (&old.driver, &old.arch) == (&new.driver, &new.arch) {
        return Ok(());
    }
    Err(SelectError::OtherSelection {
        old: format!("{} on {}", old.driver, old.arch),
        new: format!("{} on {}", new.driver, new.arch),
    })
}

fn to_json<T: serde::Serialize>(value: &T) -> String {
    // Structs of strings and numbers: serialising them cannot fail.
    let mut text = serde_json::to_string_pretty(value).unwrap_or_default();
    text.push('\n');
    text
}
