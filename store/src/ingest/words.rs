//! Dictionaries: signatures, devices and failing returns stand once, and groups point to them
//! by ids that are made of what they say. Every collector comes to the same ids.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

use md5::{Digest, Md5};
use sqlx::PgConnection;
use time::OffsetDateTime;

use crate::StoreError;
use crate::ingest::{Chain, Content, Count, Item, Step};
use crate::partitions::{start_of_week, week_of};

/// Between the entries of a list: no text that is stored has control characters.
const BETWEEN: &str = "\u{1f}";
/// Between the parts of an entry.
const BETWEEN_PARTS: &str = "\u{1e}";

/// Entries that a process remembers to be stored, some 40 bytes each. A fleet has thousands;
/// beyond, they are stored again, which changes nothing.
const KNOWN_MAX: usize = 100_000;

/// A chain without its times and task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Signature<'a> {
    pub(crate) driver: &'a str,
    pub(crate) verb: i16,
    pub(crate) expected: bool,
    pub(crate) steps: &'a [Step],
}

impl<'a> From<&'a Chain> for Signature<'a> {
    fn from(chain: &'a Chain) -> Self {
        Self {
            driver: &chain.driver,
            verb: chain.verb,
            expected: chain.expected,
            steps: &chain.steps,
        }
    }
}

impl Signature<'_> {
    fn joined(&self, part: impl Fn(&Step) -> String) -> String {
        let parts: Vec<String> = self.steps.iter().map(part).collect();
        parts.join(BETWEEN)
    }

    /// As `rdmesh_store.signature_id`.
    pub(crate) fn id(&self) -> i64 {
        id_of(&[
            self.driver,
            &self.verb.to_string(),
            if self.expected { "t" } else { "f" },
            &self.joined(|step| step.function.clone()),
            &self.joined(|step| step.module.clone()),
            &self.joined(|step| step.layer.to_string()),
            &self.joined(|step| step.errno.to_string()),
        ])
    }
}

/// A device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Device<'a> {
    name: &'a str,
    netdev: &'a str,
    pci_address: &'a str,
}

impl<'a> Device<'a> {
    /// That of a chain; none where nothing of it is known.
    pub(super) fn of(chain: &'a Chain) -> Option<Self> {
        let device = Self {
            name: &chain.device,
            netdev: &chain.netdev,
            pci_address: &chain.pci_address,
        };
        let parts = [device.name, device.netdev, device.pci_address];
        parts.iter().any(|part| !part.is_empty()).then_some(device)
    }
}

/// A failing function with its errno.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Return<'a> {
    function: &'a str,
    module: &'a str,
    layer: i16,
    errno: i32,
}

impl<'a> From<&'a Count> for Return<'a> {
    fn from(count: &'a Count) -> Self {
        Self {
            function: &count.function,
            module: &count.module,
            layer: count.layer,
            errno: count.errno,
        }
    }
}

/// The first half of an MD5: Postgres promises no other hash to stay the same.
fn id_of(parts: &[&str]) -> i64 {
    let mut digest = Md5::new();
    for (place, part) in parts.iter().enumerate() {
        if place > 0 {
            digest.update(BETWEEN_PARTS);
        }
        digest.update(part);
    }
    let mut half = [0; 8];
    half.copy_from_slice(&digest.finalize()[..8]);
    i64::from_be_bytes(half)
}

/// Which dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Signature,
    Device,
    Return,
}

/// An entry that rows of a week point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Word {
    kind: Kind,
    week: i32,
    id: i64,
}

/// Entries that are known to be stored with the rows of their week: retention, which drops
/// whole weeks, takes away only what no week has any more.
#[derive(Debug, Default)]
pub(crate) struct KnownWords(HashSet<Word>);

impl KnownWords {
    pub(crate) fn extend(&mut self, words: impl IntoIterator<Item = Word>) {
        if self.0.len() >= KNOWN_MAX {
            self.0.clear();
        }
        self.0.extend(words);
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Entries of one dictionary, each with its id.
#[derive(Debug)]
struct Entries<K>(HashMap<K, i64>);

impl<K> Default for Entries<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Copy + Eq + Hash> Entries<K> {
    fn id(&mut self, entry: K, make: impl FnOnce(&K) -> i64) -> i64 {
        *self.0.entry(entry).or_insert_with(|| make(&entry))
    }
}

/// What the items of a batch name.
#[derive(Debug, Default)]
pub(super) struct Words<'a> {
    signatures: Entries<Signature<'a>>,
    devices: Entries<Device<'a>>,
    returns: Entries<Return<'a>>,
    used: HashSet<Word>,
}

impl<'a> Words<'a> {
    pub(super) fn of(items: &[&'a Item]) -> Self {
        let mut words = Self::default();
        for item in items {
            let Content::Snapshot(snapshot) = &item.content else {
                continue;
            };
            for chain in &snapshot.chains {
                let week = week_of(chain.first_at);
                let id = words.signatures.id(chain.into(), Signature::id);
                words.use_of(Kind::Signature, week, id);
                if let Some(device) = Device::of(chain) {
                    let id = words
                        .devices
                        .id(device, |d| id_of(&[d.name, d.netdev, d.pci_address]));
                    words.use_of(Kind::Device, week, id);
                }
            }
            let week = week_of(snapshot.ended_at);
            for count in &snapshot.counts {
                let id = words.returns.id(count.into(), |r| {
                    let (layer, errno) = (r.layer.to_string(), r.errno.to_string());
                    id_of(&[r.function, r.module, &layer, &errno])
                });
                words.use_of(Kind::Return, week, id);
            }
        }
        words
    }

    fn use_of(&mut self, kind: Kind, week: i32, id: i64) {
        self.used.insert(Word { kind, week, id });
    }

    /// Every entry of the batch has an id; 0 stands for one that is not of it.
    pub(super) fn signature(&self, chain: &Chain) -> i64 {
        let id = self.signatures.0.get(&Signature::from(chain));
        id.copied().unwrap_or_default()
    }

    pub(super) fn device(&self, device: &Device<'_>) -> i64 {
        self.devices.0.get(device).copied().unwrap_or_default()
    }

    pub(super) fn returned(&self, count: &Count) -> i64 {
        let id = self.returns.0.get(&Return::from(count));
        id.copied().unwrap_or_default()
    }

    /// Entries that are not known to be stored.
    pub(super) fn unknown(&self, known: &KnownWords) -> Vec<Word> {
        self.used.difference(&known.0).copied().collect()
    }

    /// Stores these entries of the batch, in the order of their ids: two collectors that store
    /// the same wait for each other and not in a circle.
    pub(super) async fn store(
        &self,
        connection: &mut PgConnection,
        unknown: &[Word],
    ) -> Result<(), StoreError> {
        let latest = |kind| -> BTreeMap<i64, i32> {
            let mut weeks = BTreeMap::new();
            for word in unknown.iter().filter(|word| word.kind == kind) {
                let week = weeks.entry(word.id).or_insert(word.week);
                *week = word.week.max(*week);
            }
            weeks
        };
        self.store_signatures(connection, &latest(Kind::Signature))
            .await?;
        self.store_devices(connection, &latest(Kind::Device))
            .await?;
        self.store_returns(connection, &latest(Kind::Return)).await
    }

    async fn store_signatures(
        &self,
        connection: &mut PgConnection,
        ids: &BTreeMap<i64, i32>,
    ) -> Result<(), StoreError> {
        let all = chosen(&self.signatures, ids);
        if all.is_empty() {
            return Ok(());
        }
        let of = |part: fn(&Step) -> String| -> Vec<String> {
            all.iter().map(|(_, s)| s.joined(part)).collect()
        };
        sqlx::query(
            "INSERT INTO rdmesh_store.signatures
                 (id, driver, verb, expected, functions, modules, layers, errnos)
             SELECT g.id, g.driver, g.verb, g.expected,
                    -- Of an empty text string_to_array makes no entry, and a step has one.
                    COALESCE(NULLIF(string_to_array(g.functions, E'\\x1f'), '{}'), '{\"\"}'),
                    COALESCE(NULLIF(string_to_array(g.modules, E'\\x1f'), '{}'), '{\"\"}'),
                    string_to_array(g.layers, E'\\x1f')::smallint[],
                    string_to_array(g.errnos, E'\\x1f')::integer[]
             FROM unnest($1::bigint[], $2::text[], $3::smallint[], $4::boolean[], $5::text[],
                         $6::text[], $7::text[], $8::text[])
                  g (id, driver, verb, expected, functions, modules, layers, errnos)
             ORDER BY g.id
             ON CONFLICT (id) DO NOTHING",
        )
        .bind(all.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, s)| s.driver).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, s)| s.verb).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, s)| s.expected).collect::<Vec<_>>())
        .bind(of(|step| step.function.clone()))
        .bind(of(|step| step.module.clone()))
        .bind(of(|step| step.layer.to_string()))
        .bind(of(|step| step.errno.to_string()))
        .execute(connection)
        .await?;
        Ok(())
    }

    async fn store_devices(
        &self,
        connection: &mut PgConnection,
        ids: &BTreeMap<i64, i32>,
    ) -> Result<(), StoreError> {
        let all = chosen(&self.devices, ids);
        if all.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO rdmesh_store.devices AS d (id, device, netdev, pci_address, used_at)
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[],
                                  $5::timestamptz[]) g
             ORDER BY 1
             ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at
             WHERE d.used_at < excluded.used_at",
        )
        .bind(all.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, d)| d.name).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, d)| d.netdev).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, d)| d.pci_address).collect::<Vec<_>>())
        .bind(used_at(&all, ids)?)
        .execute(connection)
        .await?;
        Ok(())
    }

    async fn store_returns(
        &self,
        connection: &mut PgConnection,
        ids: &BTreeMap<i64, i32>,
    ) -> Result<(), StoreError> {
        let all = chosen(&self.returns, ids);
        if all.is_empty() {
            return Ok(());
        }
        sqlx::query(
            "INSERT INTO rdmesh_store.returns AS r (id, function, module, layer, errno, used_at)
             SELECT * FROM unnest($1::bigint[], $2::text[], $3::text[], $4::smallint[],
                                  $5::integer[], $6::timestamptz[]) g
             ORDER BY 1
             ON CONFLICT (id) DO UPDATE SET used_at = excluded.used_at
             WHERE r.used_at < excluded.used_at",
        )
        .bind(all.iter().map(|(id, _)| *id).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, r)| r.function).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, r)| r.module).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, r)| r.layer).collect::<Vec<_>>())
        .bind(all.iter().map(|(_, r)| r.errno).collect::<Vec<_>>())
        .bind(used_at(&all, ids)?)
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// The entries with these ids, each id once, in their order.
fn chosen<K: Copy>(entries: &Entries<K>, ids: &BTreeMap<i64, i32>) -> Vec<(i64, K)> {
    let chosen: BTreeMap<i64, K> = entries
        .0
        .iter()
        .filter(|(_, id)| ids.contains_key(id))
        .map(|(entry, id)| (*id, *entry))
        .collect();
    chosen.into_iter().collect()
}

/// The begin of the latest week of each.
fn used_at<K>(
    all: &[(i64, K)],
    ids: &BTreeMap<i64, i32>,
) -> Result<Vec<OffsetDateTime>, StoreError> {
    let weeks = all.iter().map(|(id, _)| ids.get(id).copied());
    weeks
        .map(|week| start_of_week(week.unwrap_or_default()))
        .collect()
}
