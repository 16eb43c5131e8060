//! Folds samples into holds and waits: seen first, still here, gone.
//!
//! A row says that a session holds a key now. It says nothing of when it took it, nor whether it
//! let go in between. What may be concluded is a short list of rules, each tried against real
//! workloads and, in `simulation`, against a made-up server whose truth is known. Anything else
//! stays unknown.
//!
//! 1. The lock table is read before activity: only so does an idle backend say anything of a row.
//! 2. What a backend has been since after the poll began (`state_change`) does not count.
//! 3. When a waiter began to wait says nothing of who holds: that one may have been let in later.
//! 4. A virtual transaction that ends in `/0` is no proof of session level: in the moment of a
//!    commit a transaction's locks show it too.
//! 5. Nor is a row that is there in the next transaction: it may have been taken again.
//! 6. One hold of several sightings is what is held by the session or is prepared, what all polls
//!    showed in one transaction, and what is certain not to have been let go: the holder has been
//!    idle, or waiting itself, since before the last poll, or somebody it keeps out has stayed in
//!    the queue. Else each change of transaction ends a hold and begins one.
//! 7. A lock is the session's when the backend is idle outside a transaction, or when it outlived
//!    its transaction: a failed one, or any while somebody stayed in the queue. It is the
//!    transaction's when that is prepared.
//! 8. A hold is as old as its first sight, or older where the holder's own idleness, its own wait or
//!    its `PREPARE` proves it; and no older than the last poll that did not see it, or its backend.
//!
//! Pure: time comes with the sample. Names, labels and limits are no business of this file; what
//! it knows goes to `view`, and what changed to `series`.

use std::cell::OnceCell;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::key::Key;
use crate::map::{HashMap, HashSet};
use crate::memory::FirstName;
use crate::mode::Mode;
use crate::registry::DeclaredScope;
use crate::sample::{
    DatabaseOid, KeyGroup, Pid, PreparedTransaction, Sample, State, VirtualTransaction,
};
use crate::timestamp::Timestamp;

/// A key and the database it is in: two databases use one number for two locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyId {
    /// The database; 0 for the whole server.
    pub database: DatabaseOid,
    /// The key.
    pub key: Key,
}

/// Who holds or waits: a backend, or a transaction that was prepared and has none.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SessionId {
    /// A backend. Whether it is the same one as before is told by its `backend_start`.
    Backend(Pid),
    /// A prepared transaction, by its gid.
    Prepared(Arc<str>),
    /// A prepared transaction whose gid is not known, or not yet.
    Nameless(VirtualTransaction),
}

impl SessionId {
    /// The backend's pid; a prepared transaction has none.
    pub const fn pid(&self) -> Option<Pid> {
        match self {
            Self::Backend(pid) => Some(*pid),
            Self::Prepared(_) | Self::Nameless(_) => None,
        }
    }
}

/// A row that is granted. Never identified by an application name, which changes hands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldId {
    /// Who.
    pub holder: SessionId,
    /// What.
    pub key: KeyId,
    /// How.
    pub mode: Mode,
}

/// A row that is not granted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitId {
    /// Who.
    pub waiter: SessionId,
    /// What for.
    pub key: KeyId,
    /// How.
    pub mode: Mode,
}

/// A hold as far as it is known.
///
/// The *presence* is what was seen: the same backend, key and mode in every successful poll. The
/// *hold* is what may be said of it: from one taking to one letting go.
#[derive(Clone, Debug)]
pub struct Hold {
    /// `backend_start`, once it was seen.
    pub backend_start: Option<Timestamp>,
    /// Seen held at every poll since this moment, or proved held since then. On the server's clock.
    pub since: Timestamp,
    /// The same on our clock, fixed when `since` is, so that it does not tremble.
    pub since_local: Timestamp,
    /// Held without a gap since this moment, for certain.
    pub proved_since: Timestamp,
    /// Held throughout since the last poll before this one, for certain.
    pub is_unbroken: bool,
    /// What proves its scope, if anything does.
    pub scope: Option<ScopeEvidence>,
    /// Transactions of the holder in which it was seen.
    pub transactions_seen: u32,
    /// Successful polls that saw it.
    pub polls: u32,
    /// Polls in a row, up to the last, that showed it outside a transaction.
    pub polls_outside_transaction: u32,
    /// The name its backend went by when this presence was first seen.
    pub first_application_name: Option<Arc<str>>,
    /// An earlier process saw it begin.
    begin_recalled: bool,
    /// The poll before it began; after a change of transaction that is likely, not certain.
    not_before: Option<Timestamp>,
    /// The number of the last sample that showed it.
    poll: u64,
    presence: Presence,
}

/// What was seen of one backend, key and mode since they first appeared together.
#[derive(Clone, Debug)]
struct Presence {
    since: Timestamp,
    since_local: Timestamp,
    not_before: Option<Timestamp>,
    /// The last local transaction number other than 0 that was seen with it.
    local_id: Option<u32>,
    /// No gap since `local_id` was last seen, for certain.
    unbroken: bool,
    /// Somebody it keeps out has stood in the queue since `local_id` was last seen.
    under_waiter: bool,
}

/// A wait as far as it is known.
#[derive(Clone, Debug)]
pub struct Wait {
    /// `backend_start`, once it was seen.
    pub backend_start: Option<Timestamp>,
    /// `waitstart`; `None` in the first moment of a wait, and on servers that do not tell.
    pub start: Option<Timestamp>,
    /// `start` on our clock, fixed when it was first seen.
    pub start_local: Option<Timestamp>,
    /// The first poll that saw it.
    pub first_seen: Timestamp,
    /// The last successful poll before that, which did not.
    pub not_before: Option<Timestamp>,
    /// When the statement that waits began, where activity tells.
    statement: Option<Timestamp>,
    /// The first poll from which on every one saw it wait, in the same statement or since the same
    /// `waitstart`.
    pub seen_since: Timestamp,
    /// The same on our clock.
    pub seen_since_local: Timestamp,
}

/// What proves that a lock is held by the session, or by a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ScopeEvidence {
    /// The backend was idle, outside any transaction, since before the poll began.
    IdleOutsideTransaction,
    /// The transaction failed and its locks are gone, yet this one is there.
    OutlivedFailedTransaction,
    /// The holder's transaction changed while somebody stayed in the queue for the key.
    OutlivedTransactionUnderWaiter,
    /// It belongs to a prepared transaction.
    Prepared,
}

/// To whom a lock belongs, if that is proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Until it is unlocked or the session ends.
    Session,
    /// Until the transaction ends.
    Transaction,
    /// Not proved.
    Unknown,
}

impl Scope {
    /// In JSON and everywhere else.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
            Self::Unknown => "unknown",
        }
    }
}

/// What one sample changed.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A hold began between the last poll and this one. Not reported for what the first poll of
    /// all finds: nobody saw that begin.
    HoldBegan {
        /// Whose, of what.
        id: HoldId,
    },
    /// A hold ended between the last poll and this one.
    HoldEnded {
        /// Whose, of what.
        id: HoldId,
        /// The middle of what it may have lasted; `None` unless its beginning was seen and it was
        /// seen in two polls at least.
        duration: Option<Duration>,
    },
    /// A wait was seen for the first time.
    WaitBegan {
        /// Whose, for what.
        id: WaitId,
    },
    /// A wait was seen no more.
    WaitEnded {
        /// Whose, for what.
        id: WaitId,
        /// How, as far as it can be told.
        outcome: WaitOutcome,
        /// The middle of what it may have lasted.
        duration: Duration,
    },
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitOutcome {
    /// The same backend holds the key now.
    Granted,
    /// Without the lock: somebody who excludes it has held the key throughout.
    Gone,
    /// It may have had the lock between two polls.
    Unknown,
}

impl Change {
    /// Of which key.
    pub const fn key(&self) -> KeyId {
        match self {
            Self::HoldBegan { id } | Self::HoldEnded { id, .. } => id.key,
            Self::WaitBegan { id } | Self::WaitEnded { id, .. } => id.key,
        }
    }
}

impl WaitOutcome {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Gone => "gone",
            Self::Unknown => "unknown",
        }
    }
}

impl ScopeEvidence {
    /// The scope it proves.
    pub const fn scope(self) -> Scope {
        match self {
            Self::IdleOutsideTransaction
            | Self::OutlivedFailedTransaction
            | Self::OutlivedTransactionUnderWaiter => Scope::Session,
            Self::Prepared => Scope::Transaction,
        }
    }
}

/// Everything held and awaited, as the samples so far have it.
#[derive(Debug, Default)]
pub struct Tracker {
    holds: HashMap<HoldId, Hold>,
    waits: HashMap<WaitId, Wait>,
    prepared: HashMap<VirtualTransaction, Arc<PreparedTransaction>>,
    /// Whose each virtual transaction was at the last poll.
    transactions: HashMap<VirtualTransaction, Pid>,
    previous: Option<Timestamp>,
    /// Samples so far. A hold that does not bear the number of the last one is gone.
    poll: u64,
}

impl Tracker {
    /// Every present hold.
    pub fn holds(&self) -> &HashMap<HoldId, Hold> {
        &self.holds
    }

    /// Every present wait.
    pub fn waits(&self) -> &HashMap<WaitId, Wait> {
        &self.waits
    }

    /// The prepared transaction that owns the rows of a virtual transaction without a backend.
    pub fn prepared(&self, transaction: &VirtualTransaction) -> Option<&PreparedTransaction> {
        self.prepared.get(transaction).map(|prepared| &**prepared)
    }

    /// Whose the rows of this group are.
    pub fn session_id(&self, group: &KeyGroup) -> SessionId {
        self.owner(group.pid, &group.transaction)
    }

    /// Whose a row of the lock table is, by its `pid` and `virtualtransaction`.
    pub fn owner(&self, pid: Option<Pid>, transaction: &VirtualTransaction) -> SessionId {
        match pid {
            Some(pid) => SessionId::Backend(pid),
            None => match self.prepared(transaction) {
                Some(prepared) => SessionId::Prepared(prepared.gid.clone()),
                None => SessionId::Nameless(transaction.clone()),
            },
        }
    }

    /// Folds one sample in. `declared` is the scope the registry declares for a key.
    pub fn observe(
        &mut self,
        sample: &Sample,
        declared: impl Fn(KeyId) -> Option<DeclaredScope>,
    ) -> Vec<Change> {
        let mut changes = Vec::new();
        self.poll += 1;
        // A server whose clock was set back tells nothing by comparison with the last poll.
        let is_first = self.previous.is_none();
        self.previous = self.previous.filter(|previous| *previous <= sample.at);
        self.observe_prepared(sample);
        let sessions = Sessions::of(sample);
        let waits_before = std::mem::take(&mut self.waits);
        self.observe_waits(sample, &sessions, &waits_before, &mut changes);
        let queue = Queue {
            awaited: waits_before.keys().map(|id| id.key).collect(),
            stayed: self.stayed_in_queue(&waits_before),
        };
        let unbroken = self.observe_holds(sample, &sessions, &queue, &declared, &mut changes);
        self.end_waits(sample.at, waits_before, &unbroken, &mut changes);
        if is_first {
            // Nobody saw these begin. A wait is counted when it is seen, a hold when it is taken.
            changes.retain(|change| !matches!(change, Change::HoldBegan { .. }));
        }
        let owners = sample.advisory.iter().filter(|group| group.granted);
        self.transactions =
            owners.filter_map(|group| Some((group.transaction.clone(), group.pid?))).collect();
        self.previous = Some(sample.at);
        changes
    }

    /// What present holders were called when an earlier process first saw them with their keys.
    /// Whether they let go meanwhile is not known, so nothing else of a hold is taken over.
    pub fn recall_first_names(&mut self, names: Vec<FirstName>) {
        let hold_id = |name: &FirstName| {
            let (holder, mode) = (SessionId::Backend(name.pid), name.mode.clone());
            Some(HoldId { holder, key: name.key_id()?, mode })
        };
        let names: HashMap<HoldId, FirstName> =
            names.into_iter().filter_map(|name| Some((hold_id(&name)?, name))).collect();
        if names.is_empty() {
            return;
        }
        for (id, hold) in &mut self.holds {
            if let Some(first) = names.get(id)
                && hold.backend_start == Some(first.backend_start)
            {
                hold.first_application_name = Some(first.application_name.clone());
                hold.begin_recalled = first.seen_to_begin;
            }
        }
    }

    /// A prepared transaction's rows have no pid. Its gid is found through the row of its own
    /// transaction id, which has the same virtual transaction; the join the manual gives finds
    /// nothing before the next restart.
    fn observe_prepared(&mut self, sample: &Sample) {
        let Some(prepared) = &sample.prepared else { return };
        let by_id: HashMap<_, _> = prepared.iter().map(|one| (one.transaction, one)).collect();
        let before = std::mem::take(&mut self.prepared);
        self.prepared = sample
            .other_locks
            .iter()
            .filter(|row| row.pid.is_none())
            .filter_map(|row| {
                let id = row.tag.transactionid?;
                // It may have ended after the lock table was read, and still holds what that shows.
                let known = before.get(&row.transaction).filter(|known| known.transaction == id);
                let prepared = match by_id.get(&id) {
                    Some(prepared) => Arc::new((*prepared).clone()),
                    None => known?.clone(),
                };
                Some((row.transaction.clone(), prepared))
            })
            .collect();
    }

    fn observe_waits(
        &mut self,
        sample: &Sample,
        sessions: &Sessions,
        before: &HashMap<WaitId, Wait>,
        changes: &mut Vec<Change>,
    ) {
        for group in sample.advisory.iter().filter(|group| !group.granted) {
            let waiter = self.session_id(group);
            let session = sessions.of_group(group, self.prepared(&group.transaction));
            for key in keys(group) {
                let id = WaitId { waiter: waiter.clone(), key, mode: group.mode.clone() };
                if self.waits.contains_key(&id) {
                    continue;
                }
                let seen = Wait {
                    backend_start: session.backend_start,
                    start: group.wait_start,
                    start_local: group.wait_start.map(|start| sample.local(start)),
                    first_seen: sample.at,
                    not_before: self.previous,
                    statement: session.active_since,
                    seen_since: sample.at,
                    seen_since_local: sample.at_local,
                };
                let wait = match before.get(&id).filter(|known| known.is_same(&seen)) {
                    Some(known) => known.continued(&seen),
                    None => {
                        changes.push(Change::WaitBegan { id: id.clone() });
                        seen
                    }
                };
                self.waits.insert(id, wait);
            }
        }
    }

    /// The waits that went on from the last poll to this one: their `waitstart` is the same. While
    /// one of them stands in the queue, nobody it conflicts with can have let go of the key and
    /// taken it again: letting go would have let the waiter in.
    fn stayed_in_queue(&self, before: &HashMap<WaitId, Wait>) -> ByKey {
        let mut stayed = ByKey::default();
        for (id, wait) in &self.waits {
            if wait.start.is_some() && before.get(id).is_some_and(|known| known.start == wait.start)
            {
                stayed.entry(id.key).or_default().push((id.waiter.clone(), id.mode.clone()));
            }
        }
        stayed
    }

    /// Returns who has held an awaited key since the last poll without letting go: a wait that
    /// vanished under such a hold ended without the lock.
    fn observe_holds(
        &mut self,
        sample: &Sample,
        sessions: &Sessions,
        queue: &Queue,
        declared: &impl Fn(KeyId) -> Option<DeclaredScope>,
        changes: &mut Vec<Change>,
    ) -> ByKey {
        let mut unbroken = ByKey::default();
        let (mut begun, mut over) = (Vec::new(), Vec::new());
        // What has no backend any more takes its hold from the one that had it, so it comes first.
        let granted = || sample.advisory.iter().filter(|group| group.granted);
        let of_holders = OnceCell::new();
        let prepared = granted().filter(|group| group.pid.is_none());
        for group in prepared.chain(granted().filter(|group| group.pid.is_some())) {
            let holder = self.session_id(group);
            let session = sessions.of_group(group, self.prepared(&group.transaction));
            for key in keys(group) {
                let id = HoldId { holder: holder.clone(), key, mode: group.mode.clone() };
                let has_one_mode = || {
                    !other_modes(&id).any(|other| self.holds.contains_key(&other))
                        && !of_holders
                            .get_or_init(|| GroupsOfHolders::of(sample))
                            .hold_in_other_mode(group, key.key)
                };
                let seen = Sighting {
                    sample,
                    poll: self.poll,
                    previous: self.previous,
                    session: &session,
                    local_id: group.transaction.local_id(),
                    keeps_waiter: keeps_waiter(queue, &id) && has_one_mode(),
                    declared_session: &|| declared(key) == Some(DeclaredScope::Session),
                };
                // Nearly all were there before, and there may be very many: they stay in their place.
                let known = match self.holds.get_mut(&id) {
                    // Compatible servers were seen to print a row twice; it is one hold.
                    Some(known) if known.poll == self.poll => continue,
                    Some(known) => known,
                    None => match self.take_prepared(&id, group) {
                        Some(known) => self.holds.entry(id.clone()).or_insert(known),
                        None => {
                            begun.push(id.clone());
                            self.holds.insert(id, Hold::first_seen(&seen));
                            continue;
                        }
                    },
                };
                if !known.is_of(session.backend_start) {
                    // The pid belongs to a new backend: the old one's hold went with it.
                    over.push((id.clone(), known.duration(self.previous, sample.at)));
                    *known = Hold::first_seen(&seen);
                    begun.push(id);
                    continue;
                }
                let Continued { is_unbroken, ended } = known.go_on(&seen);
                if is_unbroken && queue.awaited.contains(&key) {
                    let held = (holder.clone(), group.mode.clone());
                    unbroken.entry(key).or_default().push(held);
                }
                if let Some(duration) = ended {
                    over.push((id.clone(), duration));
                    begun.push(id);
                }
            }
        }
        let gone = self.holds.extract_if(|_, hold| hold.poll != self.poll);
        over.extend(gone.map(|(id, hold)| (id, hold.duration(self.previous, sample.at))));
        let of_session = self.one_a_session(over.iter().map(|(id, _)| id));
        changes.extend(
            over.iter()
                .filter(|(id, _)| of_session(id))
                .map(|(id, duration)| Change::HoldEnded { id: id.clone(), duration: *duration }),
        );
        let of_session = self.one_a_session(begun.iter());
        changes.extend(
            begun.iter().filter(|id| of_session(id)).map(|id| Change::HoldBegan { id: id.clone() }),
        );
        unbroken
    }

    /// Which of these rows speak for their session: a holder is a session and not a row, so one
    /// that goes on holding the key in another mode has neither taken it nor let go of it, and of
    /// two modes that come or go together the stronger counts.
    fn one_a_session<'a>(
        &'a self,
        ids: impl Iterator<Item = &'a HoldId> + Clone,
    ) -> impl Fn(&HoldId) -> bool + 'a {
        let mut strongest: HashMap<(&SessionId, KeyId), u8> = HashMap::default();
        for id in ids {
            let strength = strongest.entry((&id.holder, id.key)).or_default();
            *strength = id.mode.strength().max(*strength);
        }
        move |id| {
            strongest.get(&(&id.holder, id.key)) == Some(&id.mode.strength())
                && !other_modes(id)
                    .any(|other| self.holds.get(&other).is_some_and(|hold| hold.polls > 1))
        }
    }

    /// `PREPARE TRANSACTION` takes the rows from the backend and leaves all else as it was: the
    /// hold goes on under the gid, or for as long as that is not known under the transaction.
    fn take_prepared(&mut self, id: &HoldId, group: &KeyGroup) -> Option<Hold> {
        if group.pid.is_some() {
            return None;
        }
        let nameless = SessionId::Nameless(group.transaction.clone());
        self.take_unseen(HoldId { holder: nameless, ..id.clone() }).or_else(|| {
            let pid = *self.transactions.get(&group.transaction)?;
            let holder = SessionId::Backend(pid);
            self.take_unseen(HoldId { holder, ..id.clone() }).map(Hold::prepared)
        })
    }

    /// Takes a hold of an earlier sample that this one has not shown so far.
    fn take_unseen(&mut self, id: HoldId) -> Option<Hold> {
        match self.holds.entry(id) {
            Entry::Occupied(known) if known.get().poll != self.poll => Some(known.remove()),
            Entry::Occupied(_) | Entry::Vacant(_) => None,
        }
    }

    fn end_waits(
        &self,
        at: Timestamp,
        before: HashMap<WaitId, Wait>,
        unbroken: &ByKey,
        changes: &mut Vec<Change>,
    ) {
        for (id, wait) in before {
            if self.waits.get(&id).is_some_and(|now| now.first_seen == wait.first_seen) {
                continue;
            }
            let waiter = id.waiter.clone();
            let kept_out = unbroken.get(&id.key).is_some_and(|held| {
                held.iter().any(|(holder, mode)| *holder != waiter && mode.conflicts_with(&id.mode))
            });
            let hold = HoldId { holder: waiter.clone(), key: id.key, mode: id.mode.clone() };
            let outcome = if kept_out {
                WaitOutcome::Gone
            } else if self
                .holds
                .get(&hold)
                .is_some_and(|hold| hold.polls == 1 && hold.is_of(wait.backend_start))
            {
                WaitOutcome::Granted
            } else {
                WaitOutcome::Unknown
            };
            let last_seen = self.previous.unwrap_or(at);
            let duration = middle(
                last_seen.since(wait.start.unwrap_or(wait.first_seen)),
                at.since(wait.start.or(wait.not_before).unwrap_or(wait.first_seen)),
            );
            changes.push(Change::WaitEnded { id, outcome, duration });
        }
    }
}

/// Who holds a key, or waits for it, and how.
type ByKey = HashMap<KeyId, Vec<(SessionId, Mode)>>;

/// What the waits of the last poll have to do with this one.
struct Queue {
    /// Keys that somebody waited for at the last poll.
    awaited: HashSet<KeyId>,
    /// Waits that have gone on since then.
    stayed: ByKey,
}

fn keys(group: &KeyGroup) -> impl Iterator<Item = KeyId> + '_ {
    group.keys.iter().map(|key| KeyId { database: group.database, key: *key })
}

fn other_modes(id: &HoldId) -> impl Iterator<Item = HoldId> + '_ {
    Mode::KNOWN
        .into_iter()
        .filter(|mode| *mode != id.mode)
        .map(|mode| HoldId { mode, ..id.clone() })
}

/// Whether somebody else has stayed in the queue for the key in a mode that the row conflicts with.
fn keeps_waiter(queue: &Queue, id: &HoldId) -> bool {
    queue.stayed.get(&id.key).is_some_and(|waiters| {
        let is_kept = |mode: &Mode| mode.conflicts_with(&id.mode);
        waiters.iter().any(|(waiter, mode)| *waiter != id.holder && is_kept(mode))
    })
}

/// What each holder has in each database, where somebody asks for it.
struct GroupsOfHolders<'a>(HashMap<(Option<Pid>, DatabaseOid), Vec<&'a KeyGroup>>);

impl<'a> GroupsOfHolders<'a> {
    fn of(sample: &'a Sample) -> Self {
        let mut groups: HashMap<_, Vec<&KeyGroup>> = HashMap::default();
        for group in sample.advisory.iter().filter(|group| group.granted) {
            groups.entry((group.pid, group.database)).or_default().push(group);
        }
        Self(groups)
    }

    /// Whether the holder of a row has the key in another mode beside it.
    fn hold_in_other_mode(&self, group: &KeyGroup, key: Key) -> bool {
        let groups = self.0.get(&(group.pid, group.database));
        groups
            .into_iter()
            .flatten()
            .any(|other| other.mode != group.mode && other.keys.contains(&key))
    }
}

fn middle(low: Duration, high: Duration) -> Duration {
    (low + high.max(low)) / 2
}

/// What this sample shows of each backend that could hold something.
struct Sessions {
    by_pid: HashMap<Pid, Session>,
}

/// What this sample shows of one backend, or of one prepared transaction.
#[derive(Clone, Default)]
struct Session {
    backend_start: Option<Timestamp>,
    application_name: Option<Arc<str>>,
    /// Whatever it holds it has held since this moment, for certain (rule 8).
    held_since: Option<Timestamp>,
    /// When its statement began, if it did before the poll.
    active_since: Option<Timestamp>,
    /// Idle outside a transaction since before the poll began.
    idle: bool,
    /// Idle in a failed transaction since before the poll began.
    aborted: bool,
    prepared: bool,
}

impl Sessions {
    fn of(sample: &Sample) -> Self {
        let mut by_pid: HashMap<Pid, Session> = HashMap::default();
        for backend in sample.backends.iter().flatten() {
            // The guard: what the backend has been since *after* the poll began says nothing of
            // the moment in which the lock table was read.
            let since = backend.state_change.filter(|change| *change <= sample.at);
            let rests = matches!(
                backend.state,
                State::Idle | State::IdleInTransaction | State::IdleInTransactionAborted
            );
            by_pid.insert(
                backend.pid,
                Session {
                    backend_start: backend.backend_start,
                    application_name: backend.application_name.clone(),
                    held_since: since.filter(|_| rests),
                    active_since: since.filter(|_| backend.state == State::Active),
                    idle: since.is_some() && backend.state == State::Idle,
                    aborted: since.is_some() && backend.state == State::IdleInTransactionAborted,
                    prepared: false,
                },
            );
        }
        // Who waits takes nothing and lets go of nothing meanwhile.
        let waiting =
            sample.advisory.iter().map(|group| (group.pid, group.granted, group.wait_start));
        let elsewhere = sample.other_locks.iter().map(|row| (row.pid, row.granted, row.wait_start));
        for (pid, granted, start) in waiting.chain(elsewhere) {
            if let (Some(pid), false, Some(start)) = (pid, granted, start) {
                by_pid.entry(pid).or_default().held_since = Some(start);
            }
        }
        Self { by_pid }
    }

    fn of_group(&self, group: &KeyGroup, prepared: Option<&PreparedTransaction>) -> Session {
        match group.pid {
            Some(pid) => self.by_pid.get(&pid).cloned().unwrap_or_default(),
            None => Session::prepared(prepared),
        }
    }
}

impl Session {
    fn prepared(transaction: Option<&PreparedTransaction>) -> Self {
        Self {
            held_since: transaction.map(|one| one.prepared_at),
            prepared: true,
            ..Self::default()
        }
    }
}

/// One granted row of a sample, with all that bears on its hold.
struct Sighting<'a> {
    sample: &'a Sample,
    poll: u64,
    previous: Option<Timestamp>,
    session: &'a Session,
    local_id: Option<u32>,
    /// Somebody it conflicts with has stood in the queue since the last poll, kept out by this row:
    /// its holder has the key in no other mode.
    keeps_waiter: bool,
    /// The registry says so. Asked only where it matters, not for every key at every poll.
    declared_session: &'a dyn Fn() -> bool,
}

/// What became of a hold between two polls that both saw its row.
struct Continued {
    /// Held throughout, for certain. That the holder is in the same transaction proves nothing:
    /// it may have let a waiter in and taken the key again.
    is_unbroken: bool,
    /// One transaction's hold ended, after this time if that is known, and another's began.
    ended: Option<Option<Duration>>,
}

impl Sighting<'_> {
    /// Since when this row has been held without a gap, as far as this sample alone can tell: at
    /// the latest since the lock table was read. What began later is not in it.
    fn held_since(&self) -> Timestamp {
        self.session.held_since.map_or(self.sample.read_at, |since| since.min(self.sample.read_at))
    }

    /// The holder took nothing and let go of nothing since the last poll, for certain: what it
    /// holds now it has held since before then, or the queue shows it.
    fn is_unbroken(&self) -> bool {
        self.keeps_waiter || self.previous.is_some_and(|previous| self.held_since() <= previous)
    }

    /// The number of the holder's transaction; `None` outside one, and in the moment of a commit.
    fn transaction(&self) -> Option<u32> {
        self.local_id.filter(|id| *id != 0)
    }

    fn scope(&self) -> Option<ScopeEvidence> {
        if self.session.prepared {
            Some(ScopeEvidence::Prepared)
        } else if self.session.idle {
            Some(ScopeEvidence::IdleOutsideTransaction)
        } else if self.session.aborted && self.local_id == Some(0) {
            Some(ScopeEvidence::OutlivedFailedTransaction)
        } else {
            None
        }
    }
}

impl Hold {
    /// The scope, as far as it is proved.
    pub fn scope(&self) -> Scope {
        self.scope.map_or(Scope::Unknown, ScopeEvidence::scope)
    }

    /// Whether a poll before its first sight did not show it; else it was there when we first looked,
    /// and the name it was first seen by may be that of a later user of a pooled connection.
    pub const fn seen_to_begin(&self) -> bool {
        self.presence.not_before.is_some() || self.begin_recalled
    }

    /// The earliest moment at which it can have begun, if any bound is known: the last successful
    /// poll that did not see the row, or the start of its backend. That the holder's transaction
    /// changed since is no bound: what looks like two holds may be one, of the session.
    pub fn earliest_start(&self) -> Option<Timestamp> {
        // A bound after the hold's own start is none: the pid is another backend's by now, or what
        // proves the hold outweighs that it was not seen.
        let holds = |bound: &Timestamp| *bound <= self.since;
        self.presence.not_before.filter(holds).max(self.backend_start.filter(holds))
    }

    fn first_seen(seen: &Sighting<'_>) -> Self {
        let since = seen.held_since();
        let presence = Presence {
            since,
            since_local: seen.sample.local(since),
            not_before: seen.previous,
            local_id: seen.transaction(),
            unbroken: true,
            under_waiter: true,
        };
        Self {
            backend_start: seen.session.backend_start,
            since,
            since_local: presence.since_local,
            proved_since: since,
            is_unbroken: false,
            scope: seen.scope(),
            transactions_seen: u32::from(seen.transaction().is_some()),
            polls: 1,
            polls_outside_transaction: u32::from(seen.local_id == Some(0)),
            first_application_name: seen.session.application_name.clone(),
            begin_recalled: false,
            not_before: presence.not_before,
            poll: seen.poll,
            presence,
        }
    }

    /// A pid that was reused shows another `backend_start`. Where one of the two is hidden, nothing
    /// speaks against the same backend.
    fn is_of(&self, backend_start: Option<Timestamp>) -> bool {
        self.backend_start.is_none()
            || backend_start.is_none()
            || self.backend_start == backend_start
    }

    /// The same row, one poll later (rules 6 and 7).
    fn go_on(&mut self, seen: &Sighting<'_>) -> Continued {
        let unbroken = seen.is_unbroken();
        self.is_unbroken = unbroken;
        self.backend_start = self.backend_start.or(seen.session.backend_start);
        self.presence.unbroken &= unbroken;
        self.presence.under_waiter &= seen.keeps_waiter;
        let held_since = seen.held_since();
        self.proved_since = if unbroken { self.proved_since.min(held_since) } else { held_since };

        let (before, now) = (self.presence.local_id, seen.transaction());
        // A prepared transaction gets another number when the server starts again.
        let changed = now.is_some() && before.is_some() && now != before && !seen.session.prepared;
        let same_transaction = now.is_some() && before.is_some() && !changed;
        let outlived = changed && self.presence.under_waiter;
        let proof =
            seen.scope().or(outlived.then_some(ScopeEvidence::OutlivedTransactionUnderWaiter));
        // Held by the session, or prepared: one hold, whatever the transaction.
        let is_settled = || proof.or(self.scope).is_some() || (seen.declared_session)();
        let one_hold = !changed || self.presence.unbroken || is_settled();

        let mut ended = None;
        if !one_hold {
            ended = Some(self.duration(seen.previous, seen.sample.at));
            self.since = self.proved_since;
            self.since_local = seen.sample.local(self.since);
            self.not_before = seen.previous;
            self.transactions_seen = 0;
            self.polls = 0;
        } else if self.presence.since < self.since && is_settled() {
            // Proof that comes late: it has been one hold from the start.
            self.since = self.presence.since;
            self.since_local = self.presence.since_local;
            self.not_before = self.presence.not_before;
        }
        // A row seen at every poll may turn out to be older than its first sight.
        if held_since < self.since {
            self.since = held_since;
            self.since_local = seen.sample.local(held_since);
        }
        self.scope = if seen.session.prepared { proof } else { self.scope.or(proof) };
        self.poll = seen.poll;
        self.polls += 1;
        self.polls_outside_transaction =
            if seen.local_id == Some(0) { self.polls_outside_transaction + 1 } else { 0 };
        if now.is_some() {
            self.transactions_seen += u32::from(!same_transaction || self.transactions_seen == 0);
            self.presence.local_id = now;
            self.presence.unbroken = true;
            self.presence.under_waiter = true;
        }
        Continued { is_unbroken: unbroken, ended }
    }

    /// The same, when its transaction was prepared: whatever the backend held of this key in
    /// earlier transactions, this hold is of this one.
    fn prepared(self) -> Self {
        let presence = Presence {
            since: self.since,
            since_local: self.since_local,
            not_before: self.not_before,
            ..self.presence
        };
        Self { backend_start: None, presence, ..self }
    }

    fn duration(&self, last_seen: Option<Timestamp>, at: Timestamp) -> Option<Duration> {
        let (last_seen, not_before) = (last_seen?, self.not_before?);
        (self.polls >= 2).then(|| middle(last_seen.since(self.since), at.since(not_before)))
    }
}

impl Wait {
    /// The same backend still in the queue. A wait gets its `waitstart` in its first moments and
    /// keeps it, so one without it is not the wait that had it before.
    fn is_same(&self, seen: &Self) -> bool {
        let same_backend = self.backend_start.is_none()
            || seen.backend_start.is_none()
            || self.backend_start == seen.backend_start;
        same_backend && (self.start.is_none() || self.start == seen.start)
    }

    fn continued(&self, seen: &Self) -> Self {
        // Without a `waitstart` whoever gave up and asked anew looks like who has waited all along.
        let is_same =
            self.start.is_some() || (self.statement.is_some() && self.statement == seen.statement);
        let since = if is_same { self } else { seen };
        Self {
            backend_start: self.backend_start.or(seen.backend_start),
            start: self.start.or(seen.start),
            start_local: self.start_local.or(seen.start_local),
            first_seen: self.first_seen,
            not_before: self.not_before,
            statement: seen.statement,
            seen_since: since.seen_since,
            seen_since_local: since.seen_since_local,
        }
    }
}

#[cfg(test)]
mod simulation;
