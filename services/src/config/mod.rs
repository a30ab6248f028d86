//! One configuration structure per service, from a TOML file, the environment and
//! flags, in that order: a flag wins over the environment, which wins over the file.
//!
//! * File: `/etc/rdmesh/<service>.toml`, or `--config PATH`. The default file may
//!   be missing; a named one may not.
//! * Environment: `RDMESH_<SERVICE>__<SECTION>__<KEY>`, two underscores between
//!   the parts (Kubernetes sets `RDMESH_COLLECTOR_PORT` and its like by itself for a
//!   Service of that name, so one underscore would collide).
//! * Flags: `--set section.key=value`, and named flags of the service, which it
//!   hands to [`load`] as [`Flag`]s.
//!
//! Unknown keys are refused with their place and the nearest allowed name. The
//! result is validated before [`load`] returns, so before anything binds.
//!
//! ```
//! use rdmesh_services::config::{Check, Invalid, ServiceConfig, Validate};
//! use serde::{Deserialize, Serialize};
//!
//! #[derive(Debug, Serialize, Deserialize)]
//! #[serde(default, deny_unknown_fields)]
//! struct Echo { repeat: u32 }
//! impl Default for Echo { fn default() -> Self { Self { repeat: 1 } } }
//! impl Validate for Echo {
//!     fn validate(&self) -> Result<(), Invalid> { Check::range("repeat", self.repeat, 1..=10) }
//! }
//! impl ServiceConfig for Echo { const SERVICE: &'static str = "echo"; }
//! ```

mod args;
mod file;
mod help;
mod layers;
mod nearest;
mod secret;
mod validate;

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use args::{ConfigArgs, Flag};
pub use help::help;
pub use layers::ConfigError;
pub use secret::{Secret, SecretUrl};
pub use validate::{Check, Invalid, Validate};

/// Where configuration files are by default.
pub const DEFAULT_DIRECTORY: &str = "/etc/rdmesh";

/// Largest configuration file, bytes. A commented file of every option has about
/// 10 KB; a megabyte is a wrong path.
pub const MAX_FILE_BYTES: u64 = 1 << 20;

/// A service's configuration. Every structure in it must have
/// `#[serde(default, deny_unknown_fields)]`; [`check_strict`] proves it in a test. Layers
/// are laid over `T::default()`, section by section, so a default holds no secret and no
/// option is an enum with fields.
pub trait ServiceConfig: Default + Serialize + DeserializeOwned + Validate {
    /// The service's short name: `tracer`, `collector`, `shaper`.
    const SERVICE: &'static str;

    /// Whether everything is set without which the service does not run: asked by
    /// `--check-config`, and not by what only reads or prints a configuration.
    ///
    /// # Errors
    /// The first field that is not set.
    fn complete(&self) -> Result<(), Invalid> {
        Ok(())
    }
}

/// What [`load`] came to.
#[derive(Debug)]
pub enum Loaded<T> {
    /// Run with this.
    Run(T),
    /// `--print-config` or `--check-config` was answered on standard output: exit
    /// with success.
    Answered,
}

/// Reads, merges and validates the configuration, with the process's environment
/// and standard output.
///
/// # Errors
/// [`ConfigError`] names the place (file and line, variable or flag), the key and
/// what is allowed.
pub fn load<T: ServiceConfig>(args: &ConfigArgs, flags: &[Flag]) -> Result<Loaded<T>, ConfigError> {
    let environment = std::env::vars_os().filter_map(|(name, value)| {
        // Names of other programs need not be UTF-8; ours are.
        Some((
            name.into_string().ok()?,
            value.to_string_lossy().into_owned(),
        ))
    });
    let config: T = load_from(args, flags, environment)?;
    if args.print_config {
        print(&to_toml(&config)?)?;
        return Ok(Loaded::Answered);
    }
    if args.check_config {
        config.complete().map_err(ConfigError::Invalid)?;
        print(&format!("configuration of {} is valid\n", T::SERVICE))?;
        return Ok(Loaded::Answered);
    }
    Ok(Loaded::Run(config))
}

/// [`load`] with the environment as an argument and without printing.
///
/// # Errors
/// See [`load`].
pub fn load_from<T: ServiceConfig>(
    args: &ConfigArgs,
    flags: &[Flag],
    environment: impl IntoIterator<Item = (String, String)>,
) -> Result<T, ConfigError> {
    let mut layers = layers::Layers::<T>::new();
    if let Some((path, text)) = read_file(args, &default_path(T::SERVICE))? {
        layers.file(&path, &text)?;
    }
    layers.environment(T::SERVICE, environment)?;
    for flag in args.set.iter().chain(flags) {
        layers.flag(flag)?;
    }
    let config = layers.finish()?;
    config.validate().map_err(ConfigError::Invalid)?;
    Ok(config)
}

/// The configuration as TOML. Secrets are starred out.
///
/// # Errors
/// [`ConfigError::Print`] when the structure holds something that TOML cannot say.
pub fn to_toml<T: ServiceConfig>(config: &T) -> Result<String, ConfigError> {
    toml::to_string_pretty(config).map_err(|e| ConfigError::Print(e.to_string()))
}

/// The default file of a service.
#[must_use]
pub fn default_path(service: &str) -> PathBuf {
    Path::new(DEFAULT_DIRECTORY).join(format!("{service}.toml"))
}

/// Proves for a test that `T` refuses unknown keys at its root and in each section,
/// and that its default is valid.
///
/// # Errors
/// The dotted name of the first section that takes any key.
pub fn check_strict<T: ServiceConfig>() -> Result<(), String> {
    layers::check_strict::<T>()
}

fn read_file(args: &ConfigArgs, default: &Path) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let (path, named) = match &args.config {
        Some(path) => (path.as_path(), true),
        None => (default, false),
    };
    let unreadable = |source| ConfigError::Read {
        path: path.to_owned(),
        source,
    };
    // One byte more than allowed, since a device or a pipe has no length by its own word.
    let bytes = match file::read(path, MAX_FILE_BYTES + 1, file::MAX_SILENCE) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound && !named => return Ok(None),
        read => read.map_err(unreadable)?,
    };
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(ConfigError::TooLarge {
            path: path.to_owned(),
        });
    }
    let text = String::from_utf8(bytes)
        .map_err(|_| unreadable(std::io::Error::other("it is not UTF-8 text")))?;
    Ok(Some((path.to_owned(), text)))
}

fn print(text: &str) -> Result<(), ConfigError> {
    use std::io::Write;
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|e| ConfigError::Print(e.to_string()))
}
