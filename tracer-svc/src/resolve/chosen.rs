//! Hooks on a kernel that the catalogue was not checked on: what the rules of
//! `tracer-svc select` choose there goes beside what the catalogue names, so that a
//! function that was renamed or moved is found all the same.

use serde::Deserialize;

use crate::catalogue::{Catalogue, Layer, Place, Role};

/// Series of kernels on which a test compares the catalogue with the rules' choice:
/// Debian's of 12, 13 and the backports of 13.
const CHECKED: [(u32, u32); 3] = [(6, 1), (6, 12), (7, 3)];

/// Whether the catalogue was checked on a kernel of this series. `release` as
/// `uname -r` tells it.
#[must_use]
pub fn is_checked(release: &str) -> bool {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|n| n.parse().ok());
    let (Some(major), Some(minor)) = (next(), next()) else {
        return false;
    };
    CHECKED.contains(&(major, minor))
}

/// The checked series, for people.
#[must_use]
pub fn checked_text() -> String {
    let text = CHECKED.map(|(major, minor)| format!("{major}.{minor}"));
    text.join(", ")
}

/// What a selection chose, as far as it matters here: `crate::select::Selection`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Chosen {
    /// Logical hooks.
    pub hooks: Vec<ChosenHook>,
}

/// One logical hook.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct ChosenHook {
    /// As in the catalogue.
    pub hook: String,
    /// `module:function`.
    pub functions: Vec<String>,
}

/// Adds chosen functions to hooks of the same name. A driver's operations are left
/// alone: its own table names their functions. Returns `hook module:function` of
/// what was added.
///
/// What system calls reach is added as another way to the verb. Further in it is
/// used only where the catalogue's functions are gone: two functions of one hook
/// that call each other would record a call twice.
pub fn extend(catalogue: &mut Catalogue, chosen: &Chosen) -> Vec<String> {
    let mut added = Vec::new();
    for row in &chosen.hooks {
        let named = catalogue.hooks.iter_mut().find(|h| h.name == row.hook);
        let Some(hook) = named.filter(|h| h.operation.is_none()) else {
            continue;
        };
        let role = match hook.layer == Layer::Uverbs && hook.depth == 0 {
            true => Role::Also,
            false => Role::Instead,
        };
        for text in &row.functions {
            let Some((module, function)) = text.split_once(':') else {
                continue;
            };
            // Copies are found by the name of their original.
            let plain = function.split('.').next().unwrap_or(function);
            let known = hook
                .places
                .iter()
                .any(|p| p.module == module && p.function == plain);
            if known {
                continue;
            }
            hook.places.push(Place {
                module: module.to_owned(),
                function: plain.to_owned(),
                role,
                depth: None,
                arguments: None,
            });
            added.push(format!("{} {module}:{plain}", hook.name));
        }
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_series_is_checked_and_not_a_patch_level() {
        for release in ["6.1.0-57-amd64", "6.12.118+deb13-amd64", "7.3.4"] {
            assert!(is_checked(release), "{release}");
        }
        for release in ["6.2.1", "5.14.0-503.el9.x86_64", "7.30.1", "6", "", "x.y"] {
            assert!(!is_checked(release), "{release}");
        }
    }

    #[test]
    fn chosen_functions_go_beside_those_of_the_catalogue() {
        let mut catalogue = Catalogue::built_in().unwrap();
        let before = catalogue.clone();
        let hook = |hook: &str, functions: &[&str]| ChosenHook {
            hook: hook.to_owned(),
            functions: functions.iter().map(|&f| f.to_owned()).collect(),
        };
        let chosen = Chosen {
            hooks: vec![
                hook(
                    "uverbs.reg_mr",
                    &["ib_uverbs:ib_uverbs_reg_mr", "ib_uverbs:reg_mr_v2"],
                ),
                hook("memory.umem", &["ib_core:ib_umem_pin.constprop.0"]),
                hook("driver.create_qp", &["mlx5_ib:mlx5_ib_create_qp"]),
                hook("core.unheard_of", &["ib_core:f"]),
            ],
        };
        let added = extend(&mut catalogue, &chosen);
        assert_eq!(
            added,
            [
                "uverbs.reg_mr ib_uverbs:reg_mr_v2",
                "memory.umem ib_core:ib_umem_pin"
            ]
        );
        let role = |name: &str| {
            let hook = catalogue.hooks.iter().find(|h| h.name == name).unwrap();
            hook.places.last().unwrap().role
        };
        assert_eq!(role("uverbs.reg_mr"), Role::Also);
        assert_eq!(role("memory.umem"), Role::Instead);
        assert_eq!(catalogue.hooks.len(), before.hooks.len());
        // Once is enough.
        assert!(extend(&mut catalogue, &chosen).is_empty());
    }

    #[test]
    fn the_output_of_a_selection_is_understood() {
        let text = r#"{"schema":1,"hooks":[{"hook":"a.b","group":"core","functions":["m:f"],
            "how":"fexit"}],"functions":[]}"#;
        let chosen: Chosen = serde_json::from_str(text).unwrap();
        assert_eq!(chosen.hooks[0].functions, ["m:f"]);
    }
}
