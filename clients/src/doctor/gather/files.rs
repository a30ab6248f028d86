//! Files of /proc, /sys and /etc, of which nothing is believed: they may be gone, endless, a pipe
//! that nobody writes to, or garbage.

use std::fs::{self, File};
use std::io::{ErrorKind, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::doctor::facts::Looked;

/// Most bytes of a small file: none of /proc and /sys that is read has more than some pages.
pub(super) const SMALL_BYTES: u64 = 64 << 10;

/// Most bytes of a configuration file, as the services have it.
pub(super) const CONFIGURATION_BYTES: u64 = 1 << 20;

/// Most names of one directory. /proc has one for each process: tens of thousands on a large
/// host.
const MAX_NAMES: usize = 262_144;

/// The path as it is below `root`.
pub(super) fn under(root: &Path, path: impl AsRef<Path>) -> PathBuf {
    let path = path.as_ref();
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// The bytes of a regular file, `most` of them at most. What is no regular file is not even
/// opened: a pipe would wait for its writer, a device might do something.
pub(super) fn bytes(path: &Path, most: u64) -> Looked<Vec<u8>> {
    match read(path, most) {
        Ok(bytes) if bytes.len() as u64 > most => {
            Looked::Unknown(format!("{} has more than {most} bytes", path.display()))
        }
        Ok(bytes) => Looked::Found(bytes),
        Err(error) => missing_or(path, &error),
    }
}

fn read(path: &Path, most: u64) -> std::io::Result<Vec<u8>> {
    let regular = |is_file: bool| match is_file {
        true => Ok(()),
        false => Err(std::io::Error::other("it is no regular file")),
    };
    regular(fs::metadata(path)?.is_file())?;
    let file = File::options()
        .read(true)
        // It may have become a pipe meanwhile.
        .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
        .open(path)?;
    regular(file.metadata()?.is_file())?;
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// What an error says of something that was looked for.
pub(super) fn missing_or<T>(path: &Path, error: &std::io::Error) -> Looked<T> {
    match error.kind() {
        ErrorKind::NotFound | ErrorKind::NotADirectory => Looked::Absent,
        _ => Looked::Unknown(format!("{}: {error}", path.display())),
    }
}

/// The text of a small file without white space at its ends; what is no UTF-8 is replaced.
pub(super) fn text(path: &Path) -> Looked<String> {
    bytes(path, SMALL_BYTES).map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// The same, empty where it cannot be told.
pub(super) fn text_or_nothing(path: &Path) -> String {
    text(path).found().cloned().unwrap_or_default()
}

/// Names in a directory, sorted; those that are no UTF-8 are no names of the kernel and are left
/// out.
pub(super) fn names(directory: &Path) -> Looked<Vec<String>> {
    match fs::read_dir(directory) {
        Ok(entries) => {
            let names = entries.take(MAX_NAMES).flatten();
            let mut names: Vec<String> = names
                .filter_map(|entry| entry.file_name().into_string().ok())
                .collect();
            names.sort();
            Looked::Found(names)
        }
        Err(error) => missing_or(directory, &error),
    }
}

/// The same, empty where it cannot be told.
pub(super) fn names_or_none(directory: &Path) -> Vec<String> {
    names(directory).found().cloned().unwrap_or_default()
}

/// Bytes of a file that is there.
pub(super) fn size(path: &Path) -> Looked<u64> {
    match fs::metadata(path) {
        Ok(meta) => Looked::Found(meta.len()),
        Err(error) => missing_or(path, &error),
    }
}
