//! The rule set: read from TOML, checked, compiled.
//!
//! The built-in files stand in `rules/`; a site file has the same form and is
//! tried before them, or instead of them when it says `builtin = false`.

mod compile;
mod file;
mod literals;
mod needs;
mod words;

pub use compile::MAX_RULES;
pub(crate) use compile::{ClassSource, ErrnoSource, Rule};
pub(crate) use literals::{Held, Hit};
pub(crate) use words::Words;

use file::RuleFile;

/// The built-in files, from the most to the least specific: an earlier rule
/// takes its piece of a line before a later one.
const BUILTIN: [(&str, &str); 13] = [
    ("words.toml", include_str!("../../rules/words.toml")),
    ("statuses.toml", include_str!("../../rules/statuses.toml")),
    ("ordinary.toml", include_str!("../../rules/ordinary.toml")),
    ("nccl.toml", include_str!("../../rules/nccl.toml")),
    ("ucx.toml", include_str!("../../rules/ucx.toml")),
    ("nvshmem.toml", include_str!("../../rules/nvshmem.toml")),
    ("libfabric.toml", include_str!("../../rules/libfabric.toml")),
    ("kernel.toml", include_str!("../../rules/kernel.toml")),
    ("cuda.toml", include_str!("../../rules/cuda.toml")),
    ("torch.toml", include_str!("../../rules/torch.toml")),
    ("launcher.toml", include_str!("../../rules/launcher.toml")),
    ("verbs.toml", include_str!("../../rules/verbs.toml")),
    ("generic.toml", include_str!("../../rules/generic.toml")),
];

/// Why a rule file was refused. The set in force stays.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}, line {line}: {reason}")]
pub struct RulesError {
    /// Name of the file as it was given.
    pub file: String,
    /// Line in it, from 1.
    pub line: usize,
    /// What is wrong and how it would be right.
    pub reason: String,
}

/// Compiled rules with the words that they refer to.
#[derive(Debug)]
pub struct RuleSet {
    pub(crate) rules: Vec<Rule>,
    pub(crate) words: Words,
    /// When each rule is tried: in the order of the files, fall-backs last.
    pub(crate) turns: Vec<u16>,
    /// What the patterns cannot match without.
    pub(crate) literals: literals::Literals,
    revision: String,
}

impl RuleSet {
    /// The rules that come with this crate.
    ///
    /// # Errors
    ///
    /// Never in a build whose tests pass: they load every built-in file.
    pub fn builtin() -> Result<RuleSet, RulesError> {
        let files = parse_builtin()?;
        let revision = builtin_revision(&files);
        compile::compile(&files, revision)
    }

    /// A site's rules, before the built-in ones or, when the file says
    /// `builtin = false`, instead of them. The built-in words (verbs, statuses,
    /// events) always stand behind the site's.
    ///
    /// # Errors
    ///
    /// Names the line and the reason. Nothing of a refused file comes into force.
    pub fn with_site(name: &str, text: &str) -> Result<RuleSet, RulesError> {
        let site = RuleFile::parse(name, text)?;
        let Some(revision) = site.revision.clone() else {
            return Err(RulesError {
                file: name.to_owned(),
                line: 1,
                reason: "revision is missing; write revision = \"...\" at the top, so that \
                         results can name the rules that they come from"
                    .to_owned(),
            });
        };
        let builtin = parse_builtin()?;
        let keep = site.builtin.unwrap_or(true);
        let revision = if keep {
            format!("{revision}+{}", builtin_revision(&builtin))
        } else {
            revision
        };
        let mut files = vec![site];
        files.extend(builtin.into_iter().map(|mut file| {
            if !keep {
                file.rules.clear();
            }
            file
        }));
        compile::compile(&files, revision)
    }

    /// Which rules these are: stands in every summary.
    pub fn revision(&self) -> &str {
        &self.revision
    }

    /// Names of the rules, in the order in which they are tried.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.rules.iter().map(|rule| &*rule.id)
    }

    /// (rule, example line) of every example that the files give.
    pub fn examples(&self) -> impl Iterator<Item = (&str, &str)> {
        self.rules.iter().flat_map(|rule| {
            rule.examples
                .iter()
                .map(move |example| (&*rule.id, example.as_str()))
        })
    }
}

fn parse_builtin() -> Result<Vec<RuleFile>, RulesError> {
    BUILTIN
        .iter()
        .map(|(name, text)| RuleFile::parse(name, text))
        .collect()
}

fn builtin_revision(files: &[RuleFile]) -> String {
    files
        .iter()
        .find_map(|file| file.revision.clone())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Classifier;

    #[test]
    fn the_built_in_rules_load_and_say_which_they_are() {
        let rules = RuleSet::builtin().unwrap();
        assert!(rules.ids().count() > 100);
        assert!(rules.revision().starts_with("20"), "{}", rules.revision());
    }

    /// Loading checks that each rule answers to its own examples; this one checks
    /// that every rule has some.
    #[test]
    fn every_built_in_rule_has_an_example() {
        let rules = RuleSet::builtin().unwrap();
        for rule in &rules.rules {
            assert!(!rule.examples.is_empty(), "{} has none", rule.id);
        }
    }

    const SITE: &str = r#"
revision = "site-3"

[[rule]]
id = "site.fabric"
any = ["fabricd:"]
pattern = 'fabricd: port (?P<device>\S+) lost'
class = "network"
examples = ["fabricd: port mlx5_3 lost"]
"#;

    #[test]
    fn a_site_file_stands_before_the_built_in_rules() {
        let rules = RuleSet::with_site("site.toml", SITE).unwrap();
        assert!(rules.revision().starts_with("site-3+20"));
        assert_eq!(rules.ids().next(), Some("site.fabric"));
        let classifier = Classifier::new(rules);
        let report = classifier.classify(1, b"fabricd: port mlx5_3 lost");
        assert_eq!(report.rule.as_deref(), Some("site.fabric"));
        assert_eq!(report.device.as_deref(), Some("mlx5_3"));
    }

    #[test]
    fn a_site_file_can_replace_the_built_in_rules() {
        let text = SITE.replace("revision", "builtin = false\nrevision");
        let rules = RuleSet::with_site("site.toml", &text).unwrap();
        assert_eq!(rules.ids().count(), 1);
        assert_eq!(rules.revision(), "site-3");
    }

    #[test]
    fn a_refused_file_names_line_and_reason() {
        let refused = |from: &str, to: &str| {
            let error = RuleSet::with_site("site.toml", &SITE.replace(from, to)).unwrap_err();
            assert_eq!(error.file, "site.toml");
            (error.line, error.reason)
        };
        let (line, reason) = refused("lost'", "(lost'");
        assert_eq!(line, 7);
        assert!(reason.contains("unclosed group"), "{reason}");
        let (line, reason) = refused("\"network\"", "\"netwrok\"");
        assert_eq!(line, 8);
        assert!(reason.contains("is no class"), "{reason}");
        let (line, reason) = refused("any =", "some =");
        assert_eq!(line, 6);
        assert!(reason.contains("unknown field"), "{reason}");
        let (line, reason) = refused("?P<device>", "?P<devise>");
        assert_eq!(line, 7);
        assert!(reason.contains("devise"), "{reason}");
        let (line, reason) = refused("lost\"]", "gone\"]");
        assert_eq!(line, 9);
        assert!(reason.contains("does not match"), "{reason}");
        let (line, reason) = refused("[\"fabricd:\"]", "[\"ab\"]");
        assert_eq!(line, 6);
        assert!(reason.contains("literal"), "{reason}");
        let (line, reason) = refused("revision = \"site-3\"", "revision = ");
        assert_eq!(line, 2);
        assert!(!reason.is_empty());
        let (line, reason) = refused("revision = \"site-3\"", "");
        assert_eq!(line, 1);
        assert!(reason.contains("revision is missing"), "{reason}");
        let (_, reason) = refused("lost'", "(lost){60000}'");
        assert!(reason.contains("size limit"), "{reason}");
    }

    #[test]
    fn two_rules_of_one_name_are_refused() {
        let twice = format!("{SITE}{}", SITE.replace("revision = \"site-3\"", ""));
        let error = RuleSet::with_site("site.toml", &twice).unwrap_err();
        assert_eq!(error.line, 14);
        assert!(error.reason.contains("twice"), "{}", error.reason);
    }
}
