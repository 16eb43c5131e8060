//! The published picture: what every way of looking shows.
//!
//! Metrics, JSON, the page and the terminal all read a [`View`] and nothing else, so they cannot
//! disagree. Ages are computed here, on the server's clock, in one place. Pure: drawn from what
//! the tracker knows, never from a connection.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::blocking::{self, Blocker, Chains};
use crate::event::History;
use crate::finding::{Finding, Undecided};
use crate::inspected::Inspected;
use crate::map::{HashMap, HashSet};
use crate::memory::Memory;
use crate::mode::Mode;
use crate::order::Inversion;
use crate::sample::{
    Backend, ClientAddress, DatabaseOid, Facts, FailureReason, LockRow, LockTag, Names, Pid,
    PreparedTransaction, RoleOid, Sample, State, WaitStatistics,
};
use crate::series::{Counters, Label, LockSeries, OTHER, Registered, SeriesSet};
use crate::timestamp::Timestamp;
use crate::tracker::{Hold, HoldId, KeyId, Scope, ScopeEvidence, SessionId, Tracker, Wait, WaitId};

/// One server, as it is published after each poll, failed ones included.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The `server` label.
    pub server: Arc<str>,
    /// What the server told of itself.
    pub facts: Facts,
    /// How polling goes.
    pub polls: Polls,
    /// Why the last poll failed, if it did.
    pub failure: Option<Failure>,
    /// What the last poll saw; `None` after a failed one, so that nothing old poses as new.
    pub picture: Option<Arc<Picture>>,
    /// Distinct entries of the lock table when they were last counted.
    pub table_entries: Option<u64>,
    /// The server's own count of waits, when it was last read; `None` where the server has none.
    pub wait_statistics: Option<WaitStatistics>,
    /// A pooler stands between us and the server: proved, or no sign of it; `None` while it is too
    /// early to say.
    pub pooled_connection: Option<bool>,
    /// What never goes back.
    pub counters: Arc<Counters>,
    /// Locks of the registry whose series have begun.
    pub registered: Arc<BTreeMap<LockSeries, Registered>>,
    /// Databases that have a label, in order.
    pub datnames: Arc<[Arc<str>]>,
    /// Hashes of the registry that the server computes differently; `None` until it was asked.
    pub hash_mismatches: Option<usize>,
    /// What the server's databases told for the registry.
    pub inspected: Arc<Inspected>,
    /// What happened lately; it stays after a failed poll.
    pub events: Arc<History>,
    /// What is to be remembered over a restart; `None` unless somebody keeps it, and before the first
    /// poll.
    pub memory: Option<Arc<Memory>>,
}

/// Why a poll failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its kind.
    pub reason: FailureReason,
    /// The server's or the driver's words: no secret, but hosts, roles and databases.
    pub text: Arc<str>,
}

/// How polling goes.
#[derive(Clone, Debug, Default)]
pub struct Polls {
    /// Polls tried, connecting included.
    pub total: u64,
    /// Of these, those that failed.
    pub failures: HashMap<FailureReason, u64>,
    /// Time between successful polls, each capped at two intervals.
    pub observed: Duration,
    /// The interval asked for.
    pub interval_configured: Duration,
    /// The interval kept: longer when polls take long.
    pub interval: Duration,
    /// How long the last successful poll took, seen from here.
    pub duration: Option<Duration>,
    /// When the last successful poll was, on our clock.
    pub last_success: Option<Timestamp>,
}

/// What one poll saw, understood.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The poll's moment on the server's clock: every age in the picture is an age at this moment.
    pub at: Timestamp,
    /// The same moment on our clock.
    pub at_local: Timestamp,
    /// The server is a standby.
    pub in_recovery: bool,
    /// When the first sample was taken, on the server's clock: what was before is only known where a
    /// later one proves it.
    pub watching_since: Timestamp,
    /// Every key held or awaited, in order.
    pub locks: Vec<Lock>,
    /// Keys that nobody holds or awaits and of which something is to be said, in order.
    pub free: Vec<Lock>,
    /// Pairs of keys that were seen taken in both orders, the newest first; drawn without any, as
    /// locks are without findings.
    pub inversions: Vec<Arc<Inversion>>,
    /// What entries expect of keys that were not watched for long enough to tell, in order.
    pub undecided: Vec<Undecided>,
    /// Granted advisory rows read, before any grouping.
    pub rows_granted: usize,
    /// Waiting advisory rows read.
    pub rows_waiting: usize,
    /// Databases of the server whose names are known.
    pub databases: usize,
    /// Other sessions' state can be seen; `None` when activity was not read.
    pub privileges_sufficient: Option<bool>,
    /// Who waits for whom.
    pub chains: Chains,
    /// Where chains end that a key is part of, who keeps most others waiting first.
    pub roots: Vec<Root>,
    /// Who waits for a lock of another type and is in a chain that a key is part of, the longest
    /// first.
    pub other_waits: Vec<OtherWait>,
    /// Every backend, locks or none; empty when activity was not read.
    pub sessions: HashMap<Pid, Arc<Session>>,
}

/// One key with everybody on it.
#[derive(Clone, Debug)]
pub struct Lock {
    /// The key and its database.
    pub id: KeyId,
    /// Its names.
    pub label: Arc<Label>,
    /// Who holds it, one entry a session, whatever its number of rows.
    pub holders: Vec<Holder>,
    /// Who waits for it.
    pub waiters: Vec<Waiter>,
    /// What is to be said of it; drawn without any, which come when the picture is judged.
    pub findings: Vec<Finding>,
}

/// A session, as far as it can be seen.
#[derive(Clone, Debug)]
pub struct Session {
    /// `backend_start`
    pub backend_start: Option<Timestamp>,
    /// `application_name` as it is now
    pub application_name: Option<Arc<str>>,
    /// The same as a label: rewritten and bounded.
    pub application_label: Arc<str>,
    /// Its database.
    pub database: Option<DatabaseOid>,
    /// Its role, which is known without a name too.
    pub role: Option<RoleOid>,
    /// The role's name.
    pub usename: Option<Arc<str>>,
    /// `client_addr`
    pub client_addr: Option<IpAddr>,
    /// `client_port`
    pub client_port: Option<i32>,
    /// `state`
    pub state: State,
    /// `state_change`, where it counts: what is later than the poll's moment says nothing of what
    /// the lock table showed.
    pub state_since: Option<Timestamp>,
    /// `wait_event_type/wait_event`
    pub wait_event: Option<Arc<str>>,
}

/// Somebody as they were seen at one moment, to be told of later.
#[derive(Clone, Debug)]
pub struct Party {
    /// Backend or prepared transaction.
    pub id: SessionId,
    /// The backend; all of it unknown for a prepared transaction.
    pub session: Arc<Session>,
}

/// Who holds a key.
#[derive(Clone, Debug)]
pub struct Holder {
    /// Backend or prepared transaction.
    pub id: SessionId,
    /// The backend; all of it unknown for a prepared transaction.
    pub session: Arc<Session>,
    /// The prepared transaction, where it is one and its gid is known.
    pub prepared: Option<Arc<Prepared>>,
    /// The strongest of its modes.
    pub mode: Mode,
    /// Its other modes, weaker ones last; for nearly all there is none.
    pub weaker_modes: Vec<Mode>,
    /// The name its backend went by when it was first seen with this key.
    pub first_application_name: Option<Arc<str>>,
    /// A poll before that did not show it; else that name may be of a later user of the connection.
    pub seen_to_begin: bool,
    /// Proved scope.
    pub scope: Scope,
    /// What proves it.
    pub scope_evidence: Option<ScopeEvidence>,
    /// Polls in a row outside a transaction: a hint at session level where the state is hidden.
    pub polls_outside_transaction: u32,
    /// Seen held at every poll since, or proved held since.
    pub since: Timestamp,
    /// The same on our clock.
    pub since_local: Timestamp,
    /// Held without a gap since, for certain.
    pub proved_since: Timestamp,
    /// Not held yet at this moment, if a bound is known.
    pub not_before: Option<Timestamp>,
    /// Transactions in which it was seen.
    pub transactions_seen: u32,
    /// A transaction id is assigned: it has written. `None` where there is no backend to tell.
    pub has_written: Option<bool>,
    /// Where its own chain ends, if it waits for a lock of any type itself.
    pub roots: Option<Arc<[Root]>>,
    /// Sessions that wait for it, directly or through others, by locks of any type.
    pub blocks: usize,
    /// The types of the locks for which somebody waits for it directly.
    pub blocks_through: Arc<[Arc<str>]>,
    /// Who is let in at once when it lets go of this key; `None` where that is not known.
    pub frees_next: Option<Arc<[SessionId]>>,
    /// Since when this hold has kept others waiting, with short breaks at most; known once the
    /// picture is judged.
    pub contended_since: Option<Timestamp>,
    /// The same on our clock.
    pub contended_since_local: Option<Timestamp>,
    /// Waits that were seen to end without the lock behind this hold.
    pub waits_gone: u32,
    /// Everything its session was seen to hold, this key too.
    locks: Arc<LockCounts>,
}

/// How many locks of each type somebody holds, as far as a sample shows them.
type LockCounts = BTreeMap<Arc<str>, usize>;

/// A prepared transaction that holds a key, or keeps somebody waiting who waits for one.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The transaction.
    pub transaction: PreparedTransaction,
    /// Its owner's name.
    pub owner: Option<Arc<str>>,
}

/// Who waits for a key.
#[derive(Clone, Debug)]
pub struct Waiter {
    /// The backend.
    pub id: SessionId,
    /// What is seen of it.
    pub session: Arc<Session>,
    /// The mode it asks for.
    pub mode: Mode,
    /// `waitstart`
    pub since: Option<Timestamp>,
    /// The same on our clock.
    pub since_local: Option<Timestamp>,
    /// Every poll since this one has seen it wait, in one statement or since one `waitstart`.
    pub seen_since: Timestamp,
    /// The same on our clock.
    pub seen_since_local: Timestamp,
    /// Age of its snapshot, in transactions: what it keeps vacuum from removing.
    pub snapshot_age: Option<u32>,
    /// Whom it waits for directly: the first of them, holders before those ahead in the queue.
    pub blocked_by: Vec<Blocker>,
    /// How many there are of these.
    pub blocker_count: usize,
    /// Where its chain ends; shared with all waiters whose chains end there. Empty where nobody is
    /// seen to block it.
    pub roots: Arc<[Root]>,
}

/// Somebody at whom chains end.
#[derive(Clone, Debug)]
pub struct Root {
    /// Backend or prepared transaction.
    pub id: SessionId,
    /// The backend; all of it unknown for a prepared transaction.
    pub session: Arc<Session>,
    /// The prepared transaction, where it is one and its gid is known; it need not hold a key.
    pub prepared: Option<Arc<Prepared>>,
    /// It waits in a circle.
    pub is_in_cycle: bool,
    /// Sessions that wait for it, directly or through others.
    pub blocks: usize,
}

/// Who waits for a lock of another type than advisory.
#[derive(Clone, Debug)]
pub struct OtherWait {
    /// The backend; the leader of a parallel worker.
    pub id: SessionId,
    /// What is seen of it.
    pub session: Arc<Session>,
    /// What it waits for.
    pub tag: LockTag,
    /// The name of the database in which that is, where it is in one.
    pub datname: Option<Arc<str>>,
    /// The mode it asks for.
    pub mode: Mode,
    /// `waitstart`
    pub since: Option<Timestamp>,
    /// Whom it waits for directly: the first of them, holders before those ahead in the queue.
    pub blocked_by: Vec<Blocker>,
    /// How many there are of these.
    pub blocker_count: usize,
}

/// How many of a waiter's blockers are named, and of everything else that may be as long as there
/// are sessions: each of a thousand waiters for one key has up to a thousand.
pub const NAMED: usize = 20;

impl View {
    /// The picture, unless it is too old to pass for the present: a poll that hangs must not leave
    /// the last one standing. Three intervals, and three seconds at least.
    pub fn fresh_picture(&self, now: Timestamp) -> Option<&Picture> {
        let patience = (3 * self.polls.interval).max(Duration::from_secs(3))
            + self.polls.duration.unwrap_or_default();
        self.picture.as_deref().filter(|picture| now.since(picture.at_local) <= patience)
    }
}

impl Party {
    /// A holder as it is now.
    pub fn of_holder(holder: &Holder) -> Self {
        Self { id: holder.id.clone(), session: holder.session.clone() }
    }

    /// A waiter as it is now.
    pub fn of_waiter(waiter: &Waiter) -> Self {
        Self { id: waiter.id.clone(), session: waiter.session.clone() }
    }

    /// Not only the same pid, which is given out again.
    pub fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.session.backend_start == other.session.backend_start
    }
}

impl Lock {
    /// A key that nobody holds or awaits.
    pub(crate) const fn free(id: KeyId, label: Arc<Label>, findings: Vec<Finding>) -> Self {
        Self { id, label, holders: Vec::new(), waiters: Vec::new(), findings }
    }
}

impl Picture {
    /// The key with everybody on it; `None` where nobody is.
    pub fn lock(&self, id: KeyId) -> Option<&Lock> {
        let index = self.locks.binary_search_by_key(&id, |lock| lock.id).ok()?;
        self.locks.get(index)
    }

    /// `primary` or `standby`.
    pub const fn role(&self) -> &'static str {
        if self.in_recovery { "standby" } else { "primary" }
    }

    /// The server's clock minus ours.
    #[expect(clippy::cast_precision_loss, reason = "clocks are not centuries apart")]
    pub fn clock_offset_seconds(&self) -> f64 {
        self.at.unix_micros().saturating_sub(self.at_local.unix_micros()) as f64 / 1e6
    }

    /// Draws the picture of one sample that the tracker has folded in.
    pub fn draw(
        sample: &Sample,
        tracker: &Tracker,
        chains: Chains,
        names: &Names,
        series: &SeriesSet,
    ) -> Self {
        let scene = Scene::of(sample, tracker, &chains, names, series);
        // By key, since there may be very many: a sorted list is quicker than a map. Of one key the
        // strongest mode first: what a session is said of must not depend on a hash map.
        let mut holds: Vec<_> = tracker.holds().iter().collect();
        holds.sort_unstable_by_key(|(id, _)| (id.key, std::cmp::Reverse(id.mode.strength())));
        let mut waits: Vec<_> = tracker.waits().iter().collect();
        waits.sort_unstable_by_key(|(id, _)| id.key);
        let locks = draw_locks(&scene, &holds, &waits, series);
        let on_keys = scene.find_on_keys(tracker);
        let roots = chains.ends(on_keys.iter().copied());
        let roots = roots.iter().map(|root| scene.draw_root(root)).collect();
        let other_waits = scene.draw_other_waits(sample, tracker, names, &on_keys);
        let sessions = scene.sessions;
        Self {
            at: sample.at,
            at_local: sample.at_local,
            in_recovery: sample.in_recovery,
            watching_since: sample.at,
            locks,
            free: Vec::new(),
            inversions: Vec::new(),
            undecided: Vec::new(),
            rows_granted: sample.advisory_rows(true),
            rows_waiting: sample.advisory_rows(false),
            databases: names.databases.len(),
            privileges_sufficient: sample.backends.as_ref().map(|backends| {
                backends.iter().all(|backend| backend.pid == sample.own_pid || !backend.is_hidden())
            }),
            sessions,
            roots,
            other_waits,
            chains,
        }
    }
}

/// Who is in a sample, drawn once for all the keys they hold.
struct Scene<'a> {
    chains: &'a Chains,
    locks: HashMap<SessionId, Arc<LockCounts>>,
    roots: HashMap<SessionId, Arc<[Root]>>,
    /// Of all who hold something: drawn once for a session, which may hold very many keys.
    through: HashMap<SessionId, Arc<[Arc<str>]>>,
    sessions: HashMap<Pid, Arc<Session>>,
    snapshot_ages: HashMap<Pid, u32>,
    writers: HashSet<Pid>,
    prepared: HashMap<SessionId, Arc<Prepared>>,
    /// A backend of which nothing is seen.
    unknown: Arc<Session>,
    /// In place of the session that a prepared transaction has not.
    none: Arc<Session>,
}

impl<'a> Scene<'a> {
    fn of(
        sample: &Sample,
        tracker: &Tracker,
        chains: &'a Chains,
        names: &Names,
        series: &SeriesSet,
    ) -> Self {
        let backends = || sample.backends.iter().flatten();
        let locks = count_locks(sample, tracker);
        let mut scene = Self {
            chains,
            through: locks
                .keys()
                .map(|id| (id, chains.blocks_through(id)))
                .filter(|(_, through)| !through.is_empty())
                .map(|(id, through)| (id.clone(), through.into_iter().map(Arc::from).collect()))
                .collect(),
            locks,
            roots: HashMap::default(),
            sessions: backends()
                .map(|one| (one.pid, Arc::new(Session::of(one, sample.at, names, series))))
                .collect(),
            snapshot_ages: backends()
                .filter_map(|one| Some((one.pid, one.snapshot_age?)))
                .collect(),
            writers: sample
                .other_locks
                .iter()
                .filter(|row| row.granted && &*row.tag.locktype == "transactionid")
                .filter_map(|row| row.pid)
                .collect(),
            // Each has the lock on its own transaction id, whatever else it holds.
            prepared: sample
                .other_locks
                .iter()
                .filter(|row| row.pid.is_none() && row.granted)
                .filter_map(|row| {
                    let transaction = tracker.prepared(&row.transaction)?.clone();
                    let owner = names.roles.get(&transaction.owner).cloned();
                    let id = tracker.owner(row.pid, &row.transaction);
                    Some((id, Arc::new(Prepared { transaction, owner })))
                })
                .collect(),
            unknown: Arc::new(Session::unknown(series.application_label(None))),
            none: Arc::new(Session::unknown(series.prepared_label())),
        };
        scene.roots = scene.draw_roots(tracker);
        scene
    }

    fn draw_roots(&self, tracker: &Tracker) -> HashMap<SessionId, Arc<[Root]>> {
        let mut drawn: HashMap<*const blocking::Root, Arc<[Root]>> = HashMap::default();
        // A worker of somebody else's statement is not among those who wait, but its leader is.
        let waiters = tracker.waits().keys().map(|id| &id.waiter).chain(self.chains.waiters());
        let draw = |waiter: &SessionId| {
            let roots = self.chains.roots(waiter);
            let drawn = drawn
                .entry(roots.as_ptr())
                .or_insert_with(|| roots.iter().map(|root| self.draw_root(root)).collect());
            (waiter.clone(), drawn.clone())
        };
        waiters.map(draw).collect()
    }

    fn draw_root(&self, root: &blocking::Root) -> Root {
        Root {
            id: root.id.clone(),
            session: match root.id {
                SessionId::Backend(_) => self.draw_session(&root.id, None),
                SessionId::Prepared(_) | SessionId::Nameless(_) => self.none.clone(),
            },
            prepared: self.prepared.get(&root.id).cloned(),
            is_in_cycle: root.is_in_cycle,
            blocks: self.chains.sessions_behind(&root.id),
        }
    }

    /// Who holds a key or waits for one; nobody where there are no chains that they could be part of.
    fn find_on_keys<'b>(&'b self, tracker: &'b Tracker) -> Vec<&'b SessionId> {
        if self.chains.waiters().next().is_none() {
            return Vec::new();
        }
        let holds_key = |counts: &LockCounts| counts.contains_key("advisory");
        let holders = self.locks.iter().filter(|(_, counts)| holds_key(counts)).map(|(id, _)| id);
        holders.chain(tracker.waits().keys().map(|id| &id.waiter)).collect()
    }

    fn draw_other_waits(
        &self,
        sample: &Sample,
        tracker: &Tracker,
        names: &Names,
        on_keys: &[&SessionId],
    ) -> Vec<OtherWait> {
        let rows: Vec<_> = sample.other_locks.iter().filter(|row| !row.granted).collect();
        if rows.is_empty() || on_keys.is_empty() {
            return Vec::new();
        }
        let chains = self.chains;
        let involved = chains.in_chains_of(on_keys.iter().copied());
        let draw = |row: &LockRow| {
            let id = chains.member(&tracker.owner(row.pid, &row.transaction))?;
            involved.contains(id).then(|| OtherWait {
                id: id.clone(),
                session: self.draw_session(id, None),
                tag: row.tag.clone(),
                datname: row
                    .tag
                    .database
                    .and_then(|database| names.databases.get(&database))
                    .map(|database| database.name.clone()),
                mode: row.mode.clone(),
                since: row.wait_start,
                blocked_by: chains.blockers(id).take(NAMED).collect(),
                blocker_count: chains.blocker_count(id),
            })
        };
        let mut waits: Vec<OtherWait> = rows.into_iter().filter_map(draw).collect();
        waits.sort_by(|a, b| {
            let order = |wait: &OtherWait| (wait.since.is_none(), wait.since);
            order(a).cmp(&order(b)).then_with(|| a.id.cmp(&b.id))
        });
        // Workers of one statement may wait for the same.
        let mut seen = HashSet::default();
        waits.retain(|wait| seen.insert((wait.id.clone(), wait.tag.clone(), wait.mode.clone())));
        waits
    }

    /// A backend without activity is unknown but for what was seen of it before.
    fn draw_session(&self, id: &SessionId, known_start: Option<Timestamp>) -> Arc<Session> {
        let session = id.pid().and_then(|pid| self.sessions.get(&pid)).unwrap_or(&self.unknown);
        if session.backend_start.is_some() || known_start.is_none() {
            session.clone()
        } else {
            Arc::new(Session { backend_start: known_start, ..Session::clone(session) })
        }
    }

    fn draw_holder(&self, hold_id: &HoldId, hold: &Hold) -> Holder {
        let (id, chains) = (&hold_id.holder, self.chains);
        Holder {
            id: id.clone(),
            session: match id {
                SessionId::Backend(_) => self.draw_session(id, hold.backend_start),
                SessionId::Prepared(_) | SessionId::Nameless(_) => self.none.clone(),
            },
            prepared: self.prepared.get(id).cloned(),
            mode: hold_id.mode.clone(),
            weaker_modes: Vec::new(),
            first_application_name: hold.first_application_name.clone(),
            seen_to_begin: hold.seen_to_begin(),
            scope: hold.scope(),
            scope_evidence: hold.scope,
            polls_outside_transaction: hold.polls_outside_transaction,
            since: hold.since,
            since_local: hold.since_local,
            proved_since: hold.proved_since,
            not_before: hold.earliest_start(),
            transactions_seen: hold.transactions_seen,
            has_written: id.pid().map(|pid| self.writers.contains(&pid)),
            roots: self.roots.get(id).cloned(),
            blocks: chains.sessions_behind(id),
            blocks_through: self.through.get(id).cloned().unwrap_or_default(),
            frees_next: chains.next_holders(hold_id.key, id),
            contended_since: None,
            contended_since_local: None,
            waits_gone: 0,
            locks: self.locks.get(id).cloned().unwrap_or_default(),
        }
    }

    fn draw_waiter(&self, wait_id: &WaitId, wait: &Wait) -> Waiter {
        let (id, chains) = (&wait_id.waiter, self.chains);
        Waiter {
            id: id.clone(),
            session: self.draw_session(id, wait.backend_start),
            mode: wait_id.mode.clone(),
            since: wait.start,
            since_local: wait.start_local,
            seen_since: wait.seen_since,
            seen_since_local: wait.seen_since_local,
            snapshot_age: id.pid().and_then(|pid| self.snapshot_ages.get(&pid)).copied(),
            blocked_by: chains.blockers(id).take(NAMED).collect(),
            blocker_count: chains.blocker_count(id),
            roots: self.roots.get(id).cloned().unwrap_or_default(),
        }
    }
}

/// The locks of these holds and waits, both in order of their keys.
fn draw_locks(
    scene: &Scene<'_>,
    mut holds: &[(&HoldId, &Hold)],
    mut waits: &[(&WaitId, &Wait)],
    series: &SeriesSet,
) -> Vec<Lock> {
    let mut locks = Vec::with_capacity(holds.len() + waits.len());
    loop {
        let (held, awaited) = (holds.first(), waits.first());
        let next = [held.map(|(id, _)| id.key), awaited.map(|(id, _)| id.key)];
        let Some(key) = next.into_iter().flatten().min() else { return locks };
        let of_key = holds.iter().take_while(|(id, _)| id.key == key).count();
        let (held, rest) = holds.split_at(of_key);
        holds = rest;
        let of_key = waits.iter().take_while(|(id, _)| id.key == key).count();
        let (awaited, rest) = waits.split_at(of_key);
        waits = rest;
        let Some(label) = series.label(key) else { continue };
        let mut holders: Vec<Holder> = Vec::with_capacity(held.len());
        for (id, hold) in held {
            match holders.iter_mut().find(|holder| holder.id == id.holder) {
                Some(holder) => holder.join(&id.mode, hold),
                None => holders.push(scene.draw_holder(id, hold)),
            }
        }
        holders.sort_by(|a, b| (a.since, &a.id).cmp(&(b.since, &b.id)));
        let mut waiters: Vec<Waiter> =
            awaited.iter().map(|(id, wait)| scene.draw_waiter(id, wait)).collect();
        // The longest wait first; one that has no start yet has only just begun.
        waiters
            .sort_by_cached_key(|waiter| (waiter.since.is_none(), waiter.since, waiter.id.clone()));
        locks.push(Lock { id: key, label: label.clone(), holders, waiters, findings: Vec::new() });
    }
}

/// What everybody holds, by type. Advisory locks are counted as keys and modes, as the server's
/// rows are.
fn count_locks(sample: &Sample, tracker: &Tracker) -> HashMap<SessionId, Arc<LockCounts>> {
    let advisory: Arc<str> = "advisory".into();
    let groups = sample.advisory.iter().filter(|group| group.granted);
    let groups = groups.map(|group| (tracker.session_id(group), &advisory, group.keys.len()));
    let rows = sample.other_locks.iter().filter(|row| row.granted);
    let rows = rows.map(|row| (tracker.owner(row.pid, &row.transaction), &row.tag.locktype, 1));
    let mut counts: HashMap<SessionId, LockCounts> = HashMap::default();
    for (id, locktype, count) in groups.chain(rows) {
        *counts.entry(id).or_default().entry(locktype.clone()).or_default() += count;
    }
    counts.into_iter().map(|(id, counts)| (id, Arc::new(counts))).collect()
}

impl Session {
    fn of(backend: &Backend, at: Timestamp, names: &Names, series: &SeriesSet) -> Self {
        Self {
            backend_start: backend.backend_start,
            application_label: series.application_label(backend.application_name.as_ref()),
            application_name: backend.application_name.clone(),
            database: backend.database,
            role: backend.role,
            usename: backend.role.and_then(|role| names.roles.get(&role)).cloned(),
            client_addr: backend.client_addr,
            client_port: backend.client_port,
            state: backend.state.clone(),
            state_since: backend.state_change.filter(|change| *change <= at),
            wait_event: backend.wait_event.clone(),
        }
    }

    fn unknown(application_label: Arc<str>) -> Self {
        Self {
            backend_start: None,
            application_name: None,
            application_label,
            database: None,
            role: None,
            usename: None,
            client_addr: None,
            client_port: None,
            state: State::Unknown,
            state_since: None,
            wait_event: None,
        }
    }

    /// The name, where its label is not its own but that of all past the bound.
    pub fn folded_application(&self) -> Option<&str> {
        let is_folded = |name: &&str| &*self.application_label == OTHER && *name != OTHER;
        self.application_name.as_deref().filter(is_folded)
    }

    /// Where its client connects from; `None` where that is hidden.
    pub fn client_address(&self) -> Option<ClientAddress> {
        ClientAddress::from_columns(self.client_addr, self.client_port)
    }

    /// Whether it was idle outside of a transaction since before the poll began, for certain.
    pub fn is_idle(&self) -> bool {
        self.state == State::Idle && self.state_since.is_some()
    }

    /// The server's word for what it does; `None` where that is hidden.
    pub fn known_state(&self) -> Option<&str> {
        (self.state != State::Unknown).then(|| self.state.as_str())
    }
}

impl Holder {
    /// A further row of the same session: the key in a weaker mode. It has held the key since the
    /// earlier of the two.
    fn join(&mut self, mode: &Mode, hold: &Hold) {
        self.weaker_modes.push(mode.clone());
        if hold.since < self.since {
            self.since = hold.since;
            self.since_local = hold.since_local;
            self.first_application_name = hold.first_application_name.clone();
            self.seen_to_begin = hold.seen_to_begin();
        }
        // A mode without a bound leaves the session without one.
        self.not_before = self.not_before.min(hold.earliest_start());
        self.proved_since = self.proved_since.min(hold.proved_since);
        self.transactions_seen = self.transactions_seen.max(hold.transactions_seen);
        self.polls_outside_transaction =
            self.polls_outside_transaction.max(hold.polls_outside_transaction);
        if self.scope_evidence.is_none() {
            self.scope = hold.scope();
            self.scope_evidence = hold.scope;
        }
    }

    /// What else its session holds, by type: other advisory locks, and those of other types that are
    /// outside the fast path, relations only where somebody waits for them.
    pub fn other_locks(&self) -> BTreeMap<&Arc<str>, usize> {
        let own = self.modes().count();
        let own_of = |locktype: &str| if locktype == "advisory" { own } else { 0 };
        self.locks
            .iter()
            .map(|(locktype, count)| (locktype, count.saturating_sub(own_of(locktype))))
            .filter(|(_, count)| *count > 0)
            .collect()
    }

    /// All of its modes, the strongest first.
    pub fn modes(&self) -> impl Iterator<Item = &Mode> {
        std::iter::once(&self.mode).chain(&self.weaker_modes)
    }

    /// The label `state`.
    pub fn state_label(&self) -> &str {
        state_label(&self.id, &self.session)
    }
}

impl Root {
    /// The label `state`.
    pub fn state_label(&self) -> &str {
        state_label(&self.id, &self.session)
    }

    /// The label `kind`.
    pub const fn kind_label(&self) -> &'static str {
        match self.id {
            SessionId::Prepared(_) | SessionId::Nameless(_) => "prepared",
            SessionId::Backend(_) => "session",
        }
    }
}

fn state_label<'a>(id: &SessionId, session: &'a Session) -> &'a str {
    match id {
        SessionId::Prepared(_) | SessionId::Nameless(_) => "prepared",
        SessionId::Backend(_) => session.state.as_str(),
    }
}
