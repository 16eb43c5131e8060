//! Names for keys: what registry files say, and who names a key in a database of a server.
//!
//! Files are parsed in [`entry`] and below; here their entries become maps from keys to the
//! entries that claim them, so that a look-up costs a few hash probes however long the files are.
//! A [`Resolution`] is what the rest of the program knows of a name: the tracker and the findings
//! take the limits from it, the metrics the labels, the page and `top` the names with parameters.
//! Nothing here knows what is held at present.
//!
//! Who names a key: an entry for this database, then an entry for any database; among those an
//! exact key (a number or a hash), then a half-free pair. Two names of equal rank are a conflict,
//! which is shown and never hidden: the label has both, the limits are the smallest. The order of
//! files and entries decides nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use claims::{Claim, Claims};
use entry::{File, Limits, parse_file};
use fault::Faults;
pub use fault::{Fault, RegistryError};
pub use pattern::{HashCheck, HashFunction};

use crate::key::Key;

mod claims;
mod document;
mod entry;
mod fault;
mod fields;
mod glob;
pub mod hash;
mod number;
mod pattern;
mod template;

/// The `lock` label of keys without a name.
pub const UNREGISTERED: &str = "unregistered";

/// Larger files are refused: nobody wrote them.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Entries times databases: a bound on memory that no fleet of databases comes near.
const MAX_CLAIMS: usize = 1_000_000;

const UNREGISTERED_MAX_HOLD: Limit = Limit::Of(Duration::from_secs(60 * 60));
const UNREGISTERED_MAX_WAIT: Limit = Limit::Of(Duration::from_secs(60));

/// All names of all files. It does not change; share it in an `Arc` and load a new one instead.
#[derive(Debug)]
pub struct Registry {
    /// Entries that name databases, by database.
    named: HashMap<Arc<str>, Claims>,
    /// Entries for any database.
    any: Claims,
    unregistered: Resolution,
    locks: Vec<LockInfo>,
    entry_count: usize,
    conflicts: Vec<Conflict>,
    hash_checks: Vec<HashCheck>,
}

/// The text of one registry file.
#[derive(Clone, Debug)]
pub struct Source {
    /// What faults call it; the path as it was given.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// The database of a lock, as far as it decides who names a key in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Database<'a> {
    /// `None` for database 0 and for one whose name is not known.
    pub name: Option<&'a str>,
    /// Whether its encoding is UTF8; hashes of other than ASCII texts name keys only there.
    pub is_utf8: bool,
}

/// What the registry says about one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// The `lock` label: a name, `a | b` in a conflict, `None` for a key without a name.
    pub lock: Option<Arc<str>>,
    /// The `key` label when one series stands for many keys, as in `(7,*)`.
    pub pattern: Option<Arc<str>>,
    /// What the entry calls the free half, and its value. Never part of a label.
    pub parameters: Vec<(Arc<str>, String)>,
    /// Held longer is a finding.
    pub max_hold: Limit,
    /// Awaited longer is a finding.
    pub max_wait: Limit,
    /// Not seen held for longer is a finding.
    pub last_held_within: Option<Duration>,
    /// What the entry says about how the lock is taken.
    pub scope: Option<DeclaredScope>,
    /// Named as this one key, by its number or a hash, not as one of many.
    pub exact: bool,
    /// In a conflict all entries that claim the key, by name; else empty.
    pub candidates: Vec<Candidate>,
}

/// How long is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Limit {
    /// Longer than this.
    Of(Duration),
    /// Never.
    Unlimited,
}

/// How the applications are said to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredScope {
    /// Until they unlock it or disconnect.
    Session,
    /// Until the end of the transaction.
    Transaction,
}

/// An entry that claims a key which others claim too.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The name it gives.
    pub name: Arc<str>,
    /// The file that says so.
    pub file: Arc<str>,
    /// The line of its key.
    pub line: u32,
    /// The key as that line means it: `42`, `hashtext("jobs")`, `(7,*)`.
    pub written: Arc<str>,
}

/// One key that several entries of equal rank name differently. Only what overlaps as written is
/// found at load; that `(7,*)` and `(*,9)` meet in one pair shows when that pair is looked up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The key, or the pattern of a half-free pair.
    pub key: Arc<str>,
    /// The databases where the entries meet; empty for entries for any database.
    pub databases: Vec<Arc<str>>,
    /// The entries, by name.
    pub candidates: Vec<Candidate>,
}

/// What `pg_advisory_lock_info` tells about one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The name.
    pub name: Arc<str>,
    /// Who looks after it.
    pub owner: Option<Arc<str>>,
    /// An `http` or `https` address.
    pub runbook: Option<Arc<str>>,
    /// For people.
    pub description: Option<Arc<str>>,
}

/// A series that exists from the first poll, since an entry names its database.
#[derive(Clone, Debug, PartialEq)]
pub struct Armed {
    /// The database that the entry names; the server need not have it.
    pub datname: Arc<str>,
    /// The key, or `None` when `resolution.pattern` stands for many.
    pub key: Option<Key>,
    /// As [`Registry::resolve`] gives it, without parameters for a pattern.
    pub resolution: Resolution,
}

impl Registry {
    /// Names nothing; the limits are the built-in defaults.
    pub fn empty() -> Self {
        Self::from_files(Vec::new(), Vec::new())
    }

    /// Reads and parses files.
    pub fn load(paths: &[PathBuf]) -> Result<Self, RegistryError> {
        let sources = paths.iter().map(|path| fetch_source(path)).collect::<Result<Vec<_>, _>>()?;
        Self::parse(&sources)
    }

    /// Parses files. All faults of all files are told at once.
    pub fn parse(sources: &[Source]) -> Result<Self, RegistryError> {
        let mut files = Vec::with_capacity(sources.len());
        for source in sources {
            let mut faults = Faults::new(source);
            files.push((parse_file(source, &mut faults), faults));
        }
        let locks = merge_names(&mut files);
        bound_claims(&mut files);
        let (files, faults): (Vec<_>, Vec<_>) = files.into_iter().unzip();
        let faults: Vec<Fault> = faults.into_iter().flat_map(Faults::finish).collect();
        if faults.is_empty() {
            Ok(Self::from_files(files, locks))
        } else {
            Err(RegistryError::Refused(faults))
        }
    }

    fn from_files(files: Vec<File>, locks: Vec<LockInfo>) -> Self {
        let smallest = |limit: fn(&Limits) -> Option<Limit>| {
            files.iter().filter_map(|file| limit(&file.unregistered)).min()
        };
        let unregistered = Resolution {
            lock: None,
            pattern: None,
            parameters: Vec::new(),
            max_hold: smallest(|limits| limits.max_hold).unwrap_or(UNREGISTERED_MAX_HOLD),
            max_wait: smallest(|limits| limits.max_wait).unwrap_or(UNREGISTERED_MAX_WAIT),
            last_held_within: None,
            scope: None,
            exact: false,
            candidates: Vec::new(),
        };
        let entries: Vec<_> =
            files.into_iter().flat_map(|file| file.entries).map(Arc::new).collect();

        let mut named: HashMap<Arc<str>, Claims> = HashMap::new();
        let mut any = Claims::default();
        let mut hash_checks = BTreeSet::new();
        for entry in &entries {
            for pattern in &entry.keys {
                hash_checks.extend(pattern.hashes.iter().cloned());
                let claim = || Claim { entry: entry.clone(), pattern: pattern.clone() };
                match &entry.databases {
                    None => any.insert(claim()),
                    Some(databases) => {
                        for database in databases {
                            named.entry(database.clone()).or_default().insert(claim());
                        }
                    }
                }
            }
        }
        Self {
            conflicts: find_conflicts(&named, &any),
            named,
            any,
            unregistered,
            locks,
            entry_count: entries.len(),
            hash_checks: hash_checks.into_iter().collect(),
        }
    }

    /// Who names `key` in a database of the server with the label `server`, and its limits.
    pub fn resolve(&self, server: &str, database: Database<'_>, key: Key) -> Resolution {
        let named = database.name.and_then(|name| self.named.get(name));
        named
            .into_iter()
            .chain([&self.any])
            .find_map(|claims| claims.resolve(server, database.is_utf8, key))
            .unwrap_or_else(|| self.unregistered.clone())
    }

    /// The series of a server that exist before their key was ever seen, in a stable order: those
    /// of entries that name databases. `is_utf8` tells the encoding of a database.
    pub fn armed(&self, server: &str, is_utf8: impl Fn(&str) -> bool) -> Vec<Armed> {
        let mut armed = Vec::new();
        for (datname, claims) in &self.named {
            let series = claims.series(server, is_utf8(datname));
            armed.extend(series.map(|(key, resolution)| Armed {
                datname: datname.clone(),
                key,
                resolution,
            }));
        }
        armed.sort_by(|a, b| {
            let order = |armed: &Armed| {
                (armed.datname.clone(), armed.key, armed.resolution.pattern.clone())
            };
            order(a).cmp(&order(b))
        });
        armed
    }

    /// Every name with what is known of it, by name.
    pub fn locks(&self) -> &[LockInfo] {
        &self.locks
    }

    /// How many entries the files have.
    pub fn entry_count(&self) -> usize {
        self.entry_count
    }

    /// Keys that entries of equal rank name differently.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Every hash that a key was computed from, once.
    pub fn hash_checks(&self) -> &[HashCheck] {
        &self.hash_checks
    }
}

impl Source {
    /// Text from bytes; `name` is what errors call it.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, RegistryError> {
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(RegistryError::TooLarge { file: name.to_owned() });
        }
        let text = String::from_utf8(bytes).map_err(|error| {
            let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
            RegistryError::NotUtf8 { file: name.to_owned(), line }
        })?;
        Ok(Self { name: name.to_owned(), text })
    }
}

fn fetch_source(path: &Path) -> Result<Source, RegistryError> {
    let fetch = || -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = fetch().map_err(|source| RegistryError::Read { path: path.to_owned(), source })?;
    Source::from_bytes(&path.display().to_string(), bytes)
}

/// One name may stand in many entries and files, but means one thing: what several of them say
/// about owner, runbook and description must agree. Who says nothing agrees.
fn merge_names(files: &mut [(File, Faults<'_>)]) -> Vec<LockInfo> {
    /// The text and where it was said first.
    type First = Option<(Arc<str>, String)>;
    let mut names: BTreeMap<Arc<str>, [First; 3]> = BTreeMap::new();
    for (file, faults) in files {
        for entry in &file.entries {
            let firsts = names.entry(entry.name.clone()).or_default();
            let fields = [
                ("owner", &entry.owner),
                ("runbook", &entry.runbook),
                ("description", &entry.description),
            ];
            for (first, (field, said)) in firsts.iter_mut().zip(fields) {
                let Some(said) = said else { continue };
                let (text, place) = first.get_or_insert_with(|| {
                    (said.text.clone(), format!("{}:{}", entry.file, said.at.line))
                });
                if *text != said.text {
                    faults.add(
                        said.at,
                        format!(
                            "the {field} of {:?} is another one at {place}: \
                             entries of one name have one {field}, or leave it out",
                            entry.name
                        ),
                    );
                }
            }
        }
    }
    names
        .into_iter()
        .map(|(name, firsts)| {
            let [owner, runbook, description] = firsts.map(|first| first.map(|(text, _)| text));
            LockInfo { name, owner, runbook, description }
        })
        .collect()
}

/// Every key of an entry is kept for every database it names, which multiplies.
fn bound_claims(files: &mut [(File, Faults<'_>)]) {
    let mut total = 0_usize;
    for (file, faults) in files {
        for entry in &file.entries {
            let databases = entry.databases.as_ref().map_or(1, Vec::len);
            total = total.saturating_add(entry.keys.len().saturating_mul(databases));
            if total > MAX_CLAIMS {
                faults.add(
                    entry.at,
                    format!("with this entry, keys times databases exceed {MAX_CLAIMS}: leave databases out"),
                );
                return;
            }
        }
    }
}

fn find_conflicts(named: &HashMap<Arc<str>, Claims>, any: &Claims) -> Vec<Conflict> {
    let mut databases: BTreeMap<Conflict, BTreeSet<Arc<str>>> = BTreeMap::new();
    let named = named.iter().map(|(database, claims)| (Some(database), claims));
    for (database, claims) in named.chain([(None, any)]) {
        for conflict in claims.conflicts() {
            databases.entry(conflict).or_default().extend(database.cloned());
        }
    }
    databases
        .into_iter()
        .map(|(conflict, databases)| Conflict {
            databases: databases.into_iter().collect(),
            ..conflict
        })
        .collect()
}

impl Resolution {
    /// The `lock` label: the name, or [`UNREGISTERED`].
    pub fn label(&self) -> &str {
        self.lock.as_deref().unwrap_or(UNREGISTERED)
    }

    /// For people: the name with its parameters, as in `tenant-reindex (tenant 99)`.
    pub fn display_name(&self) -> Cow<'_, str> {
        if self.parameters.is_empty() {
            return self.label().into();
        }
        let parameters: Vec<String> =
            self.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        format!("{} ({})", self.label(), parameters.join(", ")).into()
    }
}

impl Limit {
    /// In seconds; infinite for [`Limit::Unlimited`].
    pub fn as_secs_f64(self) -> f64 {
        match self {
            Self::Of(duration) => duration.as_secs_f64(),
            Self::Unlimited => f64::INFINITY,
        }
    }

    /// Whether `duration` is longer than the limit allows.
    pub fn is_exceeded_by(self, duration: Duration) -> bool {
        match self {
            Self::Of(limit) => duration > limit,
            Self::Unlimited => false,
        }
    }
}

/// Why it is a candidate: `hashtext("jobs") at locks.yaml:3`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}:{}", self.written, self.file, self.line)
    }
}

/// One line for the log and for `registry check`.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} ", self.key)?;
        if !self.databases.is_empty() {
            write!(f, "in {} ", self.databases.join(", "))?;
        }
        f.write_str("has more than one name: ")?;
        for (index, candidate) in self.candidates.iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{:?} ({candidate})", candidate.name)?;
        }
        Ok(())
    }
}
