//! The compact notation of polls → [`Sample`]s. One row a line, words apart by blanks, `#` starts
//! a comment, `~` is a blank within a word, `-` is NULL, times are seconds.
//!
//! - `locks`: `PID DATABASE KEY MODE held|waits VIRTUALTRANSACTION [since TIME]`. PID `-` is a
//!   prepared transaction. A database is one of [`DATABASES`], `server-wide`, or an OID. A key is as
//!   people write it, or `CLASSID/OBJID/OBJSUBID` as the server has it.
//! - `other_locks`: `PID TYPE:OBJECT MODE held|waits VIRTUALTRANSACTION [since TIME]` with the types
//!   `relation`, `transactionid` and `virtualxid`.
//! - `backends`: `PID APPLICATION STATE SINCE [FIELD=VALUE]…`, or `PID APPLICATION hidden` for what
//!   a role without privileges sees. Fields: `start` (−1000 unless told), `xmin_age`, `db` (`app`
//!   unless told), `role` (an OID, 10 unless told), `addr` (an IP address, or `local` for the Unix
//!   socket; unknown unless told).
//! - `prepared`: `TRANSACTIONID GID DATABASE PREPARED_AT VIRTUALTRANSACTION`; the row of its own
//!   transaction id comes with it.
//! - `tables`: `DATABASE TABLE OID`, with `-` for one that is not there.
//! - `hashes`: `hashtext TEXT SEED VALUE` or `hashtextextended …`.
//!
//! What the words mean is `main`'s and the program's business.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use pg_locks_exporter::inspected::Answers;
use pg_locks_exporter::key::Key;
use pg_locks_exporter::mode::Mode;
use pg_locks_exporter::registry::{HashCall, HashFunction};
use pg_locks_exporter::sample::{
    Backend, DatabaseOid, KeyGroup, LockRow, LockTag, Pid, PreparedTransaction, RoleOid, Sample,
    State, TransactionId, VirtualTransaction,
};
use pg_locks_exporter::timestamp::Timestamp;

use super::Poll;

/// Databases that have a name: name, OID, encoding.
pub const DATABASES: [(&str, DatabaseOid, &str); 3] = [
    ("app", DatabaseOid(16_384), "UTF8"),
    ("app2", DatabaseOid(16_385), "UTF8"),
    ("latin1", DatabaseOid(16_386), "LATIN1"),
];

/// The exporter's own backend, which every poll sees.
const OWN_PID: Pid = Pid(1);
const OWN_ROW: &str = "1 pg-locks-exporter active 0";

/// `backend_start` of backends that do not tell another.
const BACKEND_START: f64 = -1000.0;

/// What the polls so far have left to be seen.
pub struct Seen {
    advisory: Vec<KeyGroup>,
    other_locks: Vec<LockRow>,
    backends: Option<Vec<Backend>>,
    prepared: Option<Vec<(PreparedTransaction, LockRow)>>,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            advisory: Vec::new(),
            other_locks: Vec::new(),
            backends: Some(Vec::new()),
            prepared: Some(Vec::new()),
        }
    }
}

impl Seen {
    /// What a poll leaves out stays as it was.
    pub fn update(&mut self, poll: &Poll) -> Result<(), String> {
        if let Some(text) = &poll.locks {
            self.advisory = parse_rows(text, parse_advisory)?;
        }
        if let Some(text) = &poll.other_locks {
            self.other_locks = parse_rows(text, parse_other)?;
        }
        if let Some(text) = &poll.backends {
            self.backends = parse_part(text, parse_backend)?;
        }
        if let Some(text) = &poll.prepared {
            self.prepared = parse_part(text, parse_prepared)?;
        }
        Ok(())
    }

    pub fn sample(&self, poll: &Poll, at: f64, at_local: f64) -> Sample {
        let mut own = parse_backend(&mut Words::of(OWN_ROW)).expect("it is a row");
        own.client_addr = poll.pooled_from;
        let own_rows = self.prepared.iter().flatten().map(|(_, row)| row.clone());
        Sample {
            at: moment(at),
            at_local: moment(at_local),
            round_trip: std::time::Duration::ZERO,
            read_at: moment(at),
            own_pid: OWN_PID,
            in_recovery: poll.in_recovery,
            advisory: self.advisory.clone(),
            other_locks: self.other_locks.iter().cloned().chain(own_rows).collect(),
            backends: self
                .backends
                .as_ref()
                .map(|backends| backends.iter().cloned().chain([own]).collect()),
            prepared: self
                .prepared
                .as_ref()
                .map(|prepared| prepared.iter().map(|(one, _)| one.clone()).collect()),
            table_entries: poll.table_entries,
        }
    }
}

/// A time of a scenario.
#[expect(clippy::cast_possible_truncation, reason = "scenarios last minutes, not centuries")]
pub fn moment(seconds: f64) -> Timestamp {
    Timestamp::from_unix_micros((seconds * 1e6).round() as i64)
}

/// A key as one word of the notation.
pub fn key_word(key: Key) -> String {
    key.to_string().replace(' ', "~")
}

/// The words of one row.
struct Words<'a>(std::vec::IntoIter<&'a str>);

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Self {
        Self(line.split_whitespace().collect::<Vec<_>>().into_iter())
    }

    fn next(&mut self, what: &str) -> Result<&'a str, String> {
        self.0.next().ok_or_else(|| format!("{what} is missing"))
    }

    fn parse<T: FromStr>(&mut self, what: &str) -> Result<T, String> {
        parse_word(self.next(what)?, what)
    }

    /// `-` is NULL.
    fn nullable<T: FromStr>(&mut self, what: &str) -> Result<Option<T>, String> {
        match self.next(what)? {
            "-" => Ok(None),
            word => parse_word(word, what).map(Some),
        }
    }

    fn time(&mut self, what: &str) -> Result<Option<Timestamp>, String> {
        Ok(self.nullable(what)?.map(moment))
    }

    fn pid(&mut self) -> Result<Option<Pid>, String> {
        Ok(self.nullable("a pid")?.map(Pid))
    }

    fn transaction(&mut self) -> Result<VirtualTransaction, String> {
        self.next("a virtual transaction").map(VirtualTransaction::from_server)
    }

    fn mode(&mut self) -> Result<Mode, String> {
        Ok(match self.next("a mode")? {
            "exclusive" => Mode::Exclusive,
            "share" => Mode::Share,
            word => Mode::from_server(word),
        })
    }

    fn database(&mut self) -> Result<DatabaseOid, String> {
        let word = self.next("a database")?;
        if word == "server-wide" {
            return Ok(DatabaseOid::SERVER_WIDE);
        }
        match DATABASES.iter().find(|(name, ..)| *name == word) {
            Some((_, oid, _)) => Ok(*oid),
            None => parse_word(word, "a database").map(DatabaseOid),
        }
    }

    fn key(&mut self) -> Result<Key, String> {
        let word = self.next("a key")?;
        let [classid, objid, objsubid] = word.split('/').collect::<Vec<_>>()[..] else {
            return parse_word(word, "a key");
        };
        match (classid.parse(), objid.parse(), objsubid.parse()) {
            (Ok(classid), Ok(objid), Ok(objsubid)) => {
                Ok(Key::from_columns(classid, objid, objsubid))
            }
            // `class~5:~0/102747~…` has slashes of its own.
            _ => parse_word(word, "a key"),
        }
    }

    fn is_granted(&mut self) -> Result<bool, String> {
        match self.next("held or waits")? {
            "held" => Ok(true),
            "waits" => Ok(false),
            other => Err(format!("{other} is neither held nor waits")),
        }
    }

    fn wait_start(&mut self) -> Result<Option<Timestamp>, String> {
        match self.0.next() {
            None => Ok(None),
            Some("since") => self.time("waitstart"),
            Some(other) => Err(format!("{other} is too much; since TIME may stand here")),
        }
    }

    fn end(mut self) -> Result<(), String> {
        self.0.next().map_or(Ok(()), |word| Err(format!("{word} is too much")))
    }
}

fn parse_word<T: FromStr>(word: &str, what: &str) -> Result<T, String> {
    word.replace('~', " ").parse().map_err(|_| format!("{word} is not {what}"))
}

/// What databases say of tables.
pub fn parse_tables(text: &str) -> Result<Answers, String> {
    let mut rows = parse_rows(text, |words| {
        let database = words.next("a database")?;
        let known = DATABASES.iter().any(|(name, ..)| *name == database);
        let database = known.then_some(database).ok_or("a database has a name here")?;
        let table: Arc<str> = words.next("a table")?.into();
        Ok((Arc::<str>::from(database), table, words.nullable("an OID")?))
    })?;
    rows.sort();
    let mut answers = Answers::default();
    for rows in rows.chunk_by(|(database, ..), (next, ..)| database == next) {
        let tables = rows.iter().map(|(_, table, oid)| (table.clone(), *oid));
        answers.replace_tables(&rows[0].0, tables);
    }
    Ok(answers)
}

/// Hashes as the server computes them.
pub fn parse_hashes(text: &str) -> Result<HashMap<HashCall, i64>, String> {
    let rows = parse_rows(text, |words| {
        let function = match words.next("a function")? {
            "hashtext" => HashFunction::Hashtext,
            "hashtextextended" => HashFunction::Hashtextextended,
            other => return Err(format!("{other} is no hash function of the server")),
        };
        let text = words.next("a text")?.replace('~', " ").into();
        let seed = words.parse("a seed")?;
        Ok((HashCall { function, text, seed }, words.parse("a value")?))
    })?;
    Ok(rows.into_iter().collect())
}

/// Rows that may not have been read.
fn parse_part<T>(
    text: &str,
    parse: impl Fn(&mut Words<'_>) -> Result<T, String>,
) -> Result<Option<Vec<T>>, String> {
    if text == "unread" { Ok(None) } else { parse_rows(text, parse).map(Some) }
}

fn parse_rows<T>(
    text: &str,
    parse: impl Fn(&mut Words<'_>) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    text.lines()
        .map(|line| line.split('#').next().unwrap_or_default().trim())
        .filter(|line| !line.is_empty())
        .map(|line| {
            let mut words = Words::of(line);
            let row = parse(&mut words).and_then(|row| words.end().map(|()| row));
            row.map_err(|error| format!("{line}\n  {error}"))
        })
        .collect()
}

fn parse_advisory(words: &mut Words<'_>) -> Result<KeyGroup, String> {
    let pid = words.pid()?;
    let database = words.database()?;
    let keys = vec![words.key()?];
    let mode = words.mode()?;
    let granted = words.is_granted()?;
    let transaction = words.transaction()?;
    let wait_start = words.wait_start()?;
    Ok(KeyGroup { database, pid, transaction, mode, granted, wait_start, keys })
}

fn parse_other(words: &mut Words<'_>) -> Result<LockRow, String> {
    let pid = words.pid()?;
    let (locktype, object) =
        words.next("a lock")?.split_once(':').ok_or("a lock is TYPE:OBJECT")?;
    let mut tag = tag(locktype);
    match locktype {
        "relation" => tag.relation = Some(parse_word(object, "a relation")?),
        "transactionid" => {
            tag.transactionid = Some(TransactionId(parse_word(object, "a transaction id")?));
        }
        "virtualxid" => tag.virtualxid = Some(object.into()),
        other => return Err(format!("{other} is no lock type of the notation")),
    }
    let mode = words.mode()?;
    let granted = words.is_granted()?;
    let transaction = words.transaction()?;
    let wait_start = words.wait_start()?;
    Ok(LockRow { tag, pid, transaction, mode, granted, wait_start })
}

fn tag(locktype: &str) -> LockTag {
    LockTag {
        locktype: locktype.into(),
        database: None,
        relation: None,
        page: None,
        tuple: None,
        virtualxid: None,
        transactionid: None,
        object: None,
        objsubid: None,
    }
}

fn parse_backend(words: &mut Words<'_>) -> Result<Backend, String> {
    let pid = words.pid()?.ok_or("a backend has a pid")?;
    let application_name: Option<String> = words.nullable("an application name")?;
    let application_name = application_name.map(|name| name.trim_matches('"').into());
    let mut backend = Backend {
        pid,
        database: None,
        role: Some(RoleOid(10)),
        application_name,
        state: State::Unknown,
        state_change: None,
        wait_event: None,
        backend_start: None,
        client_addr: None,
        client_port: None,
        snapshot_age: None,
        backend_type: None,
        leader: None,
    };
    backend.state = match words.next("a state")? {
        "hidden" => return Ok(backend),
        "active" => State::Active,
        "idle" => State::Idle,
        "in-transaction" => State::IdleInTransaction,
        "aborted" => State::IdleInTransactionAborted,
        "disabled" => State::Unknown,
        other => return Err(format!("{other} is no state of the notation")),
    };
    backend.database = Some(DATABASES[0].1);
    backend.state_change = words.time("state_change")?;
    backend.backend_start = Some(moment(BACKEND_START));
    backend.backend_type = Some("client backend".into());
    for word in words.0.by_ref() {
        match word.split_once('=') {
            Some(("start", time)) => {
                backend.backend_start = Some(moment(parse_word(time, "a time")?));
            }
            Some(("db", name)) => backend.database = Some(Words::of(name).database()?),
            Some(("role", role)) => backend.role = Some(RoleOid(parse_word(role, "an OID")?)),
            Some(("addr", "local")) => backend.client_port = Some(-1),
            Some(("addr", address)) => {
                backend.client_addr = Some(parse_word(address, "an address")?);
                backend.client_port = Some(40_000);
            }
            Some(("xmin_age", age)) => backend.snapshot_age = Some(parse_word(age, "an age")?),
            _ => return Err(format!("{word} is no field of a backend")),
        }
    }
    Ok(backend)
}

fn parse_prepared(words: &mut Words<'_>) -> Result<(PreparedTransaction, LockRow), String> {
    let transaction = TransactionId(words.parse("a transaction id")?);
    let gid = words.next("a gid")?.replace('~', " ").into();
    let database = words.database()?;
    let prepared_at = words.time("prepared_at")?.ok_or("prepared_at is known")?;
    let row = LockRow {
        tag: LockTag { transactionid: Some(transaction), ..tag("transactionid") },
        pid: None,
        transaction: words.transaction()?,
        mode: Mode::Exclusive,
        granted: true,
        wait_start: None,
    };
    let owner = RoleOid(10);
    Ok((PreparedTransaction { transaction, gid, prepared_at, owner, database }, row))
}
