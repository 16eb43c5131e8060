//! The JSON snapshot (`schema` 1) as values: what `/api/v1/locks` answers, written and read.
//!
//! Times are RFC 3339 in UTC on the server's clock, durations are seconds, and what is unknown is
//! null. `draw` makes the values from views. Commands that look at locks from outside (`check`,
//! `registry suggest`) know nothing else, whether a snapshot came over HTTP or was drawn by this
//! process, so both ways show the same. What the JSON has beside the fields here is ignored: a newer
//! exporter of the same schema may say more. A field that is left out for strangers reads like one
//! that is unknown.

mod draw;
mod target;

mod event;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::event::{Event, Party as EventParty, parse_events};
use crate::blocking::BlockerKind;
use crate::finding::Severity;
use crate::key::Key;
use crate::mode::Mode;
use crate::order::Grade;
use crate::registry::Limit;
use crate::sample::Pid;
use crate::timestamp::Timestamp;
use crate::tracker::Scope;

/// The form of the JSON that is written and read.
pub const SCHEMA: u64 = 1;

/// Every server that is watched.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Snapshot {
    /// In the order of the configuration.
    pub servers: Vec<Server>,
}

/// One server.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Server {
    /// The `server` label.
    pub server: Arc<str>,
    /// Whether the last poll was answered.
    pub up: bool,
    /// Why not.
    #[serde(default)]
    pub error: Option<String>,
    /// Its version, as it writes it.
    #[serde(default)]
    pub version: Option<Arc<str>>,
    /// `primary` or `standby`.
    #[serde(default)]
    pub role: Option<Arc<str>>,
    /// Tells clusters apart, whatever address they answer at.
    #[serde(default)]
    pub system_identifier: Option<Arc<str>>,
    /// When it was started, on its own clock. Tells a cluster from its standbys and copies.
    #[serde(default)]
    pub started_at: Option<Timestamp>,
    /// When it was polled, on its own clock.
    #[serde(default)]
    pub polled_at: Option<Timestamp>,
    /// Its clock minus the clock of whoever polled it.
    #[serde(default)]
    pub clock_offset_seconds: Option<f64>,
    /// How often it is polled, and what a poll takes.
    #[serde(default)]
    pub poll: Poll,
    /// How well it could be seen.
    #[serde(default)]
    pub looked_at: Option<LookedAt>,
    /// How full its lock table is.
    #[serde(default)]
    pub lock_table: LockTable,
    /// When it begins to ask a silent client whether it is still there: 0 for never.
    #[serde(default)]
    pub tcp_keepalives_idle_seconds: Option<u64>,
    /// Whoever looks is behind a pooler.
    #[serde(default)]
    pub pooled_connection: Option<bool>,
    /// Keys of the registry that have several names there.
    #[serde(default)]
    pub registry_conflicts: usize,
    /// The first sample of whoever looks, on the server's clock.
    #[serde(default)]
    pub watching_since: Option<Timestamp>,
    /// The findings that could not be judged; `None` also from an exporter that does not tell.
    #[serde(default)]
    pub not_judged: Option<Vec<Gap>>,
    /// Pairs of keys that were seen taken in both orders, the newest first, some of them.
    #[serde(default)]
    pub lock_orders: Option<Vec<LockOrder>>,
    /// How many there are.
    #[serde(default)]
    pub lock_orders_count: Option<usize>,
    /// Where chains end that a key is part of, who keeps most others waiting first; `None` after a
    /// failed poll, and from an exporter that does not tell.
    #[serde(default)]
    pub roots: Option<Vec<ChainRoot>>,
    /// Who waits for a lock of another type and is in a chain that a key is part of.
    #[serde(default)]
    pub other_waits: Option<Vec<OtherWait>>,
    /// Every key held or awaited, and every other of which something is to be said; `None` after a
    /// failed poll.
    #[serde(default)]
    pub locks: Option<Vec<Lock>>,
}

impl AsRef<Self> for Server {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// What only some readers are told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Detail<T> {
    /// Not told to this reader: the field is left out.
    #[default]
    Hidden,
    /// Told; `None` where it is unknown.
    Told(Option<T>),
}

impl<T> Detail<T> {
    /// What was told and is known.
    pub const fn known(&self) -> Option<&T> {
        match self {
            Self::Told(known) => known.as_ref(),
            Self::Hidden => None,
        }
    }

    /// Whether nothing was told.
    pub const fn is_hidden(&self) -> bool {
        matches!(self, Self::Hidden)
    }
}

impl<T: Serialize> Serialize for Detail<T> {
    /// A hidden one is no field at all; its structs skip it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.known().serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Detail<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::deserialize(deserializer).map(Self::Told)
    }
}

/// How a server is polled.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Poll {
    /// Between the starts of two polls.
    #[serde(default)]
    pub interval_seconds: Option<f64>,
    /// What the last one took.
    #[serde(default)]
    pub duration_seconds: Option<f64>,
}

/// How well a server could be seen.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LookedAt {
    /// Databases whose names are known.
    #[serde(default)]
    pub databases: usize,
    /// Advisory rows of `pg_locks`.
    #[serde(default)]
    pub rows: usize,
    /// Whether other sessions' state can be seen; in words in the JSON.
    #[serde(
        deserialize_with = "decode_privileges",
        serialize_with = "encode_privileges",
        rename = "privileges"
    )]
    pub privileges_sufficient: Option<bool>,
}

/// Entries of the lock table.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct LockTable {
    /// Taken, when they were last counted.
    #[serde(default)]
    pub entries: Option<u64>,
    /// Promised.
    #[serde(default)]
    pub capacity: Option<u64>,
}

impl LockTable {
    /// Of its capacity, the table may be filled so far, in percent.
    pub const FULL_PERCENT: u64 = 70;

    /// Entries of a table of this capacity above which it is too full.
    pub const fn full_at(capacity: u64) -> u64 {
        capacity.saturating_mul(Self::FULL_PERCENT) / 100
    }
}

/// A rule that could not be judged.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Gap {
    /// Which.
    pub finding: Arc<str>,
    /// It was judged by all that is there now.
    pub in_part: bool,
    /// Why not.
    pub reason: String,
}

/// Two keys that were seen taken in both orders.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct LockOrder {
    /// The name of their database.
    pub datname: Arc<str>,
    /// Else it only may be an inversion.
    pub is_finding: bool,
    /// In a sentence.
    pub text: String,
    /// Both, in the order in which the sentence names them.
    #[serde(default)]
    pub keys: Vec<OrderedKey>,
    /// Both orders in which they were taken.
    #[serde(default)]
    pub orders: Vec<OrderEdge>,
}

/// One of two keys that were taken in both orders.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OrderedKey {
    /// The key.
    #[serde(deserialize_with = "decode_key")]
    pub key: Key,
    /// Its name; `None` for an unregistered key.
    #[serde(default)]
    pub lock: Option<Arc<str>>,
    /// The same with its parameters.
    #[serde(default, skip_serializing_if = "Detail::is_hidden")]
    pub display_name: Detail<Arc<str>>,
}

/// One key taken while another was held.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OrderEdge {
    /// The one held.
    #[serde(deserialize_with = "decode_key")]
    pub held: Key,
    /// In these modes.
    #[serde(default)]
    pub held_modes: Vec<Mode>,
    /// The one taken then.
    #[serde(deserialize_with = "decode_key")]
    pub taken: Key,
    /// In these modes.
    #[serde(default)]
    pub taken_modes: Vec<Mode>,
    /// How sure that is.
    pub grade: Grade,
    /// How often it was seen.
    #[serde(default)]
    pub times: u64,
    /// On the server's clock.
    pub first_seen: Timestamp,
    /// The same of the last time.
    pub last_seen: Timestamp,
    /// Who did so last; `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// Its backend.
    #[serde(flatten)]
    pub session: Session,
}

/// Something about a key that somebody should look at.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Finding {
    /// Which rule.
    pub finding: Arc<str>,
    /// How urgent.
    #[serde(deserialize_with = "decode_severity", serialize_with = "encode_severity")]
    pub severity: Severity,
    /// What was seen, in a sentence.
    pub text: String,
    /// What may be done.
    pub remedy: String,
    /// Backends that it is about, the worst first, some of them.
    #[serde(default)]
    pub pids: Vec<Pid>,
    /// How many sessions it is about.
    #[serde(default)]
    pub sessions_count: usize,
}

/// One key with everybody on it.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Lock {
    /// The name of its database, or what stands for one that has none.
    pub datname: Arc<str>,
    /// The key.
    #[serde(deserialize_with = "decode_key")]
    pub key: Key,
    /// Its name; `None` for an unregistered key.
    #[serde(default)]
    pub lock: Option<Arc<str>>,
    /// The same with its parameters.
    #[serde(default, skip_serializing_if = "Detail::is_hidden")]
    pub display_name: Detail<Arc<str>>,
    /// The parameters of its name, in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<serde_json::Map<String, serde_json::Value>>,
    /// Names that it may have.
    #[serde(default)]
    pub candidates: Vec<Candidate>,
    /// Whose lock it is, from the registry.
    #[serde(default)]
    pub owner: Option<Arc<str>>,
    /// Where to read what to do, from the registry.
    #[serde(default)]
    pub runbook: Option<Arc<str>>,
    /// What it is for, from the registry.
    #[serde(default)]
    pub description: Option<Arc<str>>,
    /// How long it may be held and awaited.
    #[serde(default)]
    pub limits: Limits,
    /// Who holds it.
    #[serde(default)]
    pub holders: Vec<Holder>,
    /// Who waits for it, the longest first.
    #[serde(default)]
    pub waiters: Vec<Waiter>,
    /// What is to be said of it.
    #[serde(default)]
    pub findings: Vec<Finding>,
}

/// A name that a key may have.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Candidate {
    /// The name.
    pub lock: Arc<str>,
    /// The same with its parameters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<Arc<str>>,
    /// What speaks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// How long a key may be held and awaited.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize)]
pub struct Limits {
    /// By one holder.
    #[serde(default, deserialize_with = "decode_limit", serialize_with = "encode_limit")]
    pub max_hold_seconds: Option<Limit>,
    /// By one waiter.
    #[serde(default, deserialize_with = "decode_limit", serialize_with = "encode_limit")]
    pub max_wait_seconds: Option<Limit>,
}

/// A backend, as far as it can be seen.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Session {
    /// When its backend began, on the server's clock.
    #[serde(default)]
    pub backend_start: Option<Timestamp>,
    /// As it is now.
    #[serde(default)]
    pub application_name: Option<Arc<str>>,
    /// Its role.
    #[serde(default, skip_serializing_if = "Detail::is_hidden")]
    pub usename: Detail<Arc<str>>,
    /// Where its client connects from.
    #[serde(default, skip_serializing_if = "Detail::is_hidden")]
    pub client_addr: Detail<IpAddr>,
    /// Its port there; -1 for a Unix socket.
    #[serde(default, skip_serializing_if = "Detail::is_hidden")]
    pub client_port: Detail<i32>,
    /// `state`; `None` where it is hidden.
    #[serde(default)]
    pub state: Option<Arc<str>>,
    /// `state_change`
    #[serde(default)]
    pub state_since: Option<Timestamp>,
    /// `wait_event_type/wait_event`
    #[serde(default)]
    pub wait_event: Option<Arc<str>>,
}

/// Who holds a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Holder {
    /// `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// Its backend.
    #[serde(flatten)]
    pub session: Session,
    /// As it was when the hold was first seen.
    #[serde(default)]
    pub first_application_name: Option<Arc<str>>,
    /// A poll before that did not show it; else that name may be of a later user of the connection.
    #[serde(default)]
    pub seen_to_begin: bool,
    /// The strongest of its modes.
    #[serde(default = "unknown_mode")]
    pub mode: Mode,
    /// All of them, the strongest first.
    #[serde(default)]
    pub modes: Vec<Mode>,
    /// Proved scope.
    #[serde(deserialize_with = "decode_scope", default = "unknown_scope")]
    pub scope: Scope,
    /// What proves it, or what may be, in words.
    #[serde(default)]
    pub scope_evidence: Option<Arc<str>>,
    /// Seen or proved held since, on the server's clock.
    #[serde(default)]
    pub since: Option<Timestamp>,
    /// The time since then.
    #[serde(default)]
    pub seen_for_seconds: f64,
    /// Proved without a gap.
    #[serde(default)]
    pub held_at_least_seconds: Option<f64>,
    /// Not held for longer.
    #[serde(default)]
    pub held_at_most_seconds: Option<f64>,
    /// Transactions in which it was seen.
    #[serde(default)]
    pub transactions_seen: u32,
    /// Since when this hold has kept others waiting.
    #[serde(default)]
    pub contended_since: Option<Timestamp>,
    /// A transaction id is assigned.
    #[serde(default)]
    pub has_written: Option<bool>,
    /// What else its session holds.
    #[serde(default)]
    pub other_locks: OtherLocks,
    /// The transaction, where it is a prepared one.
    #[serde(default)]
    pub prepared: Option<Prepared>,
    /// Sessions behind it, by locks of any type.
    #[serde(default)]
    pub blocks: usize,
    /// The types of the locks for which somebody waits for it directly.
    #[serde(default)]
    pub blocks_through: Vec<Arc<str>>,
    /// Who is let in at once when it lets go of this key, some of them; `None` where that is not
    /// known.
    #[serde(default)]
    pub frees_next: Option<Vec<Option<Pid>>>,
    /// How many these are.
    #[serde(default)]
    pub frees_next_count: Option<usize>,
}

/// What else a session holds.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct OtherLocks {
    /// Of all types together.
    #[serde(default)]
    pub count: usize,
    /// By `pg_locks.locktype`.
    #[serde(default)]
    pub by_type: BTreeMap<Arc<str>, usize>,
}

/// A prepared transaction.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub struct Prepared {
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Arc<str>>,
    /// Its owner's name.
    #[serde(default, skip_serializing_if = "Detail::is_hidden")]
    pub owner: Detail<Arc<str>>,
    /// When it was prepared.
    #[serde(default)]
    pub prepared_at: Option<Timestamp>,
}

/// Who waits for a key.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Waiter {
    /// The process id of its backend.
    pub pid: Option<Pid>,
    /// Its backend.
    #[serde(flatten)]
    pub session: Session,
    /// The mode it asks for.
    #[serde(default = "unknown_mode")]
    pub mode: Mode,
    /// On the server's clock, where it tells.
    #[serde(default)]
    pub waiting_since: Option<Timestamp>,
    /// The time since then.
    #[serde(default)]
    pub waited_seconds: Option<f64>,
    /// The time since the first poll from which on every one saw it wait, in one statement or since
    /// one moment: it waits for as long at least.
    #[serde(default)]
    pub seen_for_seconds: f64,
    /// Age of its snapshot, in transactions.
    #[serde(default)]
    pub xmin_age: Option<u32>,
    /// Whom it waits for directly, holders first, some of them.
    #[serde(default)]
    pub blocked_by: Vec<Blocker>,
    /// How many these are.
    #[serde(default)]
    pub blocked_by_count: usize,
    /// Where its chain ends, some of them.
    #[serde(default)]
    pub roots: Vec<Root>,
    /// How many these are.
    #[serde(default)]
    pub roots_count: usize,
}

impl Waiter {
    /// For how long it waits, as far as that is known.
    pub fn waited(&self) -> Option<Waited> {
        // Seen once, without a beginning, it may have begun at any time.
        let seen = (self.seen_for_seconds > 0.0)
            .then_some(Waited { seconds: self.seen_for_seconds, is_bound: true });
        Waited::exact(self.waited_seconds).or(seen)
    }
}

impl OtherWait {
    /// For how long it waits, where the server tells.
    pub fn waited(&self) -> Option<Waited> {
        Waited::exact(self.waited_seconds)
    }
}

/// The length of a wait.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Waited {
    /// So long.
    pub seconds: f64,
    /// Or longer.
    pub is_bound: bool,
}

impl Waited {
    fn exact(seconds: Option<f64>) -> Option<Self> {
        seconds.map(|seconds| Self { seconds, is_bound: false })
    }

    /// The longest that is known of these.
    pub fn longest(waiters: &[Waiter]) -> Option<Self> {
        let known = waiters.iter().filter_map(Waiter::waited);
        known.max_by(|a, b| a.seconds.total_cmp(&b.seconds))
    }
}

/// Who waits for a lock of another type than advisory.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct OtherWait {
    /// The process id of its backend.
    pub pid: Option<Pid>,
    /// Its backend.
    #[serde(flatten)]
    pub session: Session,
    /// `pg_locks.locktype`
    pub locktype: Arc<str>,
    /// The lock in words, as in `relation 16402 in app`.
    pub target: Arc<str>,
    /// The mode it asks for.
    #[serde(default = "unknown_mode")]
    pub mode: Mode,
    /// On the server's clock, where it tells.
    #[serde(default)]
    pub waiting_since: Option<Timestamp>,
    /// The time since then.
    #[serde(default)]
    pub waited_seconds: Option<f64>,
    /// Whom it waits for directly, holders first, some of them.
    #[serde(default)]
    pub blocked_by: Vec<Blocker>,
    /// How many these are.
    #[serde(default)]
    pub blocked_by_count: usize,
}

/// Somebody whom a waiter waits for directly.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Blocker {
    /// `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// Of a prepared transaction, where this reader is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Arc<str>>,
    /// Holds it, or is ahead in the queue.
    pub kind: BlockerKind,
    /// Whether it is sure.
    #[serde(default)]
    pub certain: bool,
}

/// Somebody at whom the chain of a waiter ends.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Root {
    /// `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// Of a prepared transaction, where this reader is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gid: Option<Arc<str>>,
    /// As it is now.
    #[serde(default)]
    pub application_name: Option<Arc<str>>,
    /// `state`; `None` where it is hidden.
    #[serde(default)]
    pub state: Option<Arc<str>>,
    /// It holds the key waited for.
    #[serde(default)]
    pub holds_key: bool,
    /// It waits in a circle.
    #[serde(default)]
    pub in_cycle: bool,
    /// Sessions behind it.
    #[serde(default)]
    pub blocks: usize,
}

/// Somebody at whom chains of the server end.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct ChainRoot {
    /// `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// Its backend.
    #[serde(flatten)]
    pub session: Session,
    /// The transaction, where it is a prepared one.
    #[serde(default)]
    pub prepared: Option<Prepared>,
    /// It waits in a circle.
    #[serde(default)]
    pub in_cycle: bool,
    /// Sessions behind it.
    #[serde(default)]
    pub blocks: usize,
}

/// Why bytes are no snapshot.
#[derive(Debug, thiserror::Error)]
pub enum ParseSnapshotError {
    /// Something else altogether.
    #[error("no snapshot of locks: is there another program at this address?")]
    Foreign,
    /// Another form.
    #[error(
        "a snapshot of schema {0}, and this program reads schema {SCHEMA}: use the same version \
         of locks on both sides"
    )]
    Schema(u64),
    /// It says to be a snapshot, and is none.
    #[error("a snapshot of schema {SCHEMA} with a fault in it")]
    Broken(#[source] serde_json::Error),
}

/// Writes a snapshot as one JSON object.
pub fn render_snapshot(snapshot: &Snapshot) -> Vec<u8> {
    render_servers(&snapshot.servers)
}

/// Writes servers as one JSON object.
pub fn render_servers<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Vec<u8> {
    #[derive(Serialize)]
    struct Answer<'a> {
        schema: u64,
        servers: Vec<&'a Server>,
    }
    render_json(&Answer { schema: SCHEMA, servers: servers.into_iter().collect() })
}

/// One line of JSON. What answers are made of is strings and numbers in plain structs: there is
/// nothing in it that could fail to serialize.
pub(crate) fn render_json(answer: &impl Serialize) -> Vec<u8> {
    let mut json = serde_json::to_vec(answer).unwrap_or_default();
    json.push(b'\n');
    json
}

/// Reads a snapshot from its JSON.
pub fn parse_snapshot(json: &[u8]) -> Result<Snapshot, ParseSnapshotError> {
    parse_schema(json)?;
    serde_json::from_slice(json).map_err(ParseSnapshotError::Broken)
}

/// Whether it is the JSON of an exporter, of a schema that is known.
fn parse_schema(json: &[u8]) -> Result<(), ParseSnapshotError> {
    #[derive(Deserialize)]
    struct Head {
        schema: u64,
    }
    // First of all: in another schema everything else may be of another form.
    let Head { schema } = serde_json::from_slice(json).map_err(|_| ParseSnapshotError::Foreign)?;
    if schema != SCHEMA {
        return Err(ParseSnapshotError::Schema(schema));
    }
    Ok(())
}

fn decode_key<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Key, D::Error> {
    #[derive(Deserialize)]
    struct Columns {
        classid: u32,
        objid: u32,
        objsubid: u16,
    }
    let Columns { classid, objid, objsubid } = Columns::deserialize(deserializer)?;
    Ok(Key::from_columns(classid, objid, objsubid))
}

fn decode_scope<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Scope, D::Error> {
    Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("session") => Scope::Session,
        Some("transaction") => Scope::Transaction,
        Some(_) | None => Scope::Unknown,
    })
}

/// A word that this version does not know is not taken lightly.
fn decode_severity<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Severity, D::Error> {
    Ok(match &*String::deserialize(deserializer)? {
        "warning" => Severity::Warning,
        _ => Severity::Critical,
    })
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
fn encode_severity<S: Serializer>(severity: &Severity, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(severity.as_str())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "the signature is serde's")]
#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn encode_privileges<S: Serializer>(
    privileges_sufficient: &Option<bool>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match privileges_sufficient {
        Some(true) => "sufficient",
        Some(false) => "state of other sessions is hidden",
        None => "unknown",
    })
}

fn decode_privileges<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<bool>, D::Error> {
    Ok(match Option::<String>::deserialize(deserializer)?.as_deref() {
        Some("sufficient") => Some(true),
        Some("unknown") | None => None,
        Some(_) => Some(false),
    })
}

/// Seconds, or the word the registry uses where there is no limit: null would mean unknown.
#[expect(clippy::ref_option, reason = "the signature is serde's")]
fn encode_limit<S: Serializer>(limit: &Option<Limit>, serializer: S) -> Result<S::Ok, S::Error> {
    match limit {
        Some(Limit::Of(duration)) => serializer.serialize_f64(duration.as_secs_f64()),
        Some(Limit::Unlimited) => serializer.serialize_str("unlimited"),
        None => serializer.serialize_none(),
    }
}

/// Seconds, or a word where there is no limit.
fn decode_limit<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Limit>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Form {
        Seconds(f64),
        Word(String),
    }
    Ok(Option::<Form>::deserialize(deserializer)?.and_then(|form| match form {
        Form::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok().map(Limit::Of),
        Form::Word(word) => (word == "unlimited").then_some(Limit::Unlimited),
    }))
}

fn unknown_mode() -> Mode {
    Mode::Other("unknown".into())
}

fn unknown_scope() -> Scope {
    Scope::Unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_are_not_known_or_left_out_do_no_harm() {
        let json = br#"{"schema":1,"more":[1],"servers":[{"server":"a","up":true,"weather":"fine",
            "polled_at":"2026-11-30T12:00:00.000001Z","locks":[{"datname":"app",
            "key":{"text":"-1","kind":"bigint","classid":4294967295,"objid":4294967295,"objsubid":1},
            "lock":null,"holders":[{"pid":7,"scope":"cluster"}],"waiters":[{"pid":null}]}]},
            {"server":"b","up":false}]}"#;
        let snapshot = parse_snapshot(json).unwrap();
        let [a, b] = &snapshot.servers[..] else { panic!() };
        assert_eq!(a.polled_at.unwrap().to_string(), "2026-11-30T12:00:00.000001Z");
        let lock = &a.locks.as_ref().unwrap()[0];
        assert_eq!((lock.key, lock.lock.as_deref()), (Key::bigint(-1), None));
        assert_eq!(lock.holders[0].scope, Scope::Unknown);
        assert!(b.locks.is_none() && b.error.is_none());
    }

    #[test]
    fn what_is_no_snapshot_is_told_apart_from_one_of_another_form() {
        let cases = [
            ("", "no snapshot of locks"),
            ("<html>", "no snapshot of locks"),
            ("{\"status\":\"success\"}", "no snapshot of locks"),
            ("{\"schema\":2}", "a snapshot of schema 2, and this program reads schema 1"),
            ("{\"schema\":1}", "a snapshot of schema 1 with a fault in it"),
        ];
        for (json, message) in cases {
            let error = parse_snapshot(json.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{json}: {error}");
        }
    }
}
