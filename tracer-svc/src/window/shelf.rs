//! Baselines as files: one for each kernel, driver and verb, whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::baseline::{Key, Tree};

/// Largest file that is read: a tree of 20,000 places has 4 MB.
const MAX_FILE_BYTES: u64 = 16 << 20;
/// Files that are looked at: 14 verbs of some drivers on the kernels of some years.
const MAX_FILES: usize = 1024;
/// How the name of a baseline ends, of one that is being written, and of one that was
/// set aside.
const ENDS: &str = ".json";
const NEW: &str = ".new";
const ASIDE: &str = ".damaged";

/// Why a baseline cannot be kept or had.
#[derive(Debug, thiserror::Error)]
pub enum ShelfError {
    /// The system refuses.
    #[error(
        "cannot {doing} {}: {error}; the disk must have room, and the tracer's user must own \
         `baseline.directory`",
        path.display()
    )]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is not ours, or it is damaged.
    #[error("{} is no baseline: {why}; {became}; record it anew", path.display())]
    Damaged {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
        /// What became of it.
        became: String,
    },
    /// A name of which no file can be named.
    #[error("{0:?} is no name of a kernel, a driver or a verb")]
    Name(String),
}

/// All that is kept.
#[derive(Debug, Default)]
pub struct Kept {
    /// By kernel, driver and verb.
    pub trees: Vec<Tree>,
    /// What was set aside now, and why.
    pub damaged: Vec<String>,
}

/// A directory of baselines; it is made when the first one is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shelf {
    directory: PathBuf,
}

impl Shelf {
    /// The baselines of a directory.
    #[must_use]
    pub fn at(directory: &Path) -> Self {
        Self {
            directory: directory.to_owned(),
        }
    }

    /// The baseline; none when there is none yet.
    ///
    /// # Errors
    /// [`ShelfError`]; a damaged file is set aside, so that the next recording begins
    /// anew.
    pub fn load(&self, key: &Key) -> Result<Option<Tree>, ShelfError> {
        let path = self.path(key)?;
        let Some(tree) = read(&path)? else {
            return Ok(None);
        };
        if tree.key() != *key {
            let why = format!("it is of {}, and not of {key}", tree.key());
            return Err(set_aside(&path, why));
        }
        Ok(Some(tree))
    }

    /// All baselines. A damaged file is set aside and told.
    ///
    /// # Errors
    /// The directory cannot be read. That it is not there is no error.
    pub fn all(&self) -> Result<Kept, ShelfError> {
        let mut kept = Kept::default();
        let entries = match fs::read_dir(&self.directory) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(kept),
            Err(error) => return Err(fail("read", &self.directory)(error)),
        };
        for entry in entries.take(MAX_FILES) {
            let path = entry.map_err(fail("read", &self.directory))?.path();
            if !path.to_string_lossy().ends_with(ENDS) {
                continue;
            }
            match read(&path) {
                Ok(tree) => kept.trees.extend(tree),
                Err(error) => kept.damaged.push(error.to_string()),
            }
        }
        kept.trees.sort_by_key(Tree::key);
        Ok(kept)
    }

    /// Replaces a baseline: written beside, synced, renamed, and the rename synced. A
    /// power cut leaves the old file or the new one.
    ///
    /// # Errors
    /// [`ShelfError::Io`]; the old file is still in place.
    pub fn save(&self, tree: &Tree) -> Result<(), ShelfError> {
        let path = self.path(&tree.key())?;
        fs::create_dir_all(&self.directory).map_err(fail("make", &self.directory))?;
        let mut beside = path.clone().into_os_string();
        beside.push(NEW);
        let beside = PathBuf::from(beside);
        let mut text = serde_json::to_vec_pretty(tree)
            .map_err(|error| fail("encode", &path)(io::Error::other(error)))?;
        text.push(b'\n');
        let write = || -> io::Result<()> {
            let mut file = File::create(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.directory)?.sync_all()
        };
        write().map_err(|error| {
            // On a full disk half a file takes room that the next one needs.
            let _ = fs::remove_file(&beside);
            fail("write", &path)(error)
        })
    }

    fn path(&self, key: &Key) -> Result<PathBuf, ShelfError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._+~-".contains(c);
        for name in [&key.verb, &key.driver, &key.kernel] {
            let plain = !name.is_empty() && name.len() <= 64 && name.chars().all(is_plain);
            if !plain || name.starts_with('.') {
                return Err(ShelfError::Name(name.clone()));
            }
        }
        // Neither verbs nor drivers have a dot in their name.
        let name = format!("{}.{}.{}{ENDS}", key.verb, key.driver, key.kernel);
        Ok(self.directory.join(name))
    }
}

/// None when there is no file.
fn read(path: &Path) -> Result<Option<Tree>, ShelfError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(fail("read", path)(error)),
        Ok(meta) if !meta.is_file() => return Err(set_aside(path, "it is no file".to_owned())),
        Ok(meta) if meta.len() > MAX_FILE_BYTES => {
            return Err(set_aside(path, format!("it has {} bytes", meta.len())));
        }
        Ok(_) => {}
    }
    let bytes = fs::read(path).map_err(fail("read", path))?;
    match Tree::read(&bytes) {
        Ok(tree) => Ok(Some(tree)),
        Err(error) => Err(set_aside(path, error.to_string())),
    }
}

/// Keeps what cannot be used under another name, for whoever wants to look at it.
fn set_aside(path: &Path, why: String) -> ShelfError {
    let mut aside = path.as_os_str().to_owned();
    aside.push(ASIDE);
    let aside = PathBuf::from(aside);
    let became = match fs::rename(path, &aside) {
        Ok(()) => format!("it is kept as {}", aside.display()),
        Err(error) => format!("it could not be kept as {}: {error}", aside.display()),
    };
    ShelfError::Damaged {
        path: path.to_owned(),
        why,
        became,
    }
}

fn fail(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> ShelfError {
    let path = path.to_owned();
    move |error| ShelfError::Io { doing, path, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Node;

    fn key(verb: &str) -> Key {
        Key {
            kernel: "6.12.118+deb13-amd64".to_owned(),
            driver: "rdma_rxe".to_owned(),
            verb: verb.to_owned(),
        }
    }

    fn tree(verb: &str) -> Tree {
        Tree {
            traces: 1,
            entries: vec![Node {
                function: "entry".to_owned(),
                traces: 1,
                ..Node::default()
            }],
            ..Tree::new(&key(verb))
        }
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        let name = |e: io::Result<fs::DirEntry>| e.unwrap().file_name().into_string().unwrap();
        let mut names: Vec<String> = entries.map(name).collect();
        names.sort();
        names
    }

    #[test]
    fn what_is_kept_comes_back() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(&directory.path().join("a/b"));
        assert_eq!(shelf.all().unwrap().trees, []);
        assert_eq!(shelf.load(&key("reg_mr")).unwrap(), None);
        shelf.save(&tree("reg_mr")).unwrap();
        shelf.save(&tree("create_cq")).unwrap();
        assert_eq!(shelf.load(&key("reg_mr")).unwrap(), Some(tree("reg_mr")));
        assert_eq!(
            shelf.all().unwrap().trees,
            [tree("create_cq"), tree("reg_mr")]
        );
        assert_eq!(
            names(&directory.path().join("a/b")),
            [
                "create_cq.rdma_rxe.6.12.118+deb13-amd64.json",
                "reg_mr.rdma_rxe.6.12.118+deb13-amd64.json"
            ]
        );
    }

    #[test]
    fn a_write_that_was_cut_short_leaves_the_old_one() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(directory.path());
        shelf.save(&tree("reg_mr")).unwrap();
        let cut = "reg_mr.rdma_rxe.6.12.118+deb13-amd64.json.new";
        fs::write(directory.path().join(cut), "{\"schema\":").unwrap();
        assert_eq!(shelf.all().unwrap().trees, [tree("reg_mr")]);
        // And is written over.
        shelf.save(&tree("reg_mr")).unwrap();
        assert_eq!(names(directory.path()).len(), 1);
    }

    #[test]
    fn a_damaged_file_is_refused_and_set_aside() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(directory.path());
        let name = "reg_mr.rdma_rxe.6.12.118+deb13-amd64.json";
        let path = directory.path().join(name);
        let damaged: [&[u8]; 4] = [b"", b"\xff\xfe", b"{\"schema\": 9}", b"[[[["];
        for bytes in damaged {
            fs::write(&path, bytes).unwrap();
            let error = shelf.load(&key("reg_mr")).unwrap_err().to_string();
            assert!(error.contains("is no baseline"), "{error}");
            assert!(error.contains(&format!("{name}.damaged")), "{error}");
            assert_eq!(names(directory.path()), [format!("{name}.damaged")]);
            assert_eq!(shelf.load(&key("reg_mr")).unwrap(), None);
        }
        // One of another verb under this name.
        fs::write(&path, serde_json::to_vec(&tree("create_cq")).unwrap()).unwrap();
        let error = shelf.load(&key("reg_mr")).unwrap_err().to_string();
        assert!(error.contains("of create_cq with rdma_rxe"), "{error}");
        // In a list it is told, and the others are there.
        shelf.save(&tree("create_cq")).unwrap();
        fs::write(&path, "{").unwrap();
        let kept = shelf.all().unwrap();
        assert_eq!(kept.trees, [tree("create_cq")]);
        assert_eq!(kept.damaged.len(), 1);
        assert!(shelf.all().unwrap().damaged.is_empty());
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let directory = tempfile::tempdir().unwrap();
        let shelf = Shelf::at(directory.path());
        for verb in ["", "..", "../../etc/x", "a/b", "a\0b", ".hidden", "é"] {
            let error = shelf.load(&key(verb)).unwrap_err();
            assert!(matches!(error, ShelfError::Name(_)), "{verb:?}: {error}");
            assert!(shelf.save(&tree(verb)).is_err(), "{verb:?}");
        }
        assert!(shelf.save(&tree(&"x".repeat(65))).is_err());
        assert_eq!(names(directory.path()), [""; 0]);
    }

    #[test]
    fn who_may_not_write_is_told_where() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("file");
        fs::write(&file, "").unwrap();
        let error = Shelf::at(&file.join("below")).save(&tree("reg_mr"));
        let error = error.unwrap_err().to_string();
        assert!(error.contains("baseline.directory"), "{error}");
    }
}
