//! Symbols of kernel modules, from /proc/kallsyms.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead};

/// One symbol of a module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Symbol {
    /// Kernel address; 0 where the kernel hides them.
    pub address: u64,
    /// `nm`'s letter: `t` and `T` are functions, `d`, `r`, `b` and their capitals
    /// data.
    pub letter: u8,
    /// Name.
    pub name: String,
}

impl Symbol {
    /// A function.
    #[must_use]
    pub fn is_function(&self) -> bool {
        matches!(self.letter, b't' | b'T' | b'w' | b'W')
    }

    /// Initialised data, which may be a table of functions.
    #[must_use]
    pub fn is_data(&self) -> bool {
        matches!(self.letter, b'd' | b'D' | b'r' | b'R')
    }
}

/// Symbols of some modules, each module's by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    by_module: BTreeMap<String, Vec<Symbol>>,
}

impl Symbols {
    /// Reads lines of /proc/kallsyms and keeps those of `modules`. Lines of
    /// another form are skipped.
    ///
    /// # Errors
    /// The reader failed.
    pub fn read(mut from: impl BufRead, modules: &BTreeSet<String>) -> io::Result<Self> {
        let mut out = Self::default();
        let mut line = Vec::new();
        loop {
            line.clear();
            if from.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            // Most lines are of the kernel itself and carry no module.
            if !line.trim_ascii_end().ends_with(b"]") {
                continue;
            }
            if let Some((module, symbol)) = parse(&String::from_utf8_lossy(&line), modules) {
                out.by_module.entry(module).or_default().push(symbol);
            }
        }
        for symbols in out.by_module.values_mut() {
            symbols.sort_unstable();
            symbols.shrink_to_fit();
        }
        Ok(out)
    }

    /// Symbols of a module by address.
    #[must_use]
    pub fn of(&self, module: &str) -> &[Symbol] {
        self.by_module.get(module).map_or(&[], Vec::as_slice)
    }

    /// The module has this very symbol as a function.
    #[must_use]
    pub fn has_function(&self, module: &str, name: &str) -> bool {
        self.of(module)
            .iter()
            .any(|s| s.is_function() && s.name == name)
    }

    /// A copy of the function under a compiler's suffix (`.isra.0`, `.part.0`,
    /// `.constprop.0`).
    #[must_use]
    pub fn suffixed(&self, module: &str, name: &str) -> Option<&str> {
        self.of(module)
            .iter()
            .find(|s| {
                s.is_function()
                    && s.name
                        .strip_prefix(name)
                        .is_some_and(|rest| rest.starts_with('.') && rest != ".cold")
            })
            .map(|s| s.name.as_str())
    }

    /// Copies of the function under another name that return what it returns:
    /// the compiler changed how they take arguments (`.isra`, `.constprop`). A
    /// `.part` is only a piece of the function, and `.cold` none at all.
    pub fn clones<'s>(&'s self, module: &str, name: &'s str) -> impl Iterator<Item = &'s str> {
        self.of(module)
            .iter()
            .filter(|s| s.is_function())
            .filter_map(move |s| {
                let suffix = s.name.strip_prefix(name)?.strip_prefix('.')?;
                let mut words = suffix.split('.').filter(|w| w.parse::<u32>().is_err());
                words
                    .all(|word| matches!(word, "isra" | "constprop"))
                    .then_some(s.name.as_str())
            })
    }

    /// Two functions of the module have this name.
    #[must_use]
    pub fn is_ambiguous(&self, module: &str, function: &str) -> bool {
        let named = |s: &&Symbol| s.is_function() && s.name == function;
        self.of(module).iter().filter(named).nth(1).is_some()
    }

    /// Where a function begins; none where addresses are hidden, or two functions
    /// of the module have this name.
    #[must_use]
    pub fn address(&self, module: &str, function: &str) -> Option<u64> {
        let mut found = self
            .of(module)
            .iter()
            .filter(|s| s.is_function() && s.name == function && s.address != 0);
        let one = found.next()?;
        found.next().is_none().then_some(one.address)
    }

    /// Addresses are hidden (`kptr_restrict`, or no `CAP_SYSLOG`).
    #[must_use]
    pub fn hidden(&self) -> bool {
        self.by_module
            .values()
            .flatten()
            .all(|symbol| symbol.address == 0)
    }

    /// Modules and their symbols.
    pub fn modules(&self) -> impl Iterator<Item = (&str, &[Symbol])> {
        self.by_module
            .iter()
            .map(|(module, symbols)| (module.as_str(), symbols.as_slice()))
    }
}

fn parse(line: &str, modules: &BTreeSet<String>) -> Option<(String, Symbol)> {
    let mut parts = line.split_ascii_whitespace();
    let address = u64::from_str_radix(parts.next()?, 16).ok()?;
    let letter = *parts.next()?.as_bytes().first()?;
    let name = parts.next()?;
    let module = parts.next()?.strip_prefix('[')?.strip_suffix(']')?;
    if !modules.contains(module) {
        return None;
    }
    Some((
        module.to_owned(),
        Symbol {
            address,
            letter,
            name: name.to_owned(),
        },
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
ffffffff81000000 T _text
ffffffffc0001000 t rxe_create_qp\t[rdma_rxe]
ffffffffc0002000 r rxe_dev_ops\t[rdma_rxe]
ffffffffc0003000 t rxe_modify_qp.isra.0\t[rdma_rxe]
ffffffffc0003800 t rxe_modify_qp.part.0\t[rdma_rxe]
ffffffffc0003900 t rxe_modify_qp.constprop.0.cold\t[rdma_rxe]
ffffffffc0004000 t other\t[dummy]
junk
";

    #[test]
    fn only_symbols_of_the_wanted_modules_are_kept() {
        let modules = BTreeSet::from(["rdma_rxe".to_owned()]);
        let symbols = Symbols::read(TEXT.as_bytes(), &modules).unwrap();
        assert_eq!(symbols.of("rdma_rxe").len(), 5);
        assert!(symbols.of("dummy").is_empty());
        assert!(symbols.has_function("rdma_rxe", "rxe_create_qp"));
        assert!(!symbols.has_function("rdma_rxe", "rxe_dev_ops"));
        assert_eq!(
            symbols.suffixed("rdma_rxe", "rxe_modify_qp"),
            Some("rxe_modify_qp.isra.0")
        );
        assert!(!symbols.hidden());
        let clones: Vec<&str> = symbols.clones("rdma_rxe", "rxe_modify_qp").collect();
        assert_eq!(clones, ["rxe_modify_qp.isra.0"]);
        assert_eq!(
            symbols.address("rdma_rxe", "rxe_create_qp"),
            Some(0xffff_ffff_c000_1000)
        );
        assert_eq!(symbols.address("rdma_rxe", "other"), None);
    }

    #[test]
    fn zero_addresses_are_hidden_ones() {
        let modules = BTreeSet::from(["m".to_owned()]);
        let symbols = Symbols::read(&b"0000000000000000 t f\t[m]\n"[..], &modules).unwrap();
        assert!(symbols.hidden());
    }
}
