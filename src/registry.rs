//! Names for keys: what registry files say, and who names a key in a database of a server.
//!
//! Files are parsed in `registry/entry.rs` and below; here their entries become maps from keys to the
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
use entry::{Entry, File, Limits, parse_file};
use fault::Faults;
pub use fault::{Fault, RegistryError};
use pattern::KeyPattern;
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
    entries: Vec<Arc<Entry>>,
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

/// One key that several entries of equal rank name differently; also the pair in which `(7,*)` and
/// `(*,9)` meet.
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

/// One key of one entry, for people who look for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// The name.
    pub name: Arc<str>,
    /// What it comes to, as the `key` label writes it: `42`, `(7,*)`.
    pub key: Arc<str>,
    /// As the entry means it: `42`, `hashtext("jobs")`, `(7,*)`.
    pub written: Arc<str>,
    /// `None` for any.
    pub databases: Option<Vec<Arc<str>>>,
    /// Patterns; `None` for any.
    pub servers: Option<Vec<Arc<str>>>,
    /// Who says so.
    pub origin: Origin,
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A registry file.
    File {
        /// As it was given.
        file: Arc<str>,
        /// The line of its key.
        line: u32,
    },
    /// A preset, by its name.
    Preset(Arc<str>),
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
            entries,
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

    /// Databases for which an entry names keys on a server.
    pub fn databases(&self, server: &str) -> impl Iterator<Item = &Arc<str>> {
        let named = self.named.iter().filter(move |(_, claims)| claims.concern(server));
        named.map(|(datname, _)| datname)
    }

    /// Every name with what is known of it, by name.
    pub fn locks(&self) -> &[LockInfo] {
        &self.locks
    }

    /// How many entries the files have.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Every key of every entry that may name one in `database`, or in any; by name, then by place.
    pub fn listed_keys(&self, database: Option<&str>) -> Vec<ListedKey> {
        let is_meant = |entry: &&Arc<Entry>| match (&entry.databases, database) {
            (Some(databases), Some(database)) => databases.iter().any(|one| &**one == database),
            (None, _) | (_, None) => true,
        };
        let mut listed: Vec<ListedKey> = self
            .entries
            .iter()
            .filter(is_meant)
            .flat_map(|entry| entry.keys.iter().map(|pattern| ListedKey::new(entry, pattern)))
            .collect();
        listed.sort_by(|a, b| (&a.name, &a.origin).cmp(&(&b.name, &b.origin)));
        listed
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

impl ListedKey {
    fn new(entry: &Entry, pattern: &KeyPattern) -> Self {
        Self {
            name: entry.name.clone(),
            key: pattern.keys.to_string().into(),
            written: pattern.written.clone(),
            databases: entry.databases.clone(),
            servers: entry
                .servers
                .as_ref()
                .map(|globs| globs.iter().map(|glob| glob.to_string().into()).collect()),
            origin: Origin::File { file: entry.file.clone(), line: pattern.at.line },
        }
    }
}

/// `locks.yaml:3`, `preset rails`
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Preset(name) => write!(f, "preset {name}"),
        }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const APP: Database<'_> = Database { name: Some("app"), is_utf8: true };
    const SERVER_WIDE: Database<'_> = Database { name: None, is_utf8: false };

    fn source(name: &str, text: &str) -> Source {
        Source { name: name.into(), text: text.into() }
    }

    fn registry(text: &str) -> Registry {
        Registry::parse(&[source("locks.yaml", text)]).unwrap_or_else(|error| panic!("{error}"))
    }

    fn label(registry: &Registry, database: Database<'_>, key: Key) -> String {
        registry.resolve("db-1", database, key).label().to_owned()
    }

    fn minutes(minutes: u64) -> Limit {
        Limit::Of(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn an_empty_registry_has_the_built_in_limits_and_no_names() {
        let resolution = Registry::empty().resolve("db-1", APP, Key::bigint(42));
        assert_eq!(resolution.lock, None);
        assert_eq!(resolution.label(), "unregistered");
        assert_eq!((resolution.max_hold, resolution.max_wait), (minutes(60), minutes(1)));
        assert!(!resolution.exact && resolution.candidates.is_empty());
    }

    #[test]
    fn one_number_in_two_databases_and_as_a_pair_is_three_keys() {
        let registry = registry(
            "locks:\n\
             - { name: app job, key: 42, databases: [app] }\n\
             - { name: app pair, key: { pair: [0, 42] }, databases: [app] }\n",
        );
        let app2 = Database { name: Some("app2"), is_utf8: true };
        assert_eq!(label(&registry, APP, Key::bigint(42)), "app job");
        assert_eq!(label(&registry, APP, Key::pair(0, 42)), "app pair");
        assert_eq!(label(&registry, app2, Key::bigint(42)), "unregistered");
        assert_eq!(label(&registry, SERVER_WIDE, Key::bigint(42)), "unregistered");
        assert!(registry.conflicts().is_empty());
    }

    #[test]
    fn an_entry_for_the_database_goes_before_one_for_any_and_an_exact_key_before_a_pattern() {
        let registry = registry(
            "locks:\n\
             - { name: any exact, key: { pair: [7, 1] } }\n\
             - { name: any half, key: { pair: [7, \"*\"] } }\n\
             - { name: app exact, key: { pair: [7, 2] }, databases: [app] }\n\
             - { name: app half, key: { pair: [7, \"*\"] }, databases: [app] }\n",
        );
        let app2 = Database { name: Some("app2"), is_utf8: true };
        let labels = |database| [1, 2, 3].map(|n| label(&registry, database, Key::pair(7, n)));
        assert_eq!(labels(APP), ["app half", "app exact", "app half"]);
        assert_eq!(labels(app2), ["any exact", "any half", "any half"]);
        assert_eq!(labels(SERVER_WIDE), ["any exact", "any half", "any half"]);
        assert!(registry.conflicts().is_empty());
    }

    #[test]
    fn servers_decide_where_an_entry_holds() {
        let registry = registry(
            "locks:\n\
             - { name: orders job, key: 1, servers: ['orders-*'] }\n\
             - { name: billing job, key: 1, servers: ['billing-*'] }\n\
             - { name: fallback, key: { pair: [7, '*'] } }\n\
             - { name: orders pair, key: { pair: [7, 9] }, servers: ['orders-*'] }\n",
        );
        let label = |server, key| registry.resolve(server, APP, key).label().to_owned();
        assert_eq!(label("orders-1", Key::bigint(1)), "orders job");
        assert_eq!(label("billing-1", Key::bigint(1)), "billing job");
        assert_eq!(label("users-1", Key::bigint(1)), "unregistered");
        assert_eq!(label("orders-1", Key::pair(7, 9)), "orders pair");
        assert_eq!(label("users-1", Key::pair(7, 9)), "fallback");
        assert!(registry.conflicts().is_empty());
    }

    #[test]
    fn two_names_for_one_key_are_shown_both_and_reported_with_their_lines() {
        let registry = registry(
            "locks:\n\
             - { name: tf state b/1, key: 1, databases: [app, app2], max_hold: 5m, scope: session }\n\
             - name: tf state a/1\n\
             \x20 key: 1\n\
             \x20 databases: [app, app2]\n\
             \x20 max_wait: 5s\n\
             - { name: elsewhere, key: 1, databases: [other_db] }\n",
        );
        let resolution = registry.resolve("db-1", APP, Key::bigint(1));
        assert_eq!(resolution.lock.as_deref(), Some("tf state a/1 | tf state b/1"));
        assert_eq!(resolution.display_name(), "tf state a/1 | tf state b/1");
        assert_eq!(resolution.max_hold, minutes(5));
        assert_eq!(resolution.max_wait, Limit::Of(Duration::from_secs(5)));
        assert_eq!(resolution.scope, None);
        assert!(resolution.exact);
        let candidates: Vec<_> = resolution
            .candidates
            .iter()
            .map(|candidate| (&*candidate.name, candidate.to_string()))
            .collect();
        assert_eq!(
            candidates,
            [
                ("tf state a/1", "1 at locks.yaml:4".to_owned()),
                ("tf state b/1", "1 at locks.yaml:2".to_owned()),
            ]
        );
        let conflicts: Vec<String> = registry.conflicts().iter().map(Conflict::to_string).collect();
        assert_eq!(
            conflicts,
            ["key 1 in app, app2 has more than one name: \
              \"tf state a/1\" (1 at locks.yaml:4), \"tf state b/1\" (1 at locks.yaml:2)"]
        );
    }

    #[test]
    fn texts_that_hash_alike_are_a_conflict_that_tells_both_texts() {
        let registry = registry(
            "locks:\n\
             - { name: first, key: { hashtext: 'account:63575' } }\n\
             - { name: second, key: { hashtext: 'account:68747' } }\n\
             - { name: number, key: -1054191990 }\n",
        );
        assert_eq!(label(&registry, APP, Key::bigint(-1_054_191_989)), "first | second");
        assert_eq!(label(&registry, APP, Key::bigint(-1_054_191_990)), "number");
        let conflicts: Vec<String> = registry.conflicts().iter().map(Conflict::to_string).collect();
        assert_eq!(
            conflicts,
            ["key -1054191989 has more than one name: \
              \"first\" (hashtext(\"account:63575\") at locks.yaml:2), \
              \"second\" (hashtext(\"account:68747\") at locks.yaml:3)"]
        );
    }

    #[test]
    fn entries_that_share_no_server_or_a_name_do_not_conflict() {
        let conflicts = |entries: [&str; 2]| {
            let [a, b] = entries;
            registry(&format!("locks:\n- {{ key: 1, {a} }}\n- {{ key: 1, {b} }}\n"))
                .conflicts()
                .len()
        };
        assert_eq!(conflicts(["name: a", "name: b"]), 1);
        assert_eq!(conflicts(["name: a", "name: a"]), 0);
        assert_eq!(conflicts(["name: a, servers: [x]", "name: b"]), 1);
        assert_eq!(conflicts(["name: a, servers: [x]", "name: b, servers: [y, z]"]), 0);
        assert_eq!(conflicts(["name: a, servers: ['x*']", "name: b, servers: [y, '*z']"]), 1);
        assert_eq!(conflicts(["name: a, databases: [x]", "name: b, databases: [y]"]), 0);
        assert_eq!(conflicts(["name: a, databases: [x]", "name: b"]), 0);
    }

    #[test]
    fn a_half_free_pair_names_its_keys_in_one_series_with_a_parameter() {
        let registry = registry(
            "locks:\n\
             - { name: tenant-reindex, key: { pair: [7, \"*\"] }, parameter: tenant }\n\
             - { name: by object, key: { pair: [\"*\", -9] } }\n",
        );
        let resolution = registry.resolve("db-1", APP, Key::pair(7, 99));
        assert_eq!(resolution.label(), "tenant-reindex");
        assert_eq!(resolution.pattern.as_deref(), Some("(7,*)"));
        assert_eq!(resolution.parameters, [("tenant".into(), "99".to_owned())]);
        assert_eq!(resolution.display_name(), "tenant-reindex (tenant 99)");
        assert!(!resolution.exact);
        let resolution = registry.resolve("db-1", APP, Key::pair(8, -9));
        assert_eq!(resolution.pattern.as_deref(), Some("(*,-9)"));
        assert_eq!(resolution.display_name(), "by object");
        assert_eq!(label(&registry, APP, Key::bigint(7)), "unregistered");
        assert_eq!(label(&registry, APP, Key::from_columns(7, 9, 5)), "unregistered");
    }

    #[test]
    fn half_free_pairs_that_meet_in_one_pair_conflict_there_in_a_series_of_its_own() {
        let registry = registry(
            "locks:\n\
             - { name: rows, key: { pair: [7, \"*\"] }, parameter: row }\n\
             - { name: columns, key: { pair: [\"*\", 9] }, parameter: column }\n",
        );
        let resolution = registry.resolve("db-1", APP, Key::pair(7, 9));
        assert_eq!(resolution.label(), "columns | rows");
        assert_eq!((resolution.pattern, resolution.parameters), (None, vec![]));
        assert_eq!(resolution.candidates.len(), 2);
        let [conflict] = registry.conflicts() else { panic!("{:?}", registry.conflicts()) };
        assert_eq!(&*conflict.key, "(7,9)");
        assert_eq!(conflict.candidates, resolution.candidates);
    }

    #[test]
    fn where_half_free_pairs_meet_an_entry_of_its_own_settles_it() {
        let registry = registry(
            "locks:\n\
             - { name: rows, key: { pair: [7, \"*\"] } }\n\
             - { name: columns, key: { pair: [\"*\", 9] } }\n\
             - { name: cell, key: { pair: [7, 9] } }\n",
        );
        assert_eq!(label(&registry, APP, Key::pair(7, 9)), "cell");
        assert!(registry.conflicts().is_empty());
    }

    #[test]
    fn two_names_for_one_half_free_pair_share_its_series() {
        let registry = registry(
            "locks:\n\
             - { name: a, key: { pair: [7, \"*\"] }, parameter: x }\n\
             - { name: b, key: { pair: [7, \"*\"] }, parameter: y }\n",
        );
        let resolution = registry.resolve("db-1", APP, Key::pair(7, 9));
        assert_eq!(resolution.label(), "a | b");
        assert_eq!(resolution.pattern.as_deref(), Some("(7,*)"));
        assert!(resolution.parameters.is_empty());
        assert_eq!(&*registry.conflicts()[0].key, "(7,*)");
    }

    #[test]
    fn a_hash_of_other_than_ascii_text_names_keys_in_utf8_databases_only() {
        let registry = registry(
            "locks:\n\
             - { name: coffee, key: { hashtext: café }, databases: [app] }\n\
             - { name: tea, key: { hashtext: tea }, databases: [app] }\n\
             - { name: number, key: 103771354 }\n",
        );
        let latin1 = Database { name: Some("app"), is_utf8: false };
        let tea = Key::bigint(hash::hashtext(b"tea").into());
        assert_eq!(label(&registry, APP, Key::bigint(103_771_354)), "coffee");
        assert_eq!(label(&registry, latin1, Key::bigint(103_771_354)), "number");
        assert_eq!(label(&registry, latin1, tea), "tea");
        assert_eq!(registry.armed("db-1", |_| true).len(), 2);
        assert_eq!(registry.armed("db-1", |_| false).len(), 1);
    }

    #[test]
    fn entries_that_name_databases_arm_their_series_there() {
        let registry = registry(
            "locks:\n\
             - { name: job, key: 42, databases: [app, app2], last_held_within: 25h }\n\
             - { name: tenant, key: { pair: [7, \"*\"] }, databases: [app], parameter: tenant }\n\
             - { name: elsewhere, key: 43, databases: [app], servers: [db-2] }\n\
             - { name: anywhere, key: 44 }\n",
        );
        let armed = registry.armed("db-1", |_| true);
        let series: Vec<_> = armed
            .iter()
            .map(|Armed { datname, key, resolution }| {
                (&**datname, *key, resolution.label(), resolution.pattern.as_deref())
            })
            .collect();
        assert_eq!(
            series,
            [
                ("app", None, "tenant", Some("(7,*)")),
                ("app", Some(Key::bigint(42)), "job", None),
                ("app2", Some(Key::bigint(42)), "job", None),
            ]
        );
        assert!(armed[0].resolution.parameters.is_empty());
        assert_eq!(armed[1].resolution, registry.resolve("db-1", APP, Key::bigint(42)));
        assert_eq!(armed[1].resolution.last_held_within, Some(Duration::from_secs(25 * 3600)));
    }

    #[test]
    fn the_order_of_files_decides_nothing() {
        let sources = [
            source("a.yaml", "defaults: { max_hold: 2m }\nlocks: [{ name: a, key: 1, owner: x }]"),
            source(
                "b.yaml",
                "locks: [{ name: b, key: 1 }, { name: a, key: 2, runbook: 'http://w' }]",
            ),
            source("c.yaml", "defaults: { max_wait: 3s, unregistered: { max_hold: 2h } }"),
            source("d.yaml", "defaults: { unregistered: { max_hold: 90m, max_wait: unlimited } }"),
        ];
        let forward = Registry::parse(&sources).unwrap();
        let backward: Vec<Source> = sources.into_iter().rev().collect();
        let backward = Registry::parse(&backward).unwrap();
        for key in [1, 2, 3].map(Key::bigint) {
            let resolution = forward.resolve("db-1", APP, key);
            assert_eq!(resolution, backward.resolve("db-1", APP, key));
        }
        assert_eq!(forward.conflicts(), backward.conflicts());
        assert_eq!(forward.locks(), backward.locks());
        assert_eq!(forward.entry_count(), 3);

        let resolution = forward.resolve("db-1", APP, Key::bigint(1));
        assert_eq!((resolution.label(), resolution.max_hold), ("a | b", minutes(2)));
        // Defaults of one file do not reach another, and the smallest limit for strangers wins.
        assert_eq!(forward.resolve("db-1", APP, Key::bigint(2)).max_hold, minutes(15));
        let stranger = forward.resolve("db-1", APP, Key::bigint(3));
        assert_eq!(stranger.max_hold, minutes(90));
        assert_eq!(stranger.max_wait, Limit::Of(Duration::from_secs(3)));
    }

    #[test]
    fn one_name_in_several_entries_has_one_owner_runbook_and_description() {
        let parts = [
            source("a.yaml", "locks:\n- { name: job, key: 1, owner: growth, description: d }\n"),
            source("b.yaml", "locks:\n- { name: job, key: 2, runbook: 'https://w' }\n"),
            source("c.yaml", "locks:\n- { name: job, key: 3, owner: billing }\n"),
        ];
        let registry = Registry::parse(&parts[..2]).unwrap();
        assert_eq!(
            registry.locks(),
            [LockInfo {
                name: "job".into(),
                owner: Some("growth".into()),
                runbook: Some("https://w".into()),
                description: Some("d".into()),
            }]
        );
        assert_eq!(
            Registry::parse(&parts).unwrap_err().to_string(),
            "c.yaml:2:31: the owner of \"job\" is another one at a.yaml:2: \
             entries of one name have one owner, or leave it out\n\
             \x20 2 | - { name: job, key: 3, owner: billing }\n\
             \x20   |                               ^"
        );
    }

    #[test]
    fn faults_of_all_files_are_told_at_once() {
        let error = Registry::parse(&[
            source("a.yaml", "locks:\n- { name: a, key: 010 }\n"),
            source("b.yaml", "locks: [*]"),
        ])
        .unwrap_err();
        assert_eq!(
            error.to_string(),
            "a.yaml:2:19: 010 begins with a zero, which some read as octal: \
             write 10, or 8 if octal was meant\n\
             \x20 2 | - { name: a, key: 010 }\n\
             \x20   |                   ^\n\
             b.yaml:1:9: a bare * begins a YAML alias: write \"*\" in quotes\n\
             \x20 1 | locks: [*]\n\
             \x20   |         ^"
        );
    }

    #[test]
    fn each_hash_is_checked_once() {
        let registry = registry(
            "locks:\n\
             - { name: a, keys: [{ hashtext: jobs }, { pair: [{ hashtext: jobs }, 1] }] }\n\
             - { name: b, key: { hashtextextended: jobs } }\n\
             - { name: c, key: { hashtextextended: jobs, seed: -1 } }\n\
             - { name: d, key: 42 }\n",
        );
        let checks: Vec<_> = registry
            .hash_checks()
            .iter()
            .map(|check| (check.function.as_str(), &*check.text, check.seed, check.value))
            .collect();
        assert_eq!(
            checks,
            [
                ("hashtext", "jobs", 0, -1_679_774_495),
                ("hashtextextended", "jobs", -1, -7_996_330_531_658_456_789),
                ("hashtextextended", "jobs", 0, 7_259_640_204_928_003_297),
            ]
        );
    }

    #[test]
    fn keys_times_databases_are_bounded() {
        let list = |n: usize| (0..n).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let text = format!(
            "locks:\n- {{ name: a, keys: [{}], databases: [{}] }}\n",
            list(1001),
            list(1000)
        );
        let error = Registry::parse(&[source("f", &text)]).unwrap_err().to_string();
        assert!(
            error.starts_with(
                "f:2:3: with this entry, keys times databases exceed 1000000: leave databases out"
            ),
            "{error}"
        );
    }

    #[test]
    fn limits_are_ordered_and_have_seconds() {
        assert!(Limit::Unlimited > Limit::Of(Duration::MAX));
        assert_eq!(Limit::Unlimited.as_secs_f64(), f64::INFINITY);
        assert_eq!(minutes(1).as_secs_f64(), 60.0);
    }

    #[test]
    fn files_are_read_and_what_is_no_text_is_refused_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.yaml");
        let refusal = || Registry::load(std::slice::from_ref(&path)).unwrap_err().to_string();
        assert_eq!(refusal(), format!("cannot read registry file {}", path.display()));
        std::fs::write(&path, b"locks:\n- { name: a\xff, key: 1 }\n").unwrap();
        assert_eq!(
            refusal(),
            format!("registry file {} is not UTF-8 on line 2: save it as UTF-8", path.display())
        );
        std::fs::File::create(&path).unwrap().set_len(MAX_FILE_BYTES + 1).unwrap();
        assert_eq!(
            refusal(),
            format!(
                "registry file {} is larger than 16 MiB: split it into several files",
                path.display()
            )
        );
        std::fs::write(&path, "locks: [{ name: a, key: 1 }]").unwrap();
        let registry = Registry::load(std::slice::from_ref(&path)).unwrap();
        assert_eq!(label(&registry, APP, Key::bigint(1)), "a");
    }

    /// Texts that are closer to registry files than random characters are.
    fn registry_like_text() -> impl Strategy<Value = String> {
        let word = prop::sample::select(vec![
            "locks:",
            "- ",
            "name: ",
            "key: ",
            "keys: ",
            "pair: ",
            "hashtext: ",
            "bigint: ",
            "{ ",
            " }",
            "[",
            "]",
            ", ",
            "\n",
            "\n  ",
            "\n- ",
            "*",
            "\"*\"",
            "7",
            "010",
            "1e3",
            "a",
            "'",
            "\"",
            "&x ",
            "*x",
            "<<: ",
            "!!str ",
            "{{",
            "}}",
            "{x}",
            "---",
            "~",
            "#",
            ": ",
            "\\0",
            "unlimited",
            "5m",
            "defaults: ",
            "databases: ",
            "é",
            "\u{feff}",
            "\t",
            "\r",
            "? ",
            "| ",
        ]);
        prop::collection::vec(word, 0..24).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes: Vec<u8>) {
            if let Ok(source) = Source::from_bytes("f", bytes)
                && let Err(error) = Registry::parse(&[source])
            {
                prop_assert!(!error.to_string().is_empty());
            }
        }

        #[test]
        fn any_text_that_resembles_a_registry_is_parsed_or_refused(
            text in registry_like_text(), entry in registry_like_text(),
        ) {
            for text in [text, format!("locks:\n- name: a\n  key: {entry}")] {
                if let Err(error) = Registry::parse(&[source("f", &text)]) {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }

        #[test]
        fn every_number_names_its_own_key(number: i64, other: i64) {
            let registry = registry(&format!("locks: [{{ name: a, key: {number} }}]"));
            let named = label(&registry, APP, Key::bigint(other)) == "a";
            prop_assert_eq!(named, number == other);
            prop_assert_eq!(label(&registry, APP, Key::bigint(number)), "a");
        }
    }
}
