//! Where the collector is: flag, then `RDMESH_COLLECTOR`, then the file, then
//! loopback.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use tonic::transport::Uri;

/// The collector's port.
pub const DEFAULT_PORT: u16 = 7400;

/// What is dialled when nothing else is said.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7400";

/// The variable that names the collector.
pub const VARIABLE: &str = "RDMESH_COLLECTOR";

/// Largest file that is read. It holds one line; a megabyte there is a mistake.
pub const MAX_FILE_BYTES: usize = 64 * 1024;

/// A collector's address, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    /// `host:port`, as it is dialled and shown.
    pub authority: String,
    /// Who named it.
    pub source: AddressSource,
}

/// Who named the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressSource {
    /// `--collector`, or the caller of the library.
    Flag,
    /// [`VARIABLE`].
    Variable,
    /// A configuration file.
    File(PathBuf),
    /// Nobody: [`DEFAULT_ADDRESS`].
    Default,
}

/// Why no address could be had.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The text is no address.
    #[error(
        "{text:?} (from {source_text}) is no collector address: {reason}; write HOST:PORT, \
         for example collector.example:{DEFAULT_PORT}"
    )]
    Text {
        /// What was written.
        text: String,
        /// Who wrote it.
        source_text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The file is there and cannot be read.
    #[error("cannot read {}: {reason}; mend it, or say --collector HOST:PORT", path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system or the parser said.
        reason: String,
    },
}

/// All that can name the collector. The environment is an argument, so that a
/// test needs no process of its own.
#[derive(Clone, Debug, Default)]
pub struct AddressSources {
    /// `--collector`.
    pub flag: Option<String>,
    /// The value of [`VARIABLE`]; empty counts as unset.
    pub variable: Option<String>,
    /// Configuration files, the first that exists wins.
    pub files: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CliFile {
    collector: Option<String>,
}

/// The files that are looked at: `$XDG_CONFIG_HOME/rdmesh/cli.toml` or
/// `~/.config/rdmesh/cli.toml`, then `/etc/rdmesh/cli.toml`.
pub fn default_files(xdg_config_home: Option<PathBuf>, home: Option<PathBuf>) -> Vec<PathBuf> {
    let absolute = |path: &PathBuf| path.is_absolute();
    let config = xdg_config_home.filter(absolute);
    let own = config.or_else(|| home.filter(absolute).map(|h| h.join(".config")));
    let mut files: Vec<PathBuf> = own.iter().map(|c| c.join("rdmesh/cli.toml")).collect();
    files.push(PathBuf::from("/etc/rdmesh/cli.toml"));
    files
}

impl AddressSources {
    /// The address of the first source that names one.
    ///
    /// # Errors
    /// When that source holds no address, or a file cannot be read or has an
    /// unknown key. A file that does not exist is passed over.
    pub fn resolve(&self) -> Result<CollectorAddress, AddressError> {
        if let Some(text) = &self.flag {
            return parse(text, AddressSource::Flag);
        }
        if let Some(text) = self
            .variable
            .as_deref()
            .filter(|text| !text.trim().is_empty())
        {
            return parse(text, AddressSource::Variable);
        }
        for path in &self.files {
            if let Some(text) = read_file(path)? {
                return parse(&text, AddressSource::File(path.clone()));
            }
        }
        parse(DEFAULT_ADDRESS, AddressSource::Default)
    }
}

fn read_file(path: &Path) -> Result<Option<String>, AddressError> {
    let wrong = |reason: String| AddressError::File {
        path: path.to_owned(),
        reason,
    };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(None);
        }
        Err(error) => return Err(wrong(error.to_string())),
    };
    if text.len() > MAX_FILE_BYTES {
        return Err(wrong(format!(
            "it has {} bytes, {MAX_FILE_BYTES} are allowed",
            text.len()
        )));
    }
    let file: CliFile =
        toml::from_str(&text).map_err(|e| wrong(e.to_string().trim().to_owned()))?;
    Ok(file.collector)
}

fn parse(text: &str, source: AddressSource) -> Result<CollectorAddress, AddressError> {
    let wrong = |reason| AddressError::Text {
        text: text.to_owned(),
        source_text: source.to_string(),
        reason,
    };
    let bare = text.trim();
    if bare.starts_with("https://") {
        return Err(wrong("this version speaks plain HTTP/2 only"));
    }
    let bare = bare
        .strip_prefix("http://")
        .unwrap_or(bare)
        .trim_end_matches('/');
    if bare.is_empty() {
        return Err(wrong("it is empty"));
    }
    let uri: Uri = format!("http://{bare}")
        .parse()
        .map_err(|_| wrong("it cannot be read"))?;
    let authority = uri.authority().ok_or_else(|| wrong("it names no host"))?;
    if authority.as_str().contains('@') || !matches!(uri.path(), "" | "/") || uri.query().is_some()
    {
        return Err(wrong("only a host and a port belong there"));
    }
    if authority.host().is_empty() {
        return Err(wrong("it names no host"));
    }
    if bare.ends_with(':')
        || authority
            .port()
            .is_some_and(|_| authority.port_u16() == Some(0))
    {
        return Err(wrong("its port is not one from 1 to 65535"));
    }
    let port = match (authority.port(), authority.port_u16()) {
        (_, Some(port)) => port,
        (None, None) if bare.matches(':').count() == 0 || bare.ends_with(']') => DEFAULT_PORT,
        _ => return Err(wrong("its port is not one from 1 to 65535")),
    };
    Ok(CollectorAddress {
        authority: format!("{}:{port}", authority.host()),
        source,
    })
}

impl FromStr for CollectorAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<CollectorAddress, AddressError> {
        parse(text, AddressSource::Flag)
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.authority)
    }
}

impl fmt::Display for AddressSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressSource::Flag => f.write_str("--collector"),
            AddressSource::Variable => f.write_str(VARIABLE),
            AddressSource::File(path) => write!(f, "{}", path.display()),
            AddressSource::Default => f.write_str("the built-in default"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authority(text: &str) -> String {
        text.parse::<CollectorAddress>().unwrap().authority
    }

    #[test]
    fn reads_addresses() {
        assert_eq!(authority("collector"), "collector:7400");
        assert_eq!(authority("collector:80"), "collector:80");
        assert_eq!(authority(" http://10.0.0.1:7400/ "), "10.0.0.1:7400");
        assert_eq!(authority("[::1]"), "[::1]:7400");
        assert_eq!(authority("[::1]:9"), "[::1]:9");
    }

    #[test]
    fn refuses_what_is_no_address() {
        for text in [
            "",
            " ",
            "http://",
            ":7400",
            "a:",
            "a:0",
            "a:70000",
            "a:x",
            "a b",
            "a/b",
            "u@a:1",
            "a?q",
            "https://a",
            "::1",
        ] {
            assert!(text.parse::<CollectorAddress>().is_err(), "{text}");
        }
    }

    #[test]
    fn the_first_source_wins() {
        let dir = tempfile::tempdir().unwrap();
        let (own, site) = (dir.path().join("own.toml"), dir.path().join("site.toml"));
        std::fs::write(&site, "collector = \"site:1\"\n").unwrap();
        let mut sources = AddressSources {
            flag: Some("flag:1".to_owned()),
            variable: Some("variable:1".to_owned()),
            files: vec![own.clone(), site.clone()],
        };
        assert_eq!(sources.resolve().unwrap().authority, "flag:1");
        sources.flag = None;
        assert_eq!(sources.resolve().unwrap().authority, "variable:1");
        sources.variable = Some(String::new());
        let found = sources.resolve().unwrap();
        assert_eq!(
            (found.authority.as_str(), found.source),
            ("site:1", AddressSource::File(site))
        );
        std::fs::write(&own, "# the site's file decides\n").unwrap();
        assert_eq!(sources.resolve().unwrap().authority, "site:1");
        std::fs::write(&own, "collector = \"own:1\"\n").unwrap();
        assert_eq!(sources.resolve().unwrap().authority, "own:1");
        sources.files.clear();
        assert_eq!(sources.resolve().unwrap().authority, DEFAULT_ADDRESS);
    }

    #[test]
    fn a_wrong_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cli.toml");
        std::fs::write(&path, "colector = \"a:1\"\n").unwrap();
        let sources = AddressSources {
            files: vec![path.clone()],
            ..AddressSources::default()
        };
        let error = sources.resolve().unwrap_err().to_string();
        assert!(
            error.contains("cli.toml") && error.contains("colector"),
            "{error}"
        );
    }

    #[test]
    fn files_are_looked_for_where_people_keep_them() {
        let files = default_files(None, Some(PathBuf::from("/home/ada")));
        assert_eq!(files[0], Path::new("/home/ada/.config/rdmesh/cli.toml"));
        assert_eq!(files[1], Path::new("/etc/rdmesh/cli.toml"));
        let files = default_files(Some(PathBuf::from("/x")), Some(PathBuf::from("/home/ada")));
        assert_eq!(files[0], Path::new("/x/rdmesh/cli.toml"));
        assert_eq!(default_files(None, None).len(), 1);
    }
}
