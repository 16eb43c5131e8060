//! What one poll saw: plain values, as the server sent them.
//!
//! This is the wall between reading and meaning. `postgres` fills a [`Sample`]; everything behind
//! it works on samples alone, so a test can write one by hand. Nothing is left out that the lock
//! table held, and nothing is concluded yet: a NULL is `None`, and it stays that.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::mode::Mode;
use crate::timestamp::Timestamp;

/// One poll: the lock table first, then, once, what every backend was doing.
///
/// The order is part of the truth. A backend that is idle *after* the lock table was read, and has
/// been since before the poll began, was idle while it held what the table shows.
#[derive(Clone, Debug)]
pub struct Sample {
    /// `transaction_timestamp()` of the poll, on the server's clock: before the lock table was read.
    pub at: Timestamp,
    /// The same moment on our clock, as well as the round trip lets us know it.
    pub at_local: Timestamp,
    /// How long the first answer took to come: `at_local` is off by half of that at most.
    pub round_trip: Duration,
    /// By this moment of the server's clock the lock table had been read: what it shows was there
    /// then, and may have begun after `at`.
    pub read_at: Timestamp,
    /// The backend that answered us. Behind a pooler it may be a stranger's.
    pub own_pid: Pid,
    /// The server is a standby.
    pub in_recovery: bool,
    /// Every advisory row of `pg_locks`, folded by everything but the key.
    pub advisory: Vec<KeyGroup>,
    /// Rows of other lock types that chains can run through: every request that waits, and what is
    /// held outside the fast path, relations only where somebody waits for them.
    pub other_locks: Vec<LockRow>,
    /// Every backend; `None` when that part of the poll timed out.
    pub backends: Option<Vec<Backend>>,
    /// Prepared transactions; `None` when they were not read.
    pub prepared: Option<Vec<PreparedTransaction>>,
    /// Distinct entries of the shared lock table, in the polls that counted them.
    pub table_entries: Option<u64>,
}

/// Advisory rows that differ in nothing but the key.
#[derive(Clone, Debug)]
pub struct KeyGroup {
    /// `database`; 0 is a lock that belongs to the whole server.
    pub database: DatabaseOid,
    /// `pid`; `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// `virtualtransaction`.
    pub transaction: VirtualTransaction,
    /// `mode`.
    pub mode: Mode,
    /// Held; else asked for and waiting.
    pub granted: bool,
    /// `waitstart`: since when it waits; `None` in the first moment of a wait, and before 14.
    pub wait_start: Option<Timestamp>,
    /// The keys, one for each row.
    pub keys: Vec<Key>,
}

/// A row of `pg_locks` that is not advisory.
#[derive(Clone, Debug)]
pub struct LockRow {
    /// What is locked.
    pub tag: LockTag,
    /// `pid`; `None` for a prepared transaction.
    pub pid: Option<Pid>,
    /// `virtualtransaction`.
    pub transaction: VirtualTransaction,
    /// `mode`.
    pub mode: Mode,
    /// Held; else asked for and waiting.
    pub granted: bool,
    /// `waitstart`.
    pub wait_start: Option<Timestamp>,
}

/// The columns of `pg_locks` that name the locked object. Two rows are about one lock when all of
/// them are equal, NULL equal to NULL.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct LockTag {
    /// `locktype`, as the server spells it.
    pub locktype: Arc<str>,
    /// `database`
    pub database: Option<DatabaseOid>,
    /// `relation`
    pub relation: Option<u32>,
    /// `page`
    pub page: Option<i32>,
    /// `tuple`
    pub tuple: Option<i16>,
    /// `virtualxid`
    pub virtualxid: Option<Arc<str>>,
    /// `transactionid`
    pub transactionid: Option<TransactionId>,
    /// `classid` and `objid`
    pub object: Option<(u32, u32)>,
    /// `objsubid`
    pub objsubid: Option<i16>,
}

/// What `pg_stat_activity` says of one backend. Without the privilege to see other sessions, all
/// but the pid, the database, the role and the application name is `None`.
#[derive(Clone, Debug)]
pub struct Backend {
    /// `pid`
    pub pid: Pid,
    /// `datid`
    pub database: Option<DatabaseOid>,
    /// `usesysid`
    pub role: Option<RoleOid>,
    /// `application_name`, may be empty
    pub application_name: Option<Arc<str>>,
    /// `state`
    pub state: State,
    /// `state_change`
    pub state_change: Option<Timestamp>,
    /// `wait_event_type` and `wait_event`, joined by a slash
    pub wait_event: Option<Arc<str>>,
    /// `backend_start`
    pub backend_start: Option<Timestamp>,
    /// `client_addr`; `None` also for a Unix socket
    pub client_addr: Option<IpAddr>,
    /// `client_port`; −1 for a Unix socket
    pub client_port: Option<i32>,
    /// Age of `backend_xmin`, in transactions
    pub snapshot_age: Option<u32>,
    /// `backend_type`; hidden from a role that may not see other sessions
    pub backend_type: Option<Arc<str>>,
    /// `leader_pid` of a parallel worker
    pub leader: Option<Pid>,
}

/// `pg_stat_activity.state`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum State {
    /// `active`
    Active,
    /// `idle`
    Idle,
    /// `idle in transaction`
    IdleInTransaction,
    /// `idle in transaction (aborted)`
    IdleInTransactionAborted,
    /// Hidden from us, or the server does not track it (`disabled`). Never the same as idle.
    Unknown,
    /// A word this list does not know.
    Other(Arc<str>),
}

/// A transaction prepared for two-phase commit: it holds locks and has no session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedTransaction {
    /// `transaction`
    pub transaction: TransactionId,
    /// `gid`
    pub gid: Arc<str>,
    /// `prepared`
    pub prepared_at: Timestamp,
    /// `ownerid`
    pub owner: RoleOid,
    /// `dbid`
    pub database: DatabaseOid,
}

/// What stays the same while a connection lasts. All of it is unknown
/// until it was asked for, and stays so where the server does not tell.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// `server_version`, as the server writes it.
    pub version: Option<Arc<str>>,
    /// `max_locks_per_transaction × (max_connections + max_prepared_transactions)`: the entries
    /// the lock table promises to hold.
    pub table_capacity: Option<u64>,
    /// Tells one cluster from another, whatever its address.
    pub system_identifier: Option<Arc<str>>,
    /// `max_prepared_transactions > 0`: whether anything can be prepared.
    pub prepared_transactions_allowed: Option<bool>,
    /// `tcp_keepalives_idle` as it is on our own connection, the system's where the server leaves it to
    /// that: for so long, at least, a client that vanished without a word passes for one that is
    /// idle. Unknown over a Unix socket.
    pub keepalive_after: Option<Duration>,
    /// When the server was started, on its own clock: copies of a cluster and its standbys have its
    /// system identifier, and were not started in the same microsecond.
    pub started_at: Option<Timestamp>,
}

/// What a server from 19 on counts itself of waits for advisory locks, since its statistics were last
/// reset: those that ended with the lock after more than `deadlock_timeout`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WaitStatistics {
    /// `waits`
    pub waits: u64,
    /// `wait_time`, which the server has in milliseconds.
    pub wait_seconds: f64,
}

/// Names of databases and roles, read separately, so that a locked catalog costs names and no poll.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// `pg_database`.
    pub databases: HashMap<DatabaseOid, DatabaseName>,
    /// `pg_roles`.
    pub roles: HashMap<RoleOid, Arc<str>>,
}

/// A database as the catalog knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseName {
    /// `datname`
    pub name: Arc<str>,
    /// The encoding's name, `UTF8`. The server hashes text in the bytes of this.
    pub encoding: Arc<str>,
}

/// Why polls fail, as the label of the failure counter. A fixed list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FailureReason {
    /// Nobody answers there, or the server is starting up or shutting down.
    Unreachable,
    /// The server refused the login, or the database does not exist.
    Login,
    /// The server has no connection left for us.
    TooManyConnections,
    /// The poll's own limit.
    Timeout,
    /// The connection ended under the poll.
    ConnectionLost,
    /// The server had no memory, or no room in its lock table, for our query.
    OutOfMemory,
    /// Any other error.
    Error,
}

impl FailureReason {
    /// The whole list: every reason has a counter from the start.
    pub const ALL: [Self; 7] = [
        Self::Unreachable,
        Self::Login,
        Self::TooManyConnections,
        Self::Timeout,
        Self::ConnectionLost,
        Self::OutOfMemory,
        Self::Error,
    ];

    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unreachable => "unreachable",
            Self::Login => "login",
            Self::TooManyConnections => "too_many_connections",
            Self::Timeout => "timeout",
            Self::ConnectionLost => "connection_lost",
            Self::OutOfMemory => "out_of_memory",
            Self::Error => "error",
        }
    }
}

/// `pg_locks.virtualtransaction`: a slot of the server and the number of a transaction there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub struct VirtualTransaction(Arc<str>);

impl VirtualTransaction {
    /// From the server's text, `7/1234`.
    pub fn from_server(text: &str) -> Self {
        Self(text.into())
    }

    /// The local number; 0 outside a transaction, and for a moment at every commit while the
    /// transaction's own locks are still there. `None` if the server's text has no such part.
    pub fn local_id(&self) -> Option<u32> {
        self.0.rsplit_once('/').and_then(|(_, local)| local.parse().ok())
    }

    /// As the server spells it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A backend's process id, as the server knows it. Pids are reused: alone it identifies nothing
/// for longer than a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub struct Pid(pub i32);

/// `pg_database.oid`; 0 is the whole server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
pub struct DatabaseOid(pub u32);

/// `pg_authid.oid`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RoleOid(pub u32);

/// Where a client connects from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClientAddress {
    /// Over the network.
    Ip(IpAddr),
    /// Over the Unix socket.
    Local,
}

/// A 32-bit transaction id, as `pg_locks` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransactionId(pub u32);

impl DatabaseOid {
    /// Of a lock that belongs to no database.
    pub const SERVER_WIDE: Self = Self(0);
}

impl ClientAddress {
    /// From `client_addr` and `client_port`; `None` where they are hidden, or nobody has connected.
    pub fn from_columns(address: Option<IpAddr>, port: Option<i32>) -> Option<Self> {
        match (address, port) {
            (Some(address), _) => Some(Self::Ip(address)),
            (None, Some(-1)) => Some(Self::Local),
            (None, _) => None,
        }
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for DatabaseOid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl State {
    /// From the server's word; NULL and `disabled` are unknown.
    pub fn from_server(word: Option<&str>) -> Self {
        match word {
            None | Some("disabled") => Self::Unknown,
            Some("active") => Self::Active,
            Some("idle") => Self::Idle,
            Some("idle in transaction") => Self::IdleInTransaction,
            Some("idle in transaction (aborted)") => Self::IdleInTransactionAborted,
            Some(other) => Self::Other(other.into()),
        }
    }

    /// The server's word, or `unknown`.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Active => "active",
            Self::Idle => "idle",
            Self::IdleInTransaction => "idle in transaction",
            Self::IdleInTransactionAborted => "idle in transaction (aborted)",
            Self::Unknown => "unknown",
            Self::Other(word) => word,
        }
    }
}

impl DatabaseName {
    /// Whether text is hashed there in the bytes of UTF-8.
    pub fn is_utf8(&self) -> bool {
        &*self.encoding == "UTF8"
    }
}

#[cfg(test)]
impl LockTag {
    /// The lock that every transaction has on its own id.
    pub(crate) fn of_transaction(id: TransactionId) -> Self {
        Self {
            locktype: "transactionid".into(),
            database: None,
            relation: None,
            page: None,
            tuple: None,
            virtualxid: None,
            transactionid: Some(id),
            object: None,
            objsubid: None,
        }
    }
}

impl Backend {
    /// Whether the server hid from us what this backend does. A backend we may see always has a
    /// type, whatever `track_activities` says.
    pub fn is_hidden(&self) -> bool {
        self.backend_type.is_none()
    }
}

impl Sample {
    /// A moment of the server's clock on ours.
    pub fn local(&self, moment: Timestamp) -> Timestamp {
        let offset = self.at_local.unix_micros().saturating_sub(self.at.unix_micros());
        Timestamp::from_unix_micros(moment.unix_micros().saturating_add(offset))
    }

    /// Advisory rows read, held or waiting: what `SELECT count(*) FROM pg_locks WHERE
    /// locktype = 'advisory' AND granted = $1` says.
    pub fn advisory_rows(&self, granted: bool) -> usize {
        self.advisory
            .iter()
            .filter(|group| group.granted == granted)
            .map(|group| group.keys.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_local_number_of_a_virtual_transaction_is_its_last_part() {
        let local = |text| VirtualTransaction::from_server(text).local_id();
        assert_eq!(local("7/1234"), Some(1234));
        assert_eq!(local("3/0"), Some(0));
        assert_eq!(local("-1/731"), Some(731));
        assert_eq!(local(""), None);
    }

    #[test]
    fn a_client_that_is_hidden_is_not_one_of_the_unix_socket() {
        let address: IpAddr = [10, 0, 0, 7].into();
        let of = ClientAddress::from_columns;
        assert_eq!(of(Some(address), Some(4711)), Some(ClientAddress::Ip(address)));
        assert_eq!(of(None, Some(-1)), Some(ClientAddress::Local));
        assert_eq!(of(None, None), None);
    }

    #[test]
    fn a_state_that_is_hidden_or_not_tracked_is_unknown() {
        assert_eq!(State::from_server(None), State::Unknown);
        assert_eq!(State::from_server(Some("disabled")), State::Unknown);
        assert_eq!(State::from_server(Some("idle")).as_str(), "idle");
        assert_eq!(State::from_server(Some("new word")).as_str(), "new word");
    }
}
