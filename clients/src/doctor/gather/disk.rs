//! Files and directories of services: whose they are, and how much room there is.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rdmesh_tls::Files;
use rdmesh_tls::inspect::inspect;
use rustix::fs::{StatVfsMountFlags, statvfs};

use super::files::{missing_or, under};
use crate::doctor::facts::{Certificate, KeyFile, Looked, Owner, Place, Settings, Spool};

/// The permission bits of a mode.
const PERMISSIONS: u32 = 0o7777;

/// Looks at ca, certificate and key. `now`: seconds since 1970.
pub(super) fn certificate(root: &Path, paths: &[PathBuf; 3], now: i64) -> Certificate {
    let files = paths.clone().map(|path| key_file(root, path));
    let is_readable = files.iter().all(|file| file.unreadable.is_none());
    let [ca, certificate, key] = paths.clone().map(|path| under(root, path));
    let files_of_it = Files {
        ca,
        certificate,
        key,
    };
    Certificate {
        inspection: is_readable.then(|| inspect(&files_of_it, now)),
        files,
    }
}

fn key_file(root: &Path, path: PathBuf) -> KeyFile {
    let at = under(root, &path);
    let (owner, unreadable) = match fs::metadata(&at) {
        // A pipe in its place would be waited for.
        Ok(meta) if !meta.is_file() => (
            Looked::Found(owner(&meta)),
            Some(format!("{} is no regular file", path.display())),
        ),
        Ok(meta) => {
            let opened = File::open(&at).map(drop);
            let why = opened
                .err()
                .map(|error| format!("{}: {error}", path.display()));
            (Looked::Found(owner(&meta)), why)
        }
        Err(error) => {
            let why = format!("{}: {error}", path.display());
            (missing_or(&path, &error), Some(why))
        }
    };
    KeyFile {
        path,
        owner,
        unreadable,
    }
}

fn owner(meta: &fs::Metadata) -> Owner {
    Owner {
        uid: meta.uid(),
        gid: meta.gid(),
        mode: meta.mode() & PERMISSIONS,
    }
}

/// Looks where the spool of a service is, or would be.
pub(super) fn spool(root: &Path, settings: &Settings) -> Spool {
    let directory = settings.spool.clone();
    Spool {
        place: place(root, &directory),
        max_mib: settings.spool_max_mib,
        is_named: settings.spool_is_named,
        directory,
    }
}

/// The directory, or the nearest one above it.
fn place(root: &Path, directory: &Path) -> Looked<Place> {
    for (up, path) in directory.ancestors().enumerate() {
        let at = under(root, path);
        match fs::metadata(&at) {
            Ok(meta) if !meta.is_dir() => {
                return Looked::Unknown(format!("{} is no directory", path.display()));
            }
            Ok(meta) => return room(&at, path, up == 0, owner(&meta)),
            Err(error) => {
                if let Looked::Unknown(why) = missing_or::<()>(path, &error) {
                    return Looked::Unknown(why);
                }
            }
        }
    }
    Looked::Absent
}

fn room(at: &Path, path: &Path, is_it: bool, owner: Owner) -> Looked<Place> {
    match statvfs(at) {
        Ok(system) => Looked::Found(Place {
            is_it,
            path: path.to_owned(),
            owner,
            is_read_only: system.f_flag.contains(StatVfsMountFlags::RDONLY),
            free_bytes: system.f_bavail.saturating_mul(system.f_frsize),
        }),
        Err(error) => Looked::Unknown(format!("{}: {error}", path.display())),
    }
}
