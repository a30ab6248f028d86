//! The job that a cgroup path names.

use super::attempt::{Attempt, RefusedValue};

/// Finds the job in a path: `Ok(None)` when it names none.
///
/// - Slurm, v1 `/slurm/uid_1000/job_77/step_0/task_3` and v2
///   `/system.slice/slurmstepd.scope/job_77/step_0/user/task_3` (slurm:
///   src/plugins/cgroup): `77`.
/// - Kubernetes, cgroupfs driver `/kubepods/burstable/pod<uid>/<container>` and
///   systemd driver `…/kubepods-burstable-pod<uid, '_' for '-'>.slice/
///   cri-containerd-<id>.scope` (kubelet: `pkg/kubelet/cm`): `pod:<uid>`.
///
/// # Errors
/// The path names a pod whose uid is no uid.
pub fn job_id_of_cgroup_path(path: &[u8]) -> Result<Option<String>, RefusedValue> {
    let mut in_slurm = false;
    let mut in_pods = false;
    let mut names = path
        .split(|b| *b == b'/')
        .filter(|n| !n.is_empty())
        .peekable();
    while let Some(name) = names.next() {
        // A name that is not text names no job; the levels below still may.
        let Ok(name) = std::str::from_utf8(name) else {
            continue;
        };
        in_slurm |=
            name == "slurm" || name.starts_with("slurm_") || name.ends_with("slurmstepd.scope");
        in_pods |=
            name == "kubepods" || name == "kubepods.slice" || name.ends_with("-kubepods.slice");
        if let Some(id) = name.strip_prefix("job_")
            && is_number(id)
            && (in_slurm || names.peek().is_some_and(|n| n.starts_with(b"step_")))
        {
            return Attempt::new(id.as_bytes(), 0, 0).map(|a| Some(a.job_id().to_owned()));
        }
        if let Some(uid) = pod_uid(name, in_pods) {
            return if is_uid(&uid) {
                Ok(Some(format!("pod:{uid}")))
            } else {
                Err(RefusedValue::Forbidden)
            };
        }
    }
    Ok(None)
}

fn pod_uid(name: &str, in_pods: bool) -> Option<String> {
    if let Some(uid) = name.strip_prefix("pod") {
        return in_pods.then(|| uid.to_owned());
    }
    // kubepods-pod…, kubepods-burstable-pod…, kubepods-besteffort-pod…, with
    // what a kubelet in a container puts in front.
    let name = name.strip_suffix(".slice")?;
    let at = name.find("kubepods-")?;
    let (_, uid) = name[at..].split_once("-pod")?;
    Some(uid.replace('_', "-"))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// A UUID, or the 32 digits that the kubelet gives to static pods.
fn is_uid(text: &str) -> bool {
    (32..=36).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UID: &str = "8dbc5577-d0e2-4706-8787-57d52c03ddf2";

    fn job(path: &str) -> Option<String> {
        job_id_of_cgroup_path(path.as_bytes()).unwrap()
    }

    #[test]
    fn slurm_of_both_versions() {
        for path in [
            "/slurm/uid_1000/job_77/step_0/task_3",
            "/slurm_gpu17/uid_0/job_77/step_batch",
            "/system.slice/slurmstepd.scope/job_77/step_0/user/task_3",
            "/system.slice/gpu17_slurmstepd.scope/job_77/step_extern",
            // The kernel's copy may lack the upper levels.
            "/job_77/step_0/user/task_0",
        ] {
            assert_eq!(job(path).as_deref(), Some("77"), "{path}");
        }
    }

    #[test]
    fn pods_of_both_drivers_and_all_runtimes() {
        let systemd = UID.replace('-', "_");
        let id = "a".repeat(64);
        for path in [
            format!("/kubepods/burstable/pod{UID}/{id}"),
            format!("/kubepods/pod{UID}/crio-{id}"),
            format!("/kubepods.slice/kubepods-pod{systemd}.slice/crio-{id}.scope"),
            format!("/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{systemd}.slice/cri-containerd-{id}.scope"),
            format!("/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{systemd}.slice:cri-containerd:{id}").replace(".slice:cri", ".slice/cri"),
            format!("/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{systemd}.slice/docker-{id}.scope"),
        ] {
            assert_eq!(job(&path), Some(format!("pod:{UID}")), "{path}");
        }
        let fixed = "0".repeat(32);
        assert_eq!(
            job(&format!("/kubepods/pod{fixed}/x")),
            Some(format!("pod:{fixed}"))
        );
    }

    #[test]
    fn what_names_no_job() {
        for path in [
            "",
            "/",
            "/user.slice/user-1000.slice/session-3.scope",
            "/job_77/x",
            "/slurm/job_/step_0",
            "/podman/pod1",
            "/slurm/job_7a/step_0",
        ] {
            assert_eq!(job(path), None, "{path}");
        }
    }

    #[test]
    fn a_hostile_pod_name_is_refused() {
        assert_eq!(
            job_id_of_cgroup_path(b"/kubepods/podx y/z"),
            Err(RefusedValue::Forbidden)
        );
    }

    #[test]
    fn a_name_that_is_not_text_hides_nothing_below() {
        assert_eq!(
            job_id_of_cgroup_path(b"/\xff\xfe/slurm/uid_1/job_5/step_0")
                .unwrap()
                .as_deref(),
            Some("5")
        );
    }

    proptest! {
        #[test]
        fn any_path_gives_an_id_that_the_contract_takes(path in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some(id)) = job_id_of_cgroup_path(&path) {
                prop_assert!(Attempt::new(id.as_bytes(), 0, 0).is_ok());
            }
        }
    }
}
