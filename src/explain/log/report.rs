//! The summary of a log as JSON, all of it.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};

use super::summary::{Deadlock, Ending, KeyUse, LockWait, Object, Outcome, Summary, Wait};
use crate::explain::naming::as_fields;
use crate::key::Key;
use crate::registry::Naming;

/// What was found in a log, with the names of its locks.
#[derive(Debug, Serialize)]
pub struct Report<'a> {
    lines: u64,
    mentions: u64,
    deadlocks: Vec<DeadlockFields<'a>>,
    deadlocks_left_out: u64,
    other_deadlocks: u64,
    locks: Vec<LockFields<'a>>,
    mentions_left_out: u64,
}

#[derive(Debug, Serialize)]
struct DeadlockFields<'a> {
    line: u64,
    at: Option<&'a str>,
    /// The process whose statement the server ended.
    victim: Option<u32>,
    waits: Vec<WaitFields<'a>>,
    waits_left_out: u64,
    complete: bool,
}

#[derive(Debug, Serialize)]
struct WaitFields<'a> {
    pid: u32,
    mode: &'a str,
    object: ObjectFields<'a>,
    blocked_by: u32,
    query: Option<&'a str>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "type", rename_all = "lowercase")]
enum ObjectFields<'a> {
    Advisory(NamedKey),
    Other { text: &'a str },
}

#[derive(Debug, Serialize)]
struct LockFields<'a> {
    #[serde(flatten)]
    lock: NamedKey,
    mentions: u64,
    deadlocks: u64,
    /// Processes that waited, the first few.
    pids: Vec<u32>,
    has_more_pids: bool,
    /// Those of them that did not get the lock as far as the log goes.
    waiting_pids: Vec<u32>,
    /// Waits that ended with their statement or connection, by what ended these.
    ended_waits: &'a BTreeMap<Ending, u64>,
    longest_wait: Option<LongestFields<'a>>,
}

#[derive(Debug, Serialize)]
struct LongestFields<'a> {
    pid: u32,
    mode: &'a str,
    #[serde(serialize_with = "as_seconds", rename = "seconds")]
    microseconds: u64,
    outcome: Outcome,
    holder_pids: &'a [u32],
    line: u64,
}

#[derive(Debug, Serialize)]
struct NamedKey {
    /// 0 for locks of the whole server.
    database_oid: u32,
    key: Key,
    #[serde(serialize_with = "as_fields")]
    names: Vec<Naming>,
}

impl Summary {
    /// For scripts; `names` says what a lock may be called.
    pub fn report<'a>(&'a self, names: &mut dyn FnMut(u32, Key) -> Vec<Naming>) -> Report<'a> {
        let mut named =
            |database_oid, key| NamedKey { database_oid, key, names: names(database_oid, key) };
        let deadlocks =
            self.deadlocks.iter().map(|deadlock| deadlock_fields(deadlock, &mut named)).collect();
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_by_key(|(lock, _)| **lock);
        let locks = keys.into_iter().map(|((oid, key), lock)| lock_fields(lock, named(*oid, *key)));
        Report {
            lines: self.lines,
            mentions: self.mentions,
            deadlocks,
            deadlocks_left_out: self.deadlocks_left_out,
            other_deadlocks: self.other_deadlocks,
            locks: locks.collect(),
            mentions_left_out: self.mentions_left_out,
        }
    }
}

fn deadlock_fields<'a>(
    deadlock: &'a Deadlock,
    named: &mut dyn FnMut(u32, Key) -> NamedKey,
) -> DeadlockFields<'a> {
    let waits = deadlock.waits.iter().map(|wait| {
        let LockWait { pid, mode, object, blocked_by, query } = wait;
        let object = match object {
            Object::Advisory { database, key } => ObjectFields::Advisory(named(*database, *key)),
            Object::Other(text) => ObjectFields::Other { text },
        };
        WaitFields { pid: *pid, mode, object, blocked_by: *blocked_by, query: query.as_deref() }
    });
    DeadlockFields {
        line: deadlock.line,
        at: deadlock.at.as_deref(),
        victim: deadlock.waits.first().map(|wait| wait.pid),
        waits: waits.collect(),
        waits_left_out: deadlock.waits_left_out,
        complete: deadlock.is_closed,
    }
}

fn lock_fields(lock: &KeyUse, named: NamedKey) -> LockFields<'_> {
    let longest_wait = lock.longest.as_ref().map(|wait| {
        let Wait { pid, mode, microseconds, outcome, holders, line } = wait;
        LongestFields {
            pid: *pid,
            mode,
            microseconds: *microseconds,
            outcome: *outcome,
            holder_pids: holders,
            line: *line,
        }
    });
    LockFields {
        lock: named,
        mentions: lock.mentions,
        deadlocks: lock.deadlocks,
        pids: lock.pids.iter().copied().collect(),
        has_more_pids: lock.has_more_pids,
        waiting_pids: lock.waiting.keys().copied().collect(),
        ended_waits: &lock.ended,
        longest_wait,
    }
}

fn as_seconds<S: Serializer>(microseconds: &u64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(std::time::Duration::from_micros(*microseconds).as_secs_f64())
}
