//! cgroup ids, their paths, and the attempt that all work in a cgroup belongs to.

use std::collections::HashSet;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::attempt::{Attempt, Source};
use super::cgroup_path::job_id_of_cgroup_path;
use super::lru::Lru;

/// cgroups that are remembered. A host of 16 ranks has a hundred; the counters'
/// map has room for as many distinct ones as failed.
const KNOWN_CGROUPS: usize = 16_384;
/// Directories that one search visits: more than the busiest host has, so that
/// a runaway hierarchy costs a bounded time.
const SEARCHED_DIRECTORIES: usize = 65_536;
/// Depth of a search; the kernel's own use stays under a dozen.
const SEARCHED_DEPTH: usize = 32;

/// The v1 hierarchies whose ids records may carry (see `bpf/record.h`).
const V1_CONTROLLERS: [&str; 4] = ["memory", "cpuset", "freezer", "pids"];

/// A mounted hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Where it is mounted.
    pub mount: PathBuf,
    /// The hierarchy's number: 0 for the unified one. Records carry it in bits
    /// 48 to 63 of their cgroup id.
    pub number: u16,
    /// v1: the controller; empty for the unified hierarchy.
    pub controller: &'static str,
}

impl Hierarchy {
    /// What is mounted, by `PROC/self/mounts` and `PROC/cgroups`.
    #[must_use]
    pub fn mounted(proc_root: &Path) -> Vec<Self> {
        let mounts = fs::read_to_string(proc_root.join("self/mounts")).unwrap_or_default();
        let numbers = fs::read_to_string(proc_root.join("cgroups")).unwrap_or_default();
        let number_of = |controller: &str| -> Option<u16> {
            let line = numbers
                .lines()
                .find(|l| l.split_whitespace().next() == Some(controller))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        let mut found: Vec<Self> = Vec::new();
        for line in mounts.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(mount), Some(kind), Some(options)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            let (controller, number) = match kind {
                "cgroup2" => ("", Some(0)),
                "cgroup" => {
                    let named = V1_CONTROLLERS
                        .iter()
                        .find(|c| options.split(',').any(|o| o == **c));
                    let Some(controller) = named else { continue };
                    (*controller, number_of(controller))
                }
                _ => continue,
            };
            if let Some(number) = number
                && !found.iter().any(|h| h.number == number)
            {
                found.push(Self {
                    mount: mount.into(),
                    number,
                    controller,
                });
            }
        }
        found
    }

    fn tagged(&self, inode: u64) -> u64 {
        inode | (u64::from(self.number) << 48)
    }
}

/// What is known of one cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupInfo {
    /// From the root of its hierarchy, `/a/b`; empty: not known.
    pub path: Vec<u8>,
    /// The attempt that all work in it belongs to.
    pub attempt: Option<(Attempt, Source)>,
}

#[derive(Debug, Default)]
struct Entry {
    path: Option<Vec<u8>>,
    members: Members,
    /// A search has looked for its path.
    searched: bool,
}

/// What the tasks seen in a cgroup said about themselves.
#[derive(Debug, Default)]
enum Members {
    #[default]
    NoneSeen,
    Agree(Attempt, Source),
    Differ,
}

/// All cgroups of the host that were seen with a failure.
#[derive(Debug)]
pub struct Cgroups {
    hierarchies: Vec<Hierarchy>,
    known: Lru<u64, Entry>,
}

impl Cgroups {
    /// Searches in these hierarchies.
    #[must_use]
    pub fn new(hierarchies: Vec<Hierarchy>) -> Self {
        Self {
            hierarchies,
            known: Lru::new(KNOWN_CGROUPS),
        }
    }

    /// Takes a path that the kernel told.
    pub fn learn_path(&mut self, id: u64, path: &[u8]) {
        let entry = self.entry(id);
        if entry.path.is_none() {
            entry.path = Some(path.to_vec());
        }
    }

    /// Takes what a task in this cgroup is known to be; `None` for a task that
    /// is known to name no job.
    pub fn learn_member(&mut self, id: u64, attempt: Option<(&Attempt, Source)>) {
        let members = &mut self.entry(id).members;
        *members = match (std::mem::take(members), attempt) {
            (Members::NoneSeen, Some((attempt, source))) => Members::Agree(attempt.clone(), source),
            (Members::Agree(known, source), Some((attempt, _))) if known == *attempt => {
                Members::Agree(known, source)
            }
            _ => Members::Differ,
        };
    }

    /// Looks for the paths of those ids that are not known yet; each id is
    /// searched for once, all of them in one walk.
    pub fn search(&mut self, ids: impl IntoIterator<Item = u64>) {
        let mut wanted = HashSet::new();
        for id in ids {
            let entry = self.entry(id);
            if entry.path.is_none() && !entry.searched {
                entry.searched = true;
                wanted.insert(id);
            }
        }
        let hierarchies = self.hierarchies.clone();
        let mut budget = SEARCHED_DIRECTORIES;
        for hierarchy in &hierarchies {
            // Ids of other hierarchies cost no walk in this one.
            if !wanted
                .iter()
                .any(|id| id >> 48 == u64::from(hierarchy.number))
            {
                continue;
            }
            walk(hierarchy, &mut wanted, &mut budget, &mut |id, path| {
                self.entry(id).path = Some(path);
            });
        }
    }

    /// What is known of a cgroup.
    pub fn info(&mut self, id: u64) -> CgroupInfo {
        let Some(entry) = self.known.get(&id) else {
            return CgroupInfo::default();
        };
        let path = entry.path.clone().unwrap_or_default();
        let attempt = attempt_of(&path, &entry.members);
        CgroupInfo { path, attempt }
    }

    fn entry(&mut self, id: u64) -> &mut Entry {
        self.known.get_or_insert_with(id, Entry::default)
    }
}

/// The path's job, or what all members agree on. Members that agree say more
/// than the path: they know the attempt and a site's own job id.
fn attempt_of(path: &[u8], members: &Members) -> Option<(Attempt, Source)> {
    // Everything may live in the root; an unknown path may be the root's.
    if path.is_empty() || path == b"/" {
        return None;
    }
    if let Members::Agree(attempt, source) = members {
        return Some((attempt.clone(), *source));
    }
    let job_id = job_id_of_cgroup_path(path).ok()??;
    let attempt = Attempt::new(job_id.as_bytes(), 0, 0).ok()?;
    Some((attempt, Source::Cgroup))
}

fn walk(
    hierarchy: &Hierarchy,
    wanted: &mut HashSet<u64>,
    budget: &mut usize,
    found: &mut impl FnMut(u64, Vec<u8>),
) {
    let mut pending = vec![(hierarchy.mount.clone(), 0)];
    while let Some((dir, depth)) = pending.pop() {
        if wanted.is_empty() || *budget == 0 {
            return;
        }
        *budget -= 1;
        let Ok(meta) = fs::symlink_metadata(&dir) else {
            continue;
        };
        let id = hierarchy.tagged(meta.ino());
        if wanted.remove(&id) {
            let below = dir.strip_prefix(&hierarchy.mount).unwrap_or(&dir);
            let path = [b"/", below.as_os_str().as_bytes()].concat();
            found(id, path);
        }
        if depth >= SEARCHED_DEPTH {
            continue;
        }
        let Ok(entries) = fs::read_dir(&dir) else {
            continue;
        };
        let dirs = entries
            .flatten()
            .filter(|e| e.file_type().is_ok_and(|t| t.is_dir()))
            .map(|e| (e.path(), depth + 1));
        pending.extend(dirs);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attempt(text: &str) -> Attempt {
        Attempt::new(text.as_bytes(), 0, 0).unwrap()
    }

    #[test]
    fn hierarchies_of_a_v1_and_a_v2_host() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("self")).unwrap();
        let mounts = |text: &str| fs::write(root.path().join("self/mounts"), text).unwrap();
        mounts("none /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n");
        let found = Hierarchy::mounted(root.path());
        assert_eq!(
            (found.len(), found[0].number, found[0].controller),
            (1, 0, "")
        );

        mounts(
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
             c /sys/fs/cgroup/cpu,cpuacct cgroup rw,cpu,cpuacct 0 0\n\
             c /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n",
        );
        fs::write(
            root.path().join("cgroups"),
            "#subsys_name\thierarchy\tnum\tenabled\nmemory\t7\t1\t1\n",
        )
        .unwrap();
        let found = Hierarchy::mounted(root.path());
        assert_eq!(
            found,
            [Hierarchy {
                mount: "/sys/fs/cgroup/memory".into(),
                number: 7,
                controller: "memory"
            }]
        );
    }

    #[test]
    fn an_id_is_found_by_its_inode_in_its_hierarchy() {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("slurm/job_7/step_0");
        fs::create_dir_all(&dir).unwrap();
        let inode = fs::metadata(&dir).unwrap().ino();
        let hierarchy = Hierarchy {
            mount: root.path().into(),
            number: 3,
            controller: "memory",
        };
        let id = inode | (3 << 48);
        let mut cgroups = Cgroups::new(vec![hierarchy]);
        cgroups.search([id, inode]);
        let info = cgroups.info(id);
        assert_eq!(info.path, b"/slurm/job_7/step_0");
        assert_eq!(info.attempt, Some((attempt("7"), Source::Cgroup)));
        assert_eq!(cgroups.info(inode), CgroupInfo::default());
    }

    #[test]
    fn each_unknown_id_is_searched_once() {
        let root = tempfile::tempdir().unwrap();
        let hierarchy = Hierarchy {
            mount: root.path().into(),
            number: 0,
            controller: "",
        };
        let mut cgroups = Cgroups::new(vec![hierarchy]);
        let dir = root.path().join("late");
        fs::create_dir(&dir).unwrap();
        let inode = fs::metadata(&dir).unwrap().ino();
        fs::remove_dir(&dir).unwrap();
        cgroups.search([inode]);
        assert!(cgroups.known.get(&inode).unwrap().searched);
        assert_eq!(cgroups.info(inode).path, b"");
    }

    #[test]
    fn members_that_agree_name_a_cgroup_and_those_that_differ_do_not() {
        let mut cgroups = Cgroups::new(Vec::new());
        cgroups.learn_path(4, b"/work/a");
        cgroups.learn_member(4, Some((&attempt("x"), Source::Environment)));
        cgroups.learn_member(4, Some((&attempt("x"), Source::Environment)));
        assert_eq!(
            cgroups.info(4).attempt,
            Some((attempt("x"), Source::Environment))
        );
        cgroups.learn_member(4, None);
        assert_eq!(cgroups.info(4).attempt, None);
        cgroups.learn_member(4, Some((&attempt("x"), Source::Environment)));
        assert_eq!(
            cgroups.info(4).attempt,
            None,
            "once differing, always differing"
        );
    }

    #[test]
    fn the_root_belongs_to_nobody() {
        let mut cgroups = Cgroups::new(Vec::new());
        cgroups.learn_path(1, b"/");
        cgroups.learn_member(1, Some((&attempt("x"), Source::Environment)));
        assert_eq!(cgroups.info(1).attempt, None);
        // Nor does a cgroup whose path is not known.
        cgroups.learn_member(2, Some((&attempt("x"), Source::Environment)));
        assert_eq!(cgroups.info(2).attempt, None);
    }

    #[test]
    fn a_path_that_names_a_job_needs_no_members() {
        let mut cgroups = Cgroups::new(Vec::new());
        cgroups.learn_path(5, b"/slurm/uid_1/job_8/step_0");
        cgroups.learn_member(5, Some((&attempt("a"), Source::Environment)));
        cgroups.learn_member(5, Some((&attempt("b"), Source::Environment)));
        assert_eq!(
            cgroups.info(5).attempt,
            Some((attempt("8"), Source::Cgroup))
        );
    }
}
