//! Where the collector is: flag, then `RDMESH_COLLECTOR`, then the file, then
//! loopback.

use std::fmt;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::Deserialize;
use tonic::transport::Uri;

use crate::links::TlsSettings;

/// The collector's port.
pub const DEFAULT_PORT: u16 = 7400;

/// What is dialled when nothing else is said.
pub const DEFAULT_ADDRESS: &str = "127.0.0.1:7400";

/// The variable that names the collector.
pub const VARIABLE: &str = "RDMESH_COLLECTOR";

/// How an address of a socket in the file system begins.
pub const UNIX_PREFIX: &str = "unix:";

/// Longest path of a socket, bytes: `sun_path` of Linux, without its end.
pub const MAX_SOCKET_PATH_BYTES: usize = 107;

/// Largest file that is read. It holds one line; a megabyte there is a mistake.
pub const MAX_FILE_BYTES: usize = 64 * 1024;

/// A collector's address, and who said so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    /// `host:port` or `unix:/path`, as it is dialled and shown.
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
         for example collector.example:{DEFAULT_PORT}, or unix:/PATH"
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
    tls: Option<TlsSettings>,
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
            if let Some(text) = read_file(path)?.and_then(|file| file.collector) {
                return parse(&text, AddressSource::File(path.clone()));
            }
        }
        parse(DEFAULT_ADDRESS, AddressSource::Default)
    }

    /// Section `[tls]` of the first file that has one.
    ///
    /// # Errors
    /// A file cannot be read or has an unknown key.
    pub fn tls(&self) -> Result<TlsSettings, AddressError> {
        for path in &self.files {
            if let Some(tls) = read_file(path)?.and_then(|file| file.tls) {
                return Ok(tls);
            }
        }
        Ok(TlsSettings::default())
    }
}

fn read_file(path: &Path) -> Result<Option<CliFile>, AddressError> {
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
    let file = toml::from_str(&text).map_err(|e| wrong(e.to_string().trim().to_owned()))?;
    Ok(Some(file))
}

fn parse(text: &str, source: AddressSource) -> Result<CollectorAddress, AddressError> {
    let wrong = |reason| AddressError::Text {
        text: text.to_owned(),
        source_text: source.to_string(),
        reason,
    };
    let bare = text.trim();
    if let Some(path) = bare.strip_prefix(UNIX_PREFIX) {
        let path = socket_path(path).map_err(wrong)?;
        return Ok(CollectorAddress {
            authority: format!("{UNIX_PREFIX}{path}"),
            source,
        });
    }
    if bare.starts_with("https://") {
        return Err(wrong(
            "whether a link has TLS is said by the certificate, not by the address",
        ));
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

/// The path in `unix:/path` or `unix:///path`.
fn socket_path(text: &str) -> Result<&str, &'static str> {
    let path = text.strip_prefix("//").unwrap_or(text);
    if !path.starts_with('/') || path.len() == 1 {
        return Err("the path of its socket must be absolute: unix:/run/rdmesh/collector.sock");
    }
    if path.len() > MAX_SOCKET_PATH_BYTES {
        return Err("the path of its socket is longer than the 107 bytes that Linux allows");
    }
    if path.contains(char::is_control) {
        return Err("the path of its socket holds a control character");
    }
    Ok(path)
}

impl CollectorAddress {
    /// Whether it is a socket of this machine's file system.
    pub fn is_unix(&self) -> bool {
        self.authority.starts_with(UNIX_PREFIX)
    }

    /// As tonic dials it.
    pub(crate) fn uri(&self) -> String {
        if self.is_unix() {
            self.authority.clone()
        } else {
            format!("http://{}", self.authority)
        }
    }
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
        assert_eq!(authority("unix:/run/c.sock"), "unix:/run/c.sock");
        assert_eq!(authority("unix:///run/c.sock"), "unix:/run/c.sock");
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
            "unix:",
            "unix:/",
            "unix:c.sock",
            "unix:/a\u{1b}b",
        ] {
            assert!(text.parse::<CollectorAddress>().is_err(), "{text}");
        }
        let long = format!("unix:/{}", "x".repeat(MAX_SOCKET_PATH_BYTES));
        assert!(long.parse::<CollectorAddress>().is_err());
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
