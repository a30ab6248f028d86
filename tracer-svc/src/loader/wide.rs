//! The wide set: every function that an entry point reaches, watched for a short window
//! by two programs: at each beginning and at each return.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use aya::maps::{Array, Map, MapData, RingBuf};
use aya_obj::Object;
use aya_obj::generated::bpf_insn;

use super::perf::Source;
use super::sys::{self, Refusal, Target};
use super::{LoadError, host};
use crate::baseline::{Moment, What};

/// The programs of `bpf/wide.bpf.c`.
static OBJECT: &Aligned<[u8]> = &Aligned(*include_bytes!(concat!(env!("OUT_DIR"), "/wide.o")));

#[repr(C, align(8))]
struct Aligned<T: ?Sized>(T);

/// Bit of a cookie: the function is an entry point. As in `bpf/wide.bpf.c`.
const IS_ENTRY: u64 = 1 << 32;
/// Bytes of `struct moment`.
const MOMENT_BYTES: usize = 32;

/// Functions that are watched where the kernel takes them one by one: each takes two
/// events, and taking an event off waits until no processor runs it any more, 78 ms on an
/// emulated machine, so that a window takes 15 s to close there. The four verbs of a queue
/// pair reach some 110 functions of soft-RoCE that tell an error and are no clean-up.
pub const MOST_ONE_BY_ONE: usize = 96;

/// One function of the wide set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Where it begins.
    pub address: u64,
    /// A call of it is what is traced.
    pub is_entry: bool,
}

impl Place {
    fn cookie(self, index: usize) -> u64 {
        // An index is below 2^32: there are not as many functions.
        let index = u64::try_from(index).unwrap_or(u64::MAX) & u64::from(u32::MAX);
        if self.is_entry {
            index | IS_ENTRY
        } else {
            index
        }
    }
}

/// How the functions are watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// All by one link (`CONFIG_FPROBE`: from 5.18 on x86-64, from 6.14 on arm64, and not
    /// on Debian's 6.1).
    AtOnce,
    /// Each by a link of its own, and no more than [`MOST_ONE_BY_ONE`].
    OneByOne,
}

/// The attached wide set; dropping it takes it off.
pub struct Wide {
    /// Before the programs and maps that they use: they are closed in this order.
    _links: Vec<OwnedFd>,
    _programs: [OwnedFd; 2],
    moments: RingBuf<MapData>,
    lost: Array<MapData, u64>,
    way: Way,
    functions: usize,
}

impl std::fmt::Debug for Wide {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Wide")
            .field("functions", &self.functions)
            .field("way", &self.way)
            .finish_non_exhaustive()
    }
}

impl Wide {
    /// Watches `places`; their indices are the numbers of moments. Between two functions
    /// that are attached one by one it asks whether to `go_on`.
    ///
    /// # Errors
    /// A right is missing, the kernel refuses a program or an attachment, or it was not
    /// to go on. Nothing is left behind.
    pub fn attach(places: &[Place], go_on: &dyn Fn() -> bool) -> Result<Self, LoadError> {
        host::check()?;
        let mut object = Object::parse(&OBJECT.0).map_err(program_error)?;
        let mut maps = create_maps(&object)?;
        relocate(&mut object, &maps)?;
        let (way, links, programs) = match at_once(&object, places) {
            Ok((links, programs)) => (Way::AtOnce, links, programs),
            Err(why) if is_absent(&why) => {
                let near = &places[..places.len().min(MOST_ONE_BY_ONE)];
                let (links, programs) = one_by_one(&object, near, go_on)?;
                (Way::OneByOne, links, programs)
            }
            Err(why) => return Err(refused(&why)),
        };
        let mut take = |name: &str| {
            maps.remove(name)
                .ok_or_else(|| program_error(format!("no map {name}")))
        };
        let moments = RingBuf::try_from(Map::RingBuf(take("moments")?));
        let lost = Array::try_from(Map::Array(take("lost")?));
        Ok(Self {
            functions: match way {
                Way::AtOnce => places.len(),
                Way::OneByOne => links.len() / 2,
            },
            _links: links,
            _programs: programs,
            moments: moments.map_err(program_error)?,
            lost: lost.map_err(program_error)?,
            way,
        })
    }

    /// How they are watched.
    #[must_use]
    pub fn way(&self) -> Way {
        self.way
    }

    /// How many of the places are: always the first.
    #[must_use]
    pub fn functions(&self) -> usize {
        self.functions
    }

    /// The next moment; none when there is none yet. Never blocks.
    pub fn next_moment(&mut self) -> Option<Moment> {
        loop {
            let item = self.moments.next()?;
            // Another length would be a fault of the build, which a test finds.
            if let Some(moment) = decode(&item) {
                return Some(moment);
            }
        }
    }

    /// Moments that found no room in the ring.
    ///
    /// # Errors
    /// The kernel refused to read the map.
    pub fn lost(&self) -> Result<u64, LoadError> {
        self.lost.get(&0, 0).map_err(program_error)
    }
}

type Attached = (Vec<OwnedFd>, [OwnedFd; 2]);

/// Returns first: a call that is under way then has no beginning and is no trace.
const SIDES: [(&str, bool); 2] = [("returns", true), ("enters", false)];

fn at_once(object: &Object, places: &[Place]) -> Result<Attached, Refusal> {
    let programs = load(object, Target::KprobeMulti)?;
    let addresses: Vec<u64> = places.iter().map(|place| place.address).collect();
    let indexed = places.iter().enumerate();
    let cookies: Vec<u64> = indexed.map(|(index, place)| place.cookie(index)).collect();
    let mut links = Vec::with_capacity(SIDES.len());
    for ((_, is_return), program) in SIDES.iter().zip(&programs) {
        let link = sys::attach_kprobes(&addresses, &cookies, *is_return, program.as_fd());
        links.push(link.map_err(plain)?);
    }
    Ok((links, programs))
}

/// The kernel has no links of several kprobes, and says so when one is made.
fn is_absent(why: &Refusal) -> bool {
    why.error.raw_os_error() == Some(libc::EOPNOTSUPP)
}

fn one_by_one(
    object: &Object,
    places: &[Place],
    go_on: &dyn Fn() -> bool,
) -> Result<Attached, LoadError> {
    let programs = load(object, Target::Kprobe).map_err(|why| refused(&why))?;
    let source = Source::read().map_err(|error| refused(&plain(error)))?;
    let mut links = Vec::with_capacity(2 * places.len());
    for ((_, is_return), program) in SIDES.iter().zip(&programs) {
        for (index, place) in places.iter().enumerate() {
            if !go_on() {
                return Err(LoadError::Baseline("the window was closed".to_owned()));
            }
            let number = links.len() + 1;
            let link = event(source, *place, index, *is_return, program.as_fd());
            links.push(link.map_err(|error| {
                let hint = match error.raw_os_error() {
                    Some(libc::EMFILE | libc::ENFILE) => {
                        "; raise the tracer's limit of open files (LimitNOFILE) to 1024"
                    }
                    _ => "",
                };
                LoadError::Baseline(format!(
                    "the kernel refused kprobe {number} of {}: {error}{hint}",
                    2 * places.len()
                ))
            })?);
        }
    }
    Ok((links, programs))
}

fn event(
    source: Source,
    place: Place,
    index: usize,
    is_return: bool,
    program: BorrowedFd<'_>,
) -> io::Result<OwnedFd> {
    let event = source.event(place.address, is_return)?;
    sys::attach_event(event.as_fd(), place.cookie(index), program)
}

fn load(object: &Object, target: Target<'_>) -> Result<[OwnedFd; 2], Refusal> {
    let one = |(name, _): (&str, bool)| {
        let instructions = instructions(object, name).map_err(|error| Refusal {
            error: io::Error::other(error.to_string()),
            log: String::new(),
        })?;
        sys::load_program(name, instructions, target)
    };
    Ok([one(SIDES[0])?, one(SIDES[1])?])
}

fn decode(bytes: &[u8]) -> Option<Moment> {
    let bytes: &[u8; MOMENT_BYTES] = bytes.try_into().ok()?;
    let half = |at: usize| {
        let mut half = [0; 4];
        half.copy_from_slice(&bytes[at..at + 4]);
        u32::from_ne_bytes(half)
    };
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at..at + 8]);
        u64::from_ne_bytes(word)
    };
    Some(Moment {
        boot_ns: word(0),
        tid: half(16),
        tgid: half(20),
        function: half(24),
        what: match half(28) {
            0 => What::Enters,
            _ => What::Returns(word(8)),
        },
    })
}

fn create_maps(object: &Object) -> Result<BTreeMap<String, MapData>, LoadError> {
    let mut maps = BTreeMap::new();
    for (name, definition) in &object.maps {
        let plain = aya_obj::Map::new_from_params(
            definition.map_type(),
            definition.key_size(),
            definition.value_size(),
            definition.max_entries(),
            definition.map_flags(),
        );
        let map = MapData::create(plain, name, None).map_err(|error| LoadError::Map {
            map: name.clone(),
            error: error.to_string(),
        })?;
        maps.insert(name.clone(), map);
    }
    Ok(maps)
}

fn relocate(object: &mut Object, maps: &BTreeMap<String, MapData>) -> Result<(), LoadError> {
    let sections = object
        .functions
        .keys()
        .map(|(section, _)| *section)
        .collect();
    let definitions = object.maps.clone();
    let by_name = definitions.iter().filter_map(|(name, definition)| {
        let fd = maps.get(name)?.fd().as_fd().as_raw_fd();
        Some((name.as_str(), fd, definition))
    });
    object
        .relocate_maps(by_name, &sections)
        .map_err(program_error)?;
    object.relocate_calls(&sections).map_err(program_error)
}

fn instructions<'o>(object: &'o Object, name: &str) -> Result<&'o [bpf_insn], LoadError> {
    object
        .programs
        .get(name)
        .and_then(|program| object.functions.get(&program.function_key()))
        .map(|function| function.instructions.as_slice())
        .ok_or_else(|| program_error(format!("no program {name} in the object")))
}

fn program_error(error: impl std::fmt::Display) -> LoadError {
    LoadError::Program(error.to_string())
}

fn plain(error: io::Error) -> Refusal {
    Refusal {
        error,
        log: String::new(),
    }
}

fn refused(refusal: &Refusal) -> LoadError {
    let log = match refusal.log.as_str() {
        "" => String::new(),
        log => format!(": {log}"),
    };
    LoadError::Baseline(format!("the kernel refused: {}{log}", refusal.error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_read_as_the_program_writes_it() {
        let mut bytes = Vec::new();
        for word in [5_u64, 0xffff_fff2] {
            bytes.extend_from_slice(&word.to_ne_bytes());
        }
        for half in [7_u32, 6, 3, 1] {
            bytes.extend_from_slice(&half.to_ne_bytes());
        }
        let moment = Moment {
            boot_ns: 5,
            tid: 7,
            tgid: 6,
            function: 3,
            what: What::Returns(0xffff_fff2),
        };
        assert_eq!(decode(&bytes), Some(moment));
        assert_eq!(decode(&bytes[1..]), None);
    }

    #[test]
    fn a_cookie_tells_the_place_and_whether_it_is_an_entry_point() {
        let place = |is_entry| Place {
            address: 1,
            is_entry,
        };
        assert_eq!(place(false).cookie(5), 5);
        assert_eq!(place(true).cookie(5), 0x1_0000_0005);
    }

    #[test]
    fn the_embedded_program_has_what_is_loaded() {
        let object = Object::parse(&OBJECT.0).unwrap();
        for (name, _) in SIDES {
            assert!(instructions(&object, name).is_ok(), "{name}");
        }
        for map in ["moments", "inside", "lost"] {
            assert!(object.maps.contains_key(map), "{map}");
        }
    }
}
