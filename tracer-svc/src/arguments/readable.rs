//! What the running kernel lets be read.

use std::collections::BTreeMap;

use crate::btf::{BtfError, Types, Unfit, fit};

use super::wanted::{Member, Way};
use super::{Places, Program, Reading};

/// Where structs stand: name to id.
pub type Ids = BTreeMap<Vec<u8>, u32>;

/// One argument of a probe's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Readable {
    /// As in the contract's `RecordArguments`.
    pub name: &'static str,
    /// Why it is absent from every record; none: it is read.
    pub absent: Option<String>,
}

/// What records would tell if their probe saw arguments.
#[must_use]
pub fn unseen(reading: Reading) -> Vec<Readable> {
    let unseen = |name| Readable {
        name,
        absent: Some("a kretprobe does not see arguments".to_owned()),
    };
    reading.arguments().iter().map(|a| unseen(a.name)).collect()
}

/// The program and the kernel, as types.
#[derive(Clone, Copy, Debug)]
struct Both<'t> {
    /// Types that the program was compiled with.
    program: (&'t Types<'t>, &'t Ids),
    /// Types of the module that the probed function is in.
    module: (&'t Types<'t>, &'t Ids),
}

/// What the records of a function can tell on this kernel: each member on the way
/// is compared with what the program expects.
///
/// # Errors
/// Broken types.
pub fn readable(
    places: &Places,
    program: &Program,
    module: (&Types<'_>, &Ids),
) -> Result<Vec<Readable>, BtfError> {
    let (types, ids) = program.types();
    let both = Both {
        program: (&types, ids),
        module,
    };
    let mut out = Vec::new();
    for argument in places.reading.arguments() {
        let mut reasons: Vec<String> = Vec::new();
        let mut read = false;
        for way in argument.ways {
            match both.obstacle(places, way)? {
                None => read = true,
                // That a function takes something else instead is no news.
                Some(reason) if !reasons.contains(&reason) => reasons.push(reason),
                Some(_) => {}
            }
        }
        if reasons.len() > 1 {
            reasons.retain(|reason| reason != TAKES_NONE);
        }
        out.push(Readable {
            name: argument.name,
            absent: (!read).then(|| reasons.join("; ")),
        });
    }
    Ok(out)
}

const TAKES_NONE: &str = "the function takes no such argument";

impl Both<'_> {
    /// What keeps a way from being taken.
    fn obstacle(&self, places: &Places, way: &Way) -> Result<Option<String>, BtfError> {
        if !way.slots.iter().all(|slot| places.has(*slot)) {
            return Ok(Some(TAKES_NONE.to_owned()));
        }
        for member in way.members {
            if let Some(reason) = self.member(*member)? {
                return Ok(Some(reason));
            }
        }
        Ok(None)
    }

    fn member(&self, (name, member): Member) -> Result<Option<String>, BtfError> {
        let find = |ids: &Ids| ids.get(name.as_bytes()).copied();
        let (Some(theirs), Some(ours)) = (find(self.module.1), find(self.program.1)) else {
            return Ok(Some(format!("no struct {name}")));
        };
        let found = fit((self.program.0, ours), (self.module.0, theirs), member)?;
        Ok(found.err().map(|unfit| match unfit {
            Unfit::Missing => format!("struct {name} has no member {member}"),
            Unfit::OtherKind => format!("member {member} of struct {name} is of another kind"),
            Unfit::Bits => format!("member {member} of struct {name} is a bit-field"),
            Unfit::Wide(bytes) => format!("member {member} of struct {name} has {bytes} bytes"),
        }))
    }
}
