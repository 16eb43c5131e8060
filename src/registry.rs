//! Names for keys: what registry files say, and who names a key in a database of a server.
//!
//! Files are parsed in `registry/entry.rs` and below, presets with them. `registry/builder.rs` makes
//! claims on keys of the entries, as far as they can be computed without a server. What needs one
//! (the databases' names and encodings, values of queries, OIDs of tables) is computed by a
//! [`Resolver`], one for each server, which answers who names a key. A [`Resolution`] is what the rest of the program
//! knows of a name: the tracker and the findings take the limits from it, the metrics the labels,
//! the page and `top` the names with parameters. Nothing here knows what is held at present.
//!
//! Who names a key: an entry for this database, then an entry for any database, then the presets;
//! among those of equal standing an exact key (a number or a hash), then one of several values,
//! then a half-free key, then a range, then a key recognised by its form. Two names of equal rank are
//! a conflict, which is shown and never hidden: the label has both, the limits are the smallest. The
//! order of files and entries decides nothing.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use builder::{Builder, Unfinished};
use claims::{Claim, Claims};
pub use crowd::Crowd;
use entry::{ABOUT_NAMES, Entry, File, Limits, Said, Values, parse_file};
use fault::Faults;
pub use fault::{Fault, RegistryError};
pub use formula::{HashCall, HashCheck, HashFunction};
pub use glob::Glob;
pub use listing::{Explainer, ListedKey, Naming};
pub use resolver::{Circumstances, Resolver, Signs};

use crate::inspected::{Question, Wanted};

mod builder;
mod claims;
mod crowd;
mod document;
mod encoding;
mod entry;
mod fault;
mod fields;
mod formula;
mod function;
mod glob;
pub mod hash;
mod listing;
mod number;
mod pattern;
mod preset;
mod resolver;
mod template;
#[cfg(test)]
mod testing;

/// The `lock` label of keys without a name.
pub const UNREGISTERED: &str = "unregistered";

/// Larger files are refused: nobody wrote them.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// How many keys a registry may compute unless `limits.values` says otherwise: a bound on memory
/// that no fleet of databases comes near.
pub const MAX_KEYS: usize = 1_000_000;

/// Of presets: many times what they have by themselves, so that only values that files choose for
/// them come near.
const MAX_PRESET_KEYS: usize = 10_000;

/// Of a long list, people are shown so many.
const LISTED: usize = 10;

const UNREGISTERED_MAX_HOLD: Limit = Limit::Of(Duration::from_secs(60 * 60));
const UNREGISTERED_MAX_WAIT: Limit = Limit::Of(Duration::from_secs(60));

/// All names of all files. It does not change; share it in an `Arc` and load a new one instead.
#[derive(Clone, Debug)]
pub struct Registry {
    /// Presets last.
    entries: Vec<Arc<Entry>>,
    /// Claims that hold whatever the server.
    fixed: Arc<Layer>,
    /// Claims that need the database's encoding.
    by_encoding: Vec<Unfinished>,
    /// Claims that need the database itself: its name, or OIDs of its tables.
    by_database: Vec<Unfinished>,
    /// Entries with values that are asked of the server.
    queried: Vec<Arc<Entry>>,
    unregistered: Resolution,
    locks: Vec<LockInfo>,
    entry_count: usize,
    conflicts: Vec<Conflict>,
    collisions: Vec<Collision>,
    /// Whoever has a part in these conflicts.
    contested: BTreeSet<Candidate>,
    hash_checks: Vec<HashCheck>,
    watched_files: Vec<PathBuf>,
    max_keys: usize,
}

/// The text of one registry file.
#[derive(Clone, Debug)]
pub struct Source {
    /// What faults call it; the path as it was given.
    pub name: String,
    /// All of it.
    pub text: String,
}

/// What the registry says about one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Resolution {
    /// The `lock` label: a name, `a | b` in a conflict, `None` for a key without a name.
    pub lock: Option<Arc<str>>,
    /// The `key` label when one series stands for many keys, as in `(7,*)`.
    pub pattern: Option<Arc<str>>,
    /// What the name leaves open and the key tells: values and free parts, by their names. Part of
    /// a label only where the entry says so, and then they are in `lock` and not here.
    pub parameters: Vec<(Arc<str>, String)>,
    /// Held longer is a finding.
    pub max_hold: Limit,
    /// Awaited longer is a finding.
    pub max_wait: Limit,
    /// Held longer by a session that is idle in a transaction is a finding; `None` for the limit of
    /// the configuration.
    pub max_idle_in_transaction: Option<Limit>,
    /// Not seen held for longer is a finding.
    pub last_held_within: Option<Duration>,
    /// Held again sooner is a finding.
    pub not_again_within: Option<Duration>,
    /// Held by nobody is a finding, after `vacant_for`.
    pub must_be_held: bool,
    /// The grace of `must_be_held`.
    pub vacant_for: Option<Duration>,
    /// Others as holders are a finding: patterns for application names.
    pub holders: Option<Arc<[Glob]>>,
    /// On which servers the expectations hold. Where it is `None`, those about `holders` and `scope`
    /// hold on all, the others on primaries.
    pub role: Option<Role>,
    /// What the entry says about how the lock is taken.
    pub scope: Option<DeclaredScope>,
    /// In which mode it is taken.
    pub mode: Option<DeclaredMode>,
    /// Named as this one key, by its number or a hash, not as one of many.
    pub exact: bool,
    /// In a conflict all entries that claim the key, by name; for a key without a name the presets
    /// that may mean it; else empty.
    pub candidates: Vec<Candidate>,
    /// Another answer is possible when more is seen of the key: ask again.
    pub is_open: bool,
    /// Who looks after it; in a conflict all who do.
    pub owner: Option<Arc<str>>,
    /// What to read about it, an `http` or `https` address; `None` in a conflict about it.
    pub runbook: Option<Arc<str>>,
    /// For people.
    pub description: Option<Arc<str>>,
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

/// In which mode the applications are said to take a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeclaredMode {
    /// Alone.
    Exclusive,
    /// Beside others who share it.
    Share,
}

/// Which servers an expectation is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Those that take writes.
    Primary,
    /// Those in recovery.
    Standby,
    /// Both.
    Any,
}

/// An entry that claims a key which others claim too, or a preset that may mean it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// The name it gives.
    pub name: Arc<str>,
    /// The values of its placeholders: never part of a label.
    pub parameters: Vec<(Arc<str>, String)>,
    /// Where it says so.
    pub origin: Origin,
    /// The key as it is meant there: `42`, `hashtext("jobs")`, `(7,*)`.
    pub written: Arc<str>,
    /// Why the name is not given.
    pub doubt: Option<Doubt>,
}

/// Where an entry stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Origin {
    /// In a file of the user's.
    File {
        /// As it was given.
        file: Arc<str>,
        /// Counted from 1.
        line: u32,
        /// Counted from 1, in characters.
        column: u32,
    },
    /// In the preset of this name.
    Preset(Arc<str>),
}

/// Why a preset may not name a key that it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Doubt {
    /// The number is small, and nothing else of the tool was seen.
    NoMarker,
    /// The number lies among others that look like counted ids.
    Crowded,
    /// Another extension uses the class too.
    SharedClass,
    /// The form fits other keys by chance.
    Chance,
}

/// One key, or one pattern, that several entries of equal rank name differently.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conflict {
    /// The key, or the pattern in which they meet.
    pub key: Arc<str>,
    /// The databases where the entries meet; empty for entries for any database.
    pub databases: Vec<Arc<str>>,
    /// The entries, by name.
    pub candidates: Vec<Candidate>,
}

/// One key that several values of one name hash to. The name is right for all of them; whoever
/// holds it for one keeps the others out.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collision(pub Conflict);

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
    /// The `key` label.
    pub key: Arc<str>,
    /// As [`Resolver::resolve`] gives it, without parameters for a pattern.
    pub resolution: Resolution,
}

/// Claims by their standing.
#[derive(Debug, Default)]
struct Layer {
    /// Entries that name databases, by database.
    named: HashMap<Arc<str>, Claims>,
    /// Entries for any database.
    any: Claims,
    presets: Claims,
}

/// How text files are read; what is read decides nothing but its content.
type ReadFile<'a> = &'a dyn Fn(&Path) -> io::Result<Vec<u8>>;

impl Registry {
    /// No files: the presets alone, and the built-in limits.
    pub fn empty() -> Self {
        Self::parse(&[]).unwrap_or_else(|error| unreachable!("presets are tested: {error}"))
    }

    /// Reads and parses files, and the files of values that they name. `max_keys` bounds the keys
    /// that are computed, see [`MAX_KEYS`].
    pub fn load(paths: &[PathBuf], max_keys: usize) -> Result<Self, RegistryError> {
        let sources = paths.iter().map(|path| fetch_source(path)).collect::<Result<Vec<_>, _>>()?;
        Self::build(&sources, &fetch_value_bytes, max_keys)
    }

    /// Parses files. All faults of all files are told at once. Files of values are not read: an
    /// entry that needs one is a fault.
    pub fn parse(sources: &[Source]) -> Result<Self, RegistryError> {
        let no_files = |_: &Path| Err(io::Error::other("only files on disk can name other files"));
        Self::build(sources, &no_files, MAX_KEYS)
    }

    /// As [`load`](Self::load), from sources that are already here.
    pub fn load_sources(sources: &[Source], max_keys: usize) -> Result<Self, RegistryError> {
        Self::build(sources, &fetch_value_bytes, max_keys)
    }

    fn build(
        sources: &[Source],
        read: ReadFile<'_>,
        max_keys: usize,
    ) -> Result<Self, RegistryError> {
        let mut files = Vec::with_capacity(sources.len());
        for source in sources {
            let mut faults = Faults::new(source);
            files.push((parse_file(source, false, &mut faults), faults));
        }
        let mut watched_files = Vec::new();
        for (file, faults) in &mut files {
            read_values(file, read, &mut watched_files, faults);
        }
        let presets = preset::choose(&mut files);
        let locks = merge_names(&mut files, &presets);
        for (file, _) in &mut files {
            for entry in &mut file.entries {
                let known = locks.binary_search_by(|lock| lock.name.cmp(&entry.name));
                if let Ok(index) = known {
                    entry.adopt(&locks[index]);
                }
            }
        }
        let unregistered = unregistered(files.iter().map(|(file, _)| &file.unregistered));
        let mut entries: Vec<Arc<Entry>> = Vec::new();
        let mut builder = Builder::new(max_keys);
        for (file, faults) in &mut files {
            for entry in std::mem::take(&mut file.entries) {
                let entry = Arc::new(entry);
                builder.add(&entry, faults);
                entries.push(entry);
            }
        }
        let entry_count = entries.len();
        // However many keys the files have, those of the presets are named.
        builder.keys_left = max_keys.max(MAX_PRESET_KEYS);
        for entry in presets {
            let entry = Arc::new(entry);
            let nowhere = Source { name: entry.file.to_string(), text: String::new() };
            let mut faults = Faults::new(&nowhere);
            builder.add(&entry, &mut faults);
            preset::blame(&mut files, &entry, faults);
            entries.push(entry);
        }
        let faults: Vec<Fault> =
            files.into_iter().flat_map(|(_, faults)| Faults::finish(faults)).collect();
        if !faults.is_empty() {
            return Err(RegistryError::Refused(faults));
        }
        builder.layer.finish();
        let conflicts = builder.layer.tell(Claims::conflicts);
        let collisions =
            builder.layer.tell(Claims::collisions).into_iter().map(Collision).collect();
        let contested = conflicts.iter().flat_map(|conflict| conflict.candidates.iter().cloned());
        Ok(Self {
            contested: contested.collect(),
            conflicts,
            collisions,
            fixed: Arc::new(builder.layer),
            by_encoding: builder.by_encoding,
            by_database: builder.by_database,
            queried: builder.queried,
            unregistered,
            locks,
            entry_count,
            hash_checks: builder.hash_checks.in_order().collect(),
            watched_files,
            max_keys,
            entries,
        })
    }

    /// Every name that files give, with what is known of it, by name.
    pub fn locks(&self) -> &[LockInfo] {
        &self.locks
    }

    /// How many entries the files have, presets not counted.
    pub fn entry_count(&self) -> usize {
        self.entry_count
    }

    /// Keys that entries of equal rank name differently, as far as no server is needed to know.
    pub fn conflicts(&self) -> &[Conflict] {
        &self.conflicts
    }

    /// Keys that several values of one name hash to.
    pub fn collisions(&self) -> &[Collision] {
        &self.collisions
    }

    /// Whether a conflict that was found when its key was looked up is one that
    /// [`conflicts`](Self::conflicts) does not tell: a server had to be asked to know of it.
    pub fn is_news(&self, resolution: &Resolution) -> bool {
        let mut candidates = resolution.candidates.iter();
        resolution.is_conflict() && !candidates.all(|it| self.contested.contains(it))
    }

    /// Hashes of the server that keys were computed from, each once; of very many some.
    pub fn hash_checks(&self) -> &[HashCheck] {
        &self.hash_checks
    }

    /// Files of values, which belong to the registry as its own files do.
    pub fn watched_files(&self) -> &[PathBuf] {
        &self.watched_files
    }

    /// What the entries need from databases of a server.
    pub fn wanted(&self, server: &str) -> Vec<Wanted> {
        let mut wanted = Vec::new();
        for entry in &self.entries {
            if !entry.holds_on(server) {
                continue;
            }
            let lock = (!entry.is_preset).then(|| entry.name.clone());
            wanted.extend(entry.queries().map(|(_, query)| Wanted {
                lock: lock.clone(),
                database: Some(query.database.clone()),
                question: Question::Values { sql: query.sql.clone(), refresh: query.refresh },
            }));
            let tables: BTreeSet<Arc<str>> = entry
                .rules
                .iter()
                .flat_map(|rule| rule.tables())
                .map(Arc::from)
                .chain(entry.marker.tables.iter().cloned())
                .collect();
            if !tables.is_empty() {
                let tables: Vec<Arc<str>> = tables.into_iter().collect();
                let databases: Vec<Option<Arc<str>>> = match &entry.databases {
                    Some(databases) => databases.iter().cloned().map(Some).collect(),
                    None => vec![None],
                };
                wanted.extend(databases.into_iter().map(|database| Wanted {
                    lock: lock.clone(),
                    database,
                    question: Question::Tables(tables.clone()),
                }));
            }
        }
        wanted
    }
}

impl Entry {
    /// What is known of the name, whichever entry said it.
    fn adopt(&mut self, lock: &LockInfo) {
        let at = self.at;
        let said = |text: &Option<Arc<str>>| text.clone().map(|text| entry::Said { text, at });
        self.owner = said(&lock.owner);
        self.runbook = said(&lock.runbook);
        self.description = said(&lock.description);
    }
}

impl Layer {
    /// `only` is the database that the claim was computed for, if it holds in no other.
    fn insert(&mut self, claim: Claim, only: Option<&Arc<str>>) {
        if claim.entry.is_preset {
            self.presets.insert(claim);
            return;
        }
        match (&claim.entry.databases, only) {
            (None, _) => self.any.insert(claim),
            (Some(databases), Some(only)) => {
                if databases.contains(only) {
                    self.named.entry(only.clone()).or_default().insert(claim);
                }
            }
            (Some(databases), None) => {
                for database in databases {
                    self.named.entry(database.clone()).or_default().insert(claim.clone());
                }
            }
        }
    }

    fn finish(&mut self) {
        self.named.values_mut().for_each(Claims::finish);
        self.any.finish();
        self.presets.finish();
    }

    /// The claims of one standing.
    fn standing(&self, standing: Standing<'_>) -> Option<&Claims> {
        match standing {
            Standing::Named(database) => self.named.get(database),
            Standing::Any => Some(&self.any),
            Standing::Preset => Some(&self.presets),
        }
    }

    /// What the claims of each standing tell, presets left out.
    fn tell(&self, tell: impl Fn(&Claims) -> Vec<Conflict>) -> Vec<Conflict> {
        // What is contested in several databases by the same entries is one conflict.
        type Contest = (bool, Arc<str>, Vec<Candidate>);
        let mut found: BTreeMap<Contest, BTreeSet<Arc<str>>> = BTreeMap::new();
        let named = self.named.iter().map(|(database, claims)| (Some(database), claims));
        for (database, claims) in named.chain([(None, &self.any)]) {
            for conflict in tell(claims) {
                let contest = (database.is_some(), conflict.key, conflict.candidates);
                found.entry(contest).or_default().extend(database.cloned());
            }
        }
        found
            .into_iter()
            .map(|((_, key, candidates), databases)| Conflict {
                key,
                databases: databases.into_iter().collect(),
                candidates,
            })
            .collect()
    }
}

/// Who is asked first.
#[derive(Clone, Copy, Debug)]
enum Standing<'a> {
    /// Entries for the database.
    Named(&'a str),
    /// Entries for any database.
    Any,
    /// Presets.
    Preset,
}

impl Source {
    /// Text from bytes; `name` is what errors call it.
    pub fn from_bytes(name: &str, bytes: Vec<u8>) -> Result<Self, RegistryError> {
        if bytes.len() as u64 > MAX_FILE_BYTES {
            return Err(RegistryError::TooLarge { file: name.to_owned() });
        }
        let text = String::from_utf8(bytes).map_err(|error| RegistryError::NotUtf8 {
            file: name.to_owned(),
            line: line_of_fault(error.as_bytes(), error.utf8_error()),
        })?;
        Ok(Self { name: name.to_owned(), text })
    }
}

/// The first line that is no UTF-8, from 1.
fn line_of_fault(bytes: &[u8], error: std::str::Utf8Error) -> usize {
    1 + bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count()
}

fn fetch_source(path: &Path) -> Result<Source, RegistryError> {
    let bytes = fetch_bytes(path)
        .map_err(|source| RegistryError::Read { path: path.to_owned(), source })?;
    Source::from_bytes(&path.display().to_string(), bytes)
}

/// At most one byte more than a registry may have.
fn fetch_bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Values are read again whenever the registry is, and a pipe may then block for ever.
fn fetch_value_bytes(path: &Path) -> io::Result<Vec<u8>> {
    if std::fs::metadata(path)?.is_file() {
        fetch_bytes(path)
    } else {
        Err(io::Error::other("it is not a regular file"))
    }
}

/// Puts the values of files in the place of their paths.
fn read_values(
    file: &mut File,
    read: ReadFile<'_>,
    watched: &mut Vec<PathBuf>,
    faults: &mut Faults<'_>,
) {
    for entry in &mut file.entries {
        let folder = Path::new(&*entry.file).parent().unwrap_or(Path::new("")).to_owned();
        for (name, values) in &mut entry.values {
            let Values::File { path, at } = values else { continue };
            let path = folder.join(path);
            match parse_value_lines(read(&path), &path) {
                Ok(list) if list.is_empty() => faults.add(
                    *at,
                    format!("{} has no values for {name}: write one on each line", path.display()),
                ),
                Ok(list) => *values = Values::List(list),
                Err(message) => faults.add(*at, message),
            }
            if !watched.contains(&path) {
                watched.push(path);
            }
        }
    }
}

fn parse_value_lines(bytes: io::Result<Vec<u8>>, path: &Path) -> Result<Vec<Arc<str>>, String> {
    let path = path.display();
    let bytes = bytes.map_err(|error| format!("cannot read the values in {path}: {error}"))?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(format!("{path} is larger than {} MiB", MAX_FILE_BYTES >> 20));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = line_of_fault(error.as_bytes(), error.utf8_error());
        format!("{path} is not UTF-8 on line {line}: save it as UTF-8")
    })?;
    let mut seen = BTreeSet::new();
    let lines = text.trim_start_matches('\u{feff}').lines();
    Ok(lines.filter(|line| !line.is_empty() && seen.insert(*line)).map(Arc::from).collect())
}

/// One name may stand in many entries and files, but means one thing: what several of them say
/// about owner, runbook and description must agree. Who says nothing agrees. Where files say
/// nothing, the preset of that name speaks.
fn merge_names(files: &mut [(File, Faults<'_>)], presets: &[Entry]) -> Vec<LockInfo> {
    /// The text and where it was said first.
    type First = Option<(Arc<str>, String)>;
    let preset_of = |name: &Arc<str>| presets.iter().find(|entry| entry.name == *name);
    let mut names: BTreeMap<Arc<str>, [First; 3]> = BTreeMap::new();
    for (file, faults) in files {
        // An entry that a file made of a preset repeats what that says.
        let entries = file.entries.iter().map(|entry| {
            let of_preset = preset_of(&entry.name).map(Entry::about_name).unwrap_or_default();
            let is_own = |(said, of_preset): (Option<&'_ Said>, Option<&'_ Said>)| {
                said.map(|said| &said.text) != of_preset.map(|said| &said.text)
            };
            let mut said = entry.about_name();
            for (said, of_preset) in said.iter_mut().zip(of_preset) {
                *said = said.filter(|_| is_own((*said, of_preset)));
            }
            (&entry.name, said)
        });
        let overrides = file.overrides.iter().map(|it| (&it.name, it.about_name()));
        for (name, about_name) in entries.chain(overrides) {
            let firsts = names.entry(name.clone()).or_default();
            for ((first, field), said) in firsts.iter_mut().zip(ABOUT_NAMES).zip(about_name) {
                let Some(said) = said else { continue };
                let (text, place) = first.get_or_insert_with(|| {
                    (said.text.clone(), format!("{}:{}", faults.file(), said.at.line))
                });
                if *text != said.text {
                    faults.add(
                        said.at,
                        format!(
                            "the {field} of {name:?} is another one at {place}: \
                             entries of one name have one {field}, or leave it out"
                        ),
                    );
                }
            }
        }
    }
    names
        .into_iter()
        .map(|(name, firsts)| {
            let of_preset = preset_of(&name).map(Entry::about_name).unwrap_or_default();
            let [owner, runbook, description] = firsts.map(|first| first.map(|(text, _)| text));
            let or = |said: Option<Arc<str>>, of_preset: Option<&Said>| {
                said.or_else(|| of_preset.map(|said| said.text.clone()))
            };
            LockInfo {
                owner: or(owner, of_preset[0]),
                runbook: or(runbook, of_preset[1]),
                description: or(description, of_preset[2]),
                name,
            }
        })
        .collect()
}

fn unregistered<'a>(said: impl Iterator<Item = &'a Limits> + Clone) -> Resolution {
    let max_hold = said.clone().filter_map(|limits| limits.max_hold).min();
    let max_wait = said.filter_map(|limits| limits.max_wait).min();
    Resolution {
        lock: None,
        pattern: None,
        parameters: Vec::new(),
        max_hold: max_hold.unwrap_or(UNREGISTERED_MAX_HOLD),
        max_wait: max_wait.unwrap_or(UNREGISTERED_MAX_WAIT),
        max_idle_in_transaction: None,
        last_held_within: None,
        not_again_within: None,
        must_be_held: false,
        vacant_for: None,
        holders: None,
        role: None,
        scope: None,
        mode: None,
        exact: false,
        candidates: Vec::new(),
        is_open: false,
        owner: None,
        runbook: None,
        description: None,
    }
}

impl Resolution {
    /// The `lock` label: the name, or [`UNREGISTERED`].
    pub fn label(&self) -> &str {
        self.lock.as_deref().unwrap_or(UNREGISTERED)
    }

    /// For people: the name with its parameters, as in `tenant-reindex (tenant 99)`.
    pub fn display_name(&self) -> Cow<'_, str> {
        display_name(self.label(), &self.parameters)
    }

    /// Several entries name the key differently.
    pub fn is_conflict(&self) -> bool {
        self.lock.is_some() && !self.candidates.is_empty()
    }
}

fn display_name<'a>(name: &'a str, parameters: &[(Arc<str>, String)]) -> Cow<'a, str> {
    if parameters.is_empty() {
        return name.into();
    }
    let parameters: Vec<String> =
        parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    format!("{name} ({})", parameters.join(", ")).into()
}

impl Candidate {
    /// For people: the name with its values.
    pub fn display_name(&self) -> Cow<'_, str> {
        display_name(&self.name, &self.parameters)
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

/// `locks.yaml:3`, `preset prisma`.
impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { file, line, .. } => write!(f, "{file}:{line}"),
            Self::Preset(name) => write!(f, "preset {name}"),
        }
    }
}

/// Why it is a candidate: `hashtext("jobs") at locks.yaml:3`.
impl fmt::Display for Candidate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            Origin::File { .. } => write!(f, "{} at {}", self.written, self.origin)?,
            Origin::Preset(_) => write!(f, "{} in {}", self.written, self.origin)?,
        }
        match self.doubt {
            Some(doubt) => write!(f, "; {doubt}"),
            None => Ok(()),
        }
    }
}

/// For people, to follow the name that is in doubt.
impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMarker => "a small number that anybody may use: a sign of the tool is needed",
            Self::Crowded => "keys around it were seen that look like counted ids",
            Self::SharedClass => "another extension uses this class too",
            Self::Chance => "other keys may look like this by chance",
        })
    }
}

/// One line for the log and for `registry check`.
impl fmt::Display for Collision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt_as("is that of several values, which keep each other out", f)
    }
}

/// One line for the log and for `registry check`.
impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_as("has more than one name", f)
    }
}

impl Conflict {
    fn fmt_as(&self, what: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "key {} ", self.key)?;
        if !self.databases.is_empty() {
            write!(f, "in {} ", self.databases.join(", "))?;
        }
        write!(f, "{what}: ")?;
        for (index, candidate) in self.candidates.iter().take(LISTED).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{:?} ({candidate})", candidate.display_name())?;
        }
        match self.candidates.len().saturating_sub(LISTED) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::testing::*;
    use super::*;
    use crate::key::Key;

    #[test]
    fn an_empty_registry_has_the_built_in_limits_and_no_names() {
        let resolution = resolve(&Registry::empty(), "db-1", APP, Key::bigint(424_242));
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
        let app2 = Some(("app2", "UTF8"));
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
        let app2 = Some(("app2", "UTF8"));
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
        let label = |server, key| resolve(&registry, server, APP, key).label().to_owned();
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
        let resolution = resolve(&registry, "db-1", APP, Key::bigint(1));
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
            "presets: none\n\
             locks:\n\
             - { name: tenant-reindex, key: { pair: [7, \"*\"] }, parameter: tenant }\n\
             - { name: by object, key: { pair: [\"*\", -9] } }\n",
        );
        let resolution = resolve(&registry, "db-1", APP, Key::pair(7, 99));
        assert_eq!(resolution.label(), "tenant-reindex");
        assert_eq!(resolution.pattern.as_deref(), Some("(7,*)"));
        assert_eq!(resolution.parameters, [("tenant".into(), "99".to_owned())]);
        assert_eq!(resolution.display_name(), "tenant-reindex (tenant 99)");
        assert!(!resolution.exact);
        let resolution = resolve(&registry, "db-1", APP, Key::pair(8, -9));
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
        let resolution = resolve(&registry, "db-1", APP, Key::pair(7, 9));
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
        let resolution = resolve(&registry, "db-1", APP, Key::pair(7, 9));
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
        let latin1 = Some(("app", "LATIN1"));
        let tea = Key::bigint(hash::hashtext(b"tea").into());
        assert_eq!(label(&registry, APP, Key::bigint(103_771_354)), "coffee");
        assert_eq!(label(&registry, latin1, Key::bigint(103_771_354)), "number");
        assert_eq!(label(&registry, latin1, tea), "tea");
        let armed = |databases| resolver(&registry, "db-1", databases).armed().len();
        assert_eq!(armed(&[("app", "UTF8")]), 2);
        assert_eq!(armed(&[("app", "SQL_ASCII")]), 1);
        // café in LATIN1 is another key.
        assert_eq!(armed(&[("app", "LATIN1")]), 2);
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
        let armed = resolver(&registry, "db-1", &[]).armed();
        let series: Vec<_> = armed
            .iter()
            .map(|Armed { datname, key, resolution }| {
                (&**datname, &**key, resolution.label(), resolution.pattern.as_deref())
            })
            .collect();
        assert_eq!(
            series,
            [
                ("app", "(7,*)", "tenant", Some("(7,*)")),
                ("app", "42", "job", None),
                ("app2", "42", "job", None),
            ]
        );
        assert!(armed[0].resolution.parameters.is_empty());
        assert_eq!(armed[1].resolution, resolve(&registry, "db-1", APP, Key::bigint(42)));
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
            let resolution = resolve(&forward, "db-1", APP, key);
            assert_eq!(resolution, resolve(&backward, "db-1", APP, key));
        }
        assert_eq!(forward.conflicts(), backward.conflicts());
        assert_eq!(forward.locks(), backward.locks());
        assert_eq!(forward.entry_count(), 3);

        let resolution = resolve(&forward, "db-1", APP, Key::bigint(1));
        assert_eq!((resolution.label(), resolution.max_hold), ("a | b", minutes(2)));
        // Defaults of one file do not reach another, and the smallest limit for strangers wins.
        assert_eq!(resolve(&forward, "db-1", APP, Key::bigint(2)).max_hold, minutes(15));
        let stranger = resolve(&forward, "db-1", APP, Key::bigint(3));
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
    fn a_conflict_of_very_many_names_is_one_line_that_can_be_read() {
        let entries = (0..30).map(|n| format!("- {{ name: n{n:02}, key: 1 }}\n"));
        let text = format!("presets: none\nlocks:\n{}", entries.collect::<String>());
        let conflict = registry(&text).conflicts()[0].to_string();
        assert!(conflict.ends_with("\"n09\" (1 at locks.yaml:12) and 20 more"), "{conflict}");
    }

    #[test]
    fn each_hash_is_checked_once() {
        let registry = registry(
            "presets: none\n\
             locks:\n\
             - { name: a, keys: [{ hashtext: jobs }, { pair: [{ hashtext: jobs }, 1] }] }\n\
             - { name: b, key: { hashtextextended: jobs } }\n\
             - { name: c, key: { hashtextextended: jobs, seed: -1 } }\n\
             - { name: d, key: 42 }\n",
        );
        let checks: Vec<_> = registry
            .hash_checks()
            .iter()
            .map(|check| {
                (check.call.function.as_str(), &*check.call.text, check.call.seed, check.value)
            })
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
    fn of_very_many_hashes_some_are_checked_and_those_of_presets_all() {
        let values: Vec<String> =
            (0..builder::MAX_HASH_CHECKS + 50).map(|n| n.to_string()).collect();
        let registry = registry(&format!(
            "locks: [{{ name: a, key: {{ hashtext: \"{{x}}\" }}, values: {{ x: [{}] }} }}]",
            values.join(",")
        ));
        let presets = Registry::empty().hash_checks().to_vec();
        assert!(!presets.is_empty());
        for checks in [registry.hash_checks(), resolver(&registry, "db-1", &[]).hash_checks()] {
            assert_eq!(checks.len(), builder::MAX_HASH_CHECKS + presets.len());
            assert!(presets.iter().all(|check| checks.contains(check)));
        }
    }

    #[test]
    fn an_entry_without_a_key_that_is_no_preset_is_refused_with_the_mend() {
        let refusal = |text: &str| Registry::parse(&[source("f", text)]).unwrap_err().to_string();
        let text = refusal("locks:\n- name: a\n");
        assert!(
            text.starts_with(
                "f:2:3: this entry has no key, and no preset in use is called \"a\": add key: and \
                 the number or hash that is locked"
            ),
            "{text}"
        );
        let text = refusal("locks: [{ name: prisma-migrations, max_hold: 5m }]");
        assert!(text.contains("is locked, or write prisma-migrate"), "{text}");
        for presets in ["none", "{ rails: {} }"] {
            let text = refusal(&format!(
                "presets: {presets}\nlocks:\n- {{ name: prisma-migrate, max_hold: 5m }}\n"
            ));
            assert!(
                text.contains("the preset of that name is not in use: add prisma: {} to presets"),
                "{text}"
            );
        }
        let text = refusal("locks: [{ name: golang-migration, max_hold: 5m }]");
        assert!(text.contains("or write golang-migrate"), "{text}");
        let text = refusal("locks: [{ name: airflow, max_hold: 5m }]");
        assert!(
            text.contains(
                "airflow is a preset, not a name that it gives: write airflow-migrations or \
                 airflow-scheduler"
            ),
            "{text}"
        );
    }

    #[test]
    fn a_preset_that_does_not_exist_is_refused_with_the_likeliest_one() {
        let refusal = |text: &str| Registry::parse(&[source("f", text)]).unwrap_err().to_string();
        let text = refusal("presets: { pgboss: {} }");
        assert!(text.contains("there is no preset \"pgboss\": did you mean pg-boss?"), "{text}");
        let text = refusal("presets: { quartz: {} }");
        assert!(text.contains("\"quartz\": the known ones are airflow, alembic, "), "{text}");
    }

    #[test]
    fn a_placeholder_without_values_is_one_fault() {
        let errors = [
            "{ name: a, key: { md5: 'x{c}' } }",
            "{ name: a, key: { md5: 'x{c}' }, values: { c: { file: /nowhere/values } } }",
        ]
        .map(|entry| Registry::parse(&[source("f", &format!("locks: [{entry}]"))]).unwrap_err());
        for error in errors {
            let RegistryError::Refused(faults) = error else { panic!("{error}") };
            assert_eq!(faults.len(), 1, "{faults:?}");
        }
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
                "f:2:3: with this entry, keys times values times databases exceed 1000000: leave"
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
        let refusal =
            || Registry::load(std::slice::from_ref(&path), MAX_KEYS).unwrap_err().to_string();
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
        let registry = Registry::load(std::slice::from_ref(&path), MAX_KEYS).unwrap();
        assert_eq!(label(&registry, APP, Key::bigint(1)), "a");
    }

    #[test]
    fn values_come_from_a_file_beside_the_registrys_one_on_each_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("locks.yaml");
        std::fs::write(
            &path,
            "presets: none\n\
             locks: [{ name: a, key: { integer: '{n}' }, values: { n: { file: ids.txt } } }]",
        )
        .unwrap();
        let load = || Registry::load(std::slice::from_ref(&path), 3);
        let values = folder.path().join("ids.txt");
        let refusal = || load().unwrap_err().to_string().lines().next().unwrap().to_owned();
        let place = format!("{}:2:66: ", path.display());
        assert!(
            refusal()
                .starts_with(&format!("{place}cannot read the values in {}: ", values.display())),
            "{}",
            refusal()
        );
        let written = |bytes: &[u8]| std::fs::write(&values, bytes).unwrap();
        written(b"\n\n");
        let fault =
            format!("{place}{} has no values for n: write one on each line", values.display());
        assert_eq!(refusal(), fault);
        written(b"1\n\xff\n");
        assert!(refusal().ends_with("ids.txt is not UTF-8 on line 2: save it as UTF-8"));
        written(b"1\nx\n");
        assert!(refusal().contains("\"x\" is not an integer of base 10"), "{}", refusal());
        assert!(refusal().ends_with("(with n \"x\")"), "{}", refusal());
        written(b"1\n2\n3\n4\n");
        assert!(refusal().contains("keys times values times databases exceed 3"), "{}", refusal());
        std::fs::remove_file(&values).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&values).unwrap();
        assert!(refusal().ends_with(": it is not a regular file"), "{}", refusal());
        drop(listener);
        std::fs::remove_file(&values).unwrap();
        written("\u{feff}1\r\n\r\n3\n1\n".as_bytes());
        let registry = load().unwrap();
        assert_eq!(registry.watched_files(), std::slice::from_ref(&values));
        let labels = [1, 2, 3].map(|n| label(&registry, APP, Key::bigint(n)));
        assert_eq!(labels, ["a", "unregistered", "a"]);
    }

    #[test]
    fn servers_are_asked_only_for_what_their_entries_need() {
        let registry = registry(
            "presets: { authentik: {} }\n\
             locks:\n\
             - { name: a, key: { integer: '{n}' }, servers: ['a*'], values: { n: { query: table q, database: app } } }\n\
             - { name: b, key: { pair: [7, { oid: public.b }] }, databases: [app, app2] }\n\
             - { name: c, key: 5 }\n",
        );
        let wanted = |server| -> Vec<(Option<String>, Option<String>, bool)> {
            let text = |name: &Option<Arc<str>>| name.as_ref().map(ToString::to_string);
            let of = |it: &Wanted| {
                let is_query = matches!(it.question, Question::Values { .. });
                (text(&it.lock), text(&it.database), is_query)
            };
            registry.wanted(server).iter().map(of).collect()
        };
        let some = |text: &str| Some(text.to_owned());
        let everywhere = [
            (some("b"), some("app"), false),
            (some("b"), some("app2"), false),
            (None, None, false),
        ];
        assert_eq!(wanted("b-1"), everywhere);
        let with_query = [&[(some("a"), some("app"), true)], &everywhere[..]].concat();
        assert_eq!(wanted("a-1"), with_query);
    }

    #[test]
    fn files_that_choose_the_same_presets_agree_in_whatever_order() {
        let choose = |first: &str, second: &str| {
            let text = |presets: &str| format!("presets: {{ {presets} }}");
            Registry::parse(&[source("a", &text(first)), source("b", &text(second))])
        };
        assert!(choose("rails: {}, sqlx: {}", "sqlx: {}, rails: {}").is_ok());
        let error = choose("rails: {}", "sqlx: {}").unwrap_err().to_string();
        assert!(error.starts_with("b:1:10: presets are chosen otherwise at a:1"), "{error}");
    }

    /// Files that would cost a careless parser its stack, its memory or its time, and what becomes
    /// of each.
    #[test]
    fn files_made_to_break_a_parser_are_read_or_refused_as_their_names_say() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/registry");
        let mut count = 0;
        for file in std::fs::read_dir(folder).unwrap() {
            let path = file.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            let bytes = std::fs::read(&path).unwrap();
            let outcome = Source::from_bytes(&name, bytes)
                .and_then(|source| Registry::load_sources(&[source], 10_000));
            assert_eq!(outcome.is_ok(), name.starts_with("read-"), "{name}: {outcome:?}");
            if let Err(error) = outcome {
                assert!(name.starts_with("refused-"), "{name}");
                let text = error.to_string();
                assert!(text.contains(&*name), "{name}: {text}");
                assert!(text.len() < 20_000, "{name}: {} bytes of error", text.len());
            }
            count += 1;
        }
        assert!(count > 20, "{count} files");
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
