//! What is judged: one rule for each finding, when and about whom.
//!
//! A finding is about a key and the sessions that hold or await it. Rules see what everybody sees,
//! the [`Picture`] of a poll, and put what they find into it, so that the metrics and the JSON
//! cannot disagree. What is unknown satisfies no rule. Ages are taken at the moment of the poll, on
//! the server's clock; limits come from the registry where an entry says one, else from the
//! configuration. Pure; the words are made in `sentence`, for whoever may read them.

mod contention;
mod cycle;
mod expectation;
mod gap;
mod inversion;
mod pooled;
mod sentence;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use self::expectation::Expectation;

use self::contention::Contentions;
use self::expectation::Expectations;
pub use self::gap::{Gap, Undecided};
use self::inversion::judge_inversions;
use self::pooled::{Namesakes, Sharing, SharingWatch};
pub(crate) use self::sentence::render_inversion;
use self::sentence::{ChainEnd, Evidence, NameDoubt, Who};
use crate::config::{Applications, Poolers, Thresholds};
use crate::map::{HashMap, HashSet};
use crate::memory::FirstName;
use crate::registry::{DeclaredScope, Glob, Limit, Resolution, Role};
use crate::sample::{ClientAddress, Names, Pid, State};
use crate::series::{LockSeries, NO_APPLICATION, Registered};
use crate::timestamp::Timestamp;
use crate::tracker::{Change, KeyId, Scope, SessionId};
use crate::view::{Holder, Lock, NAMED, Picture, Waiter};

/// Something about a key that somebody should look at.
#[derive(Clone, Debug)]
pub struct Finding {
    /// Which rule.
    pub kind: FindingKind,
    /// How urgent.
    pub severity: Severity,
    /// Whom it is about, the worst first: sessions, or prepared transactions. Nobody where it is about
    /// the key.
    pub sessions: Vec<SessionId>,
    /// Sessions beside these that are not kept.
    left_out: usize,
    /// What was seen of the first of them.
    evidence: Evidence,
    /// What has to be mended instead: to end the holder would do harm.
    remedied_by: Option<Arc<Evidence>>,
}

/// The rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// Held for longer than `max_hold`.
    HeldTooLong,
    /// Awaited for longer than `max_wait`, by one session or by many that gave up.
    WaitingTooLong,
    /// A holder that does nothing has kept others waiting for longer than `max_wait`.
    Stuck,
    /// A circle of waits that closes in a program and that no deadlock detector sees.
    HiddenCycle,
    /// Held by a session that does nothing in its transaction.
    HolderIdleInTransaction,
    /// Held by a transaction that was prepared and is neither committed nor rolled back.
    HeldByPreparedTransaction,
    /// Held at session level over a connection that several clients seem to share.
    PooledBackend,
    /// A waiter keeps vacuum from removing what was deleted since it took its snapshot.
    WaiterHoldsBackVacuum,
    /// One session holds very many keys.
    TooManyKeys,
    /// Held by a program that `holders` does not list.
    UnexpectedHolder,
    /// Held by the session where the entry says by the transaction, or prepared where it says by the
    /// session.
    UnexpectedScope,
    /// Held by nobody, and it must be held.
    Vacant,
    /// Not seen held for longer than `last_held_within`.
    Missed,
    /// Held by another session sooner than `not_again_within` after the hold before began.
    Repeated,
    /// Changes hands again and again, and must be held.
    Flapping,
    /// Taken before another key and after it, so that two sessions may deadlock.
    OrderInversion,
}

/// How urgent a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// In working hours.
    Warning,
    /// Now.
    Critical,
}

/// Judges one server, poll by poll.
#[derive(Debug)]
pub struct Judge {
    thresholds: Thresholds,
    /// How names are rewritten before they are compared with those of an entry.
    applications: Arc<Applications>,
    /// Entries that the server's lock table promises to hold.
    table_capacity: Option<u64>,
    contentions: Contentions,
    sharing: SharingWatch,
    expectations: Expectations,
    /// The first sample, on the server's clock.
    watching_since: Option<Timestamp>,
}

/// What is around a key when it is judged.
#[derive(Clone, Copy)]
struct Surroundings<'a> {
    at: Timestamp,
    in_recovery: bool,
    crowded: &'a Crowded,
    namesakes: &'a Namesakes<'a>,
    /// Hidden circles by the sessions whose end would do harm.
    spared: &'a HashMap<Pid, Arc<Evidence>>,
    own_pooler: Option<ClientAddress>,
}

/// What is judged beside a picture.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'a> {
    /// What its sample changed.
    pub changes: &'a [Change],
    /// Time since the sample before, as far as that may be taken to stand for it.
    pub elapsed: Duration,
    /// Locks of the registry, held or not.
    pub registered: &'a BTreeMap<LockSeries, Registered>,
    /// The databases that are there.
    pub names: &'a Names,
    /// From where the pooler reaches the server that stands before it for certain, if one does.
    pub own_pooler: Option<ClientAddress>,
}

impl Judge {
    /// Nothing is judged yet.
    pub fn new(thresholds: Thresholds, applications: Arc<Applications>) -> Self {
        Self {
            thresholds,
            sharing: SharingWatch::new(applications.clone()),
            applications,
            table_capacity: None,
            contentions: Contentions::default(),
            expectations: Expectations::default(),
            watching_since: None,
        }
    }

    /// The same, with the addresses of the server's poolers.
    pub fn with_poolers(mut self, poolers: Poolers) -> Self {
        self.sharing = self.sharing.with_poolers(poolers);
        self
    }

    /// The name by which a hold's backend went when it was first seen idle with the key: later names
    /// are compared with that one.
    pub fn idle_name(&self, key: KeyId, holder: &Holder) -> Option<&Arc<str>> {
        self.sharing.idle_name(key, holder)
    }

    /// Such names from before a restart, for holds that are there at the next poll.
    pub fn recall_idle_names(&mut self, names: &[FirstName]) {
        self.sharing.recall(names);
    }

    /// Other thresholds, and other names of applications, from the next picture on.
    pub fn observe_rules(&mut self, thresholds: Thresholds, applications: Arc<Applications>) {
        self.thresholds = thresholds;
        self.sharing.observe_applications(applications.clone());
        self.applications = applications;
    }

    /// How many entries the server's lock table promises to hold.
    pub const fn observe_table_capacity(&mut self, capacity: Option<u64>) {
        self.table_capacity = capacity;
    }

    /// What an entry of the registry waits for, as far as it was seen to come.
    pub fn expectations(&self) -> Vec<Expectation> {
        self.expectations.remembered()
    }

    /// Takes over what an earlier process saw. What this one has seen since goes first.
    pub fn recall(&mut self, expectations: Vec<Expectation>, now: Timestamp) {
        self.expectations.recall(expectations, now);
    }

    /// What was seen was of another cluster.
    pub fn observe_other_cluster(&mut self) {
        self.expectations = Expectations::default();
        self.watching_since = None;
    }

    /// Puts into a picture what is to be said of it.
    pub fn observe(&mut self, picture: &mut Picture, moment: Moment<'_>) {
        picture.watching_since = *self.watching_since.get_or_insert(picture.at);
        self.contentions.observe(picture, moment.changes, moment.elapsed);
        self.sharing.observe(picture);
        let crowded = self.crowded_sessions(picture);
        let namesakes = self.sharing.namesakes(&picture.sessions);
        let mut cycles = cycle::find(picture, &self.sharing, moment.own_pooler);
        let mut spared = HashMap::default();
        for evidence in cycles.values().map(|cycle| &cycle.evidence) {
            if let Some(root) = evidence.spares() {
                spared.entry(root).or_insert_with(|| Arc::new(evidence.clone()));
            }
        }
        let around = Surroundings {
            at: picture.at,
            in_recovery: picture.in_recovery,
            crowded: &crowded,
            namesakes: &namesakes,
            spared: &spared,
            own_pooler: moment.own_pooler,
        };
        for lock in &mut picture.locks {
            lock.findings = self.judge(lock, cycles.remove(&lock.id), around);
        }
        self.expectations.observe(picture, &moment, self.thresholds.holder_changes);
        judge_inversions(picture);
    }

    fn judge(&self, lock: &Lock, cycle: Option<Finding>, around: Surroundings<'_>) -> Vec<Finding> {
        let Surroundings { at, in_recovery, crowded, .. } = around;
        let is_meant = is_meant(lock.label.resolution.role.unwrap_or(Role::Any), in_recovery);
        let rules = [
            held_too_long(lock, at),
            waiting_too_long(lock, at),
            stuck(lock, at),
            cycle,
            self.holder_idle_in_transaction(lock, at),
            self.held_by_prepared_transaction(lock, at),
            self.pooled_backend(lock, around),
            self.waiter_holds_back_vacuum(lock),
            self.too_many_keys(lock, crowded),
            self.unexpected_holder(lock, around).filter(|_| is_meant),
            unexpected_scope(lock).filter(|_| is_meant),
        ];
        let mut findings: Vec<Finding> = rules.into_iter().flatten().collect();
        let cycle = findings.iter().find(|finding| finding.kind == FindingKind::HiddenCycle);
        let cycle = cycle.map(|cycle| Arc::new(cycle.evidence.clone()));
        // A deadlock in effect: who is kept waiting is freed by no other way without harm, and whose
        // end would do harm at one key has others too.
        for finding in findings.iter_mut().filter(|finding| finding.kind.ends_with_the_cycle()) {
            let spared =
                || finding.evidence.ends().find_map(|pid| around.spared.get(&pid).cloned());
            finding.remedied_by = cycle.clone().or_else(spared);
        }
        findings
    }

    /// Idle in a transaction, failed ones included, since before the poll began.
    fn holder_idle_in_transaction(&self, lock: &Lock, at: Timestamp) -> Option<Finding> {
        let limit = lock.label.resolution.max_idle_in_transaction;
        let limit = limit.unwrap_or(Limit::Of(self.thresholds.idle_in_transaction));
        let idle_for = |holder: &Holder| {
            let is_outside = holder.session.state == State::Idle;
            let idle_for = idle_for(holder, at).filter(|_| !is_outside);
            idle_for.and_then(|time| longer(time, limit))
        };
        of_holders(FindingKind::HolderIdleInTransaction, lock, idle_for, |holder, idle_for| {
            let is_aborted = holder.session.state == State::IdleInTransactionAborted;
            Evidence::IdleInTransaction { who: Who::of_holder(holder), idle_for, is_aborted, limit }
        })
    }

    fn held_by_prepared_transaction(&self, lock: &Lock, at: Timestamp) -> Option<Finding> {
        let limit = Limit::Of(self.thresholds.prepared);
        let prepared_for = |holder: &Holder| {
            let prepared = holder.prepared.as_ref()?;
            longer(at.since(prepared.transaction.prepared_at), limit)
        };
        of_holders(FindingKind::HeldByPreparedTransaction, lock, prepared_for, |holder, age| {
            Evidence::Prepared { who: Who::of_holder(holder), prepared_for: age, limit }
        })
    }

    fn pooled_backend(&self, lock: &Lock, around: Surroundings<'_>) -> Option<Finding> {
        let mut severity = Severity::Warning;
        let sharing = |holder: &Holder| self.sharing(lock, holder, around);
        let measure = |holder: &Holder| Some((sharing(holder)?.severity(), Reverse(holder.since)));
        let finding =
            of_holders(FindingKind::PooledBackend, lock, measure, |holder, (worst, _)| {
                severity = worst;
                let sharing = sharing(holder).unwrap_or_default();
                let sharing = sharing.with_namesake(holder, around.namesakes);
                let (who, since) = (Who::of_holder(holder), holder.since);
                Evidence::PooledBackend { who, since, sharing: Box::new(sharing) }
            });
        finding.map(|finding| Finding { severity, ..finding })
    }

    fn sharing(&self, lock: &Lock, holder: &Holder, around: Surroundings<'_>) -> Option<Sharing> {
        let holders = lock.label.resolution.holders.as_deref();
        let may_hold = |name: &str| holders.is_some_and(|holders| self.matches(holders, name));
        self.sharing.judge(lock, holder, may_hold, around.own_pooler)
    }

    /// Whether a name, as it is rewritten, is one of these. One that is empty goes by the word of its
    /// label: a list cannot have an empty name in it.
    fn matches(&self, holders: &[Glob], name: &str) -> bool {
        let renamed = self.applications.rename(name);
        let name = if renamed.is_empty() { NO_APPLICATION } else { &*renamed };
        holders.iter().any(|pattern| pattern.matches(name))
    }

    fn waiter_holds_back_vacuum(&self, lock: &Lock) -> Option<Finding> {
        let limit = self.thresholds.snapshot_age;
        let snapshot_age = |waiter: &Waiter| waiter.snapshot_age.filter(|age| *age > limit);
        let concerned = lock.waiters.iter().filter_map(|it| Some((snapshot_age(it)?, &it.id, it)));
        Finding::of(FindingKind::WaiterHoldsBackVacuum, concerned, |waiter, age| {
            Evidence::HoldsBackVacuum { who: Who::of_waiter(waiter), age, limit }
        })
    }

    fn too_many_keys(&self, lock: &Lock, crowded: &Crowded) -> Option<Finding> {
        if crowded.is_empty() {
            return None;
        }
        let keys = |holder: &Holder| {
            let (keys, told_at) = crowded.get(&holder.id)?;
            (*told_at == lock.id).then_some(*keys)
        };
        of_holders(FindingKind::TooManyKeys, lock, keys, |holder, keys| Evidence::TooManyKeys {
            who: Who::of_holder(holder),
            keys,
            limit: self.most_keys(),
        })
    }

    /// A name is whoever's uses the connection now, or used it when the lock was taken; it takes both
    /// to be of nobody who may hold the key. A prepared transaction has no name, and the names of a
    /// connection that is shared are nobody's.
    fn unexpected_holder(&self, lock: &Lock, around: Surroundings<'_>) -> Option<Finding> {
        let expected = lock.label.resolution.holders.as_deref()?;
        let is_expected = |name: &Arc<str>| self.matches(expected, name);
        let unexpected = |holder: &Holder| {
            let now = holder.session.application_name.as_ref()?;
            let first = holder.first_application_name.as_ref().filter(|first| *first != now);
            let is_unexpected = !is_expected(now)
                && !first.is_some_and(is_expected)
                && self.sharing(lock, holder, around).is_none();
            is_unexpected.then_some(Reverse(holder.since))
        };
        of_holders(FindingKind::UnexpectedHolder, lock, unexpected, |holder, Reverse(since)| {
            Evidence::UnexpectedHolder { who: Who::of_holder(holder), since }
        })
    }

    /// So many keys may one session hold: what is configured, or a tenth of the lock table if that
    /// is known to be less.
    fn most_keys(&self) -> usize {
        let tenth = self.table_capacity.and_then(|capacity| usize::try_from(capacity / 10).ok());
        self.thresholds.keys_per_session.min(tenth.unwrap_or(usize::MAX))
    }

    fn crowded_sessions(&self, picture: &Picture) -> Crowded {
        let mut keys: HashMap<&SessionId, (usize, (Timestamp, KeyId))> = HashMap::default();
        for lock in &picture.locks {
            for holder in &lock.holders {
                let held = (holder.since, lock.id);
                let (count, oldest) = keys.entry(&holder.id).or_insert((0, held));
                *count += 1;
                *oldest = held.min(*oldest);
            }
        }
        let limit = self.most_keys();
        keys.into_iter()
            .filter(|(_, (keys, _))| *keys > limit)
            .map(|(session, (keys, (_, oldest)))| (session.clone(), (keys, oldest)))
            .collect()
    }
}

/// Sessions with too many keys: how many, and the key held longest. The finding is told there and
/// nowhere else, or one session would make a thousand.
type Crowded = HashMap<SessionId, (usize, KeyId)>;

fn held_too_long(lock: &Lock, at: Timestamp) -> Option<Finding> {
    let limit = lock.label.resolution.max_hold;
    let seen_for = |holder: &Holder| longer(at.since(holder.since), limit);
    of_holders(FindingKind::HeldTooLong, lock, seen_for, |holder, seen_for| Evidence::HeldTooLong {
        who: Who::of_holder(holder),
        doubt: NameDoubt::of(holder),
        since: holder.since,
        seen_for,
        limit,
        behind: holder.blocks,
        end: end_of(holder),
    })
}

/// A wait that lasts too long is about who waits. Where each wait is short, and one hold outlasts
/// them all, it is about who holds.
fn waiting_too_long(lock: &Lock, at: Timestamp) -> Option<Finding> {
    let limit = lock.label.resolution.max_wait;
    let waited = |waiter: &Waiter| longer(at.since(waiter.since?), limit);
    let concerned = lock.waiters.iter().filter_map(|it| Some((waited(it)?, &it.id, it)));
    let of_waiters = Finding::of(FindingKind::WaitingTooLong, concerned, |waiter, waited| {
        Evidence::WaitingTooLong {
            who: Who::of_waiter(waiter),
            waited,
            limit,
            end: ChainEnd::of(&waiter.id, &waiter.roots),
        }
    });
    of_waiters.or_else(|| {
        let kept_out = |holder: &Holder| {
            let contended = contended_for(holder, at).unwrap_or_default();
            let has_outlasted = holder.waits_gone >= WAITS_GONE && limit != Limit::Unlimited;
            (has_outlasted || longer(contended, limit).is_some())
                .then_some((contended, holder.waits_gone))
        };
        of_holders(FindingKind::WaitingTooLong, lock, kept_out, |holder, (contended, gone)| {
            let (who, doubt) = (Who::of_holder(holder), NameDoubt::of(holder));
            Evidence::KeepsOut { who, doubt, contended, gone, limit, end: end_of(holder) }
        })
    })
}

/// Where a holder's own chain ends, if it waits.
fn end_of(holder: &Holder) -> Option<ChainEnd> {
    ChainEnd::of(&holder.id, holder.roots.as_deref().unwrap_or_default())
}

fn stuck(lock: &Lock, at: Timestamp) -> Option<Finding> {
    let limit = lock.label.resolution.max_wait;
    let stuck = |holder: &Holder| {
        let contended = longer(contended_for(holder, at)?, limit)?;
        let idle_for = longer(idle_for(holder, at)?, limit)?;
        Some((contended, idle_for))
    };
    of_holders(FindingKind::Stuck, lock, stuck, |holder, (contended, idle_for)| Evidence::Stuck {
        who: Who::of_holder(holder),
        doubt: NameDoubt::of(holder),
        contended,
        idle_for,
        limit,
        behind: holder.blocks,
    })
}

fn unexpected_scope(lock: &Lock) -> Option<Finding> {
    let declared = lock.label.resolution.scope?;
    let unexpected = |holder: &Holder| {
        let is_unexpected = match declared {
            DeclaredScope::Transaction => holder.scope == Scope::Session,
            // Of a lock whose transaction goes on nothing else is ever proved.
            DeclaredScope::Session => holder.scope == Scope::Transaction,
        };
        is_unexpected.then_some(Reverse(holder.since))
    };
    of_holders(FindingKind::UnexpectedScope, lock, unexpected, |holder, Reverse(since)| {
        Evidence::UnexpectedScope { who: Who::of_holder(holder), since, declared }
    })
}

/// Whether what an entry expects is about a server in this role.
const fn is_meant(role: Role, in_recovery: bool) -> bool {
    match role {
        Role::Any => true,
        Role::Primary => !in_recovery,
        Role::Standby => in_recovery,
    }
}

/// So many waits in vain behind one hold are too much, however short each was.
const WAITS_GONE: u32 = 3;

fn contended_for(holder: &Holder, at: Timestamp) -> Option<Duration> {
    holder.contended_since.map(|since| at.since(since))
}

/// Idle, in a transaction or not, without a break since before the poll began.
fn idle_for(holder: &Holder, at: Timestamp) -> Option<Duration> {
    match holder.session.state {
        State::Idle | State::IdleInTransaction | State::IdleInTransactionAborted => {
            holder.session.state_since.map(|since| at.since(since))
        }
        State::Active | State::Unknown | State::Other(_) => None,
    }
}

/// A time, if it is longer than a limit.
fn longer(time: Duration, limit: Limit) -> Option<Duration> {
    match limit {
        Limit::Of(limit) => (time > limit).then_some(time),
        Limit::Unlimited => None,
    }
}

fn of_holders<M: Copy + Ord>(
    kind: FindingKind,
    lock: &Lock,
    measure: impl Fn(&Holder) -> Option<M>,
    evidence: impl FnOnce(&Holder, M) -> Evidence,
) -> Option<Finding> {
    let concerned = lock.holders.iter().filter_map(|it| Some((measure(it)?, &it.id, it)));
    Finding::of(kind, concerned, evidence)
}

impl Finding {
    /// One finding about all whom a rule concerns; the largest measure is the worst.
    fn of<'a, T: 'a, M: Copy + Ord>(
        kind: FindingKind,
        concerned: impl Iterator<Item = (M, &'a SessionId, &'a T)>,
        evidence: impl FnOnce(&T, M) -> Evidence,
    ) -> Option<Self> {
        let mut concerned: Vec<_> = concerned.collect();
        concerned.sort_by_key(|(measure, id, _)| (Reverse(*measure), *id));
        // Whatever the lock table says, a session is told of once.
        let mut seen = HashSet::default();
        concerned.retain(|(_, id, _)| seen.insert(*id));
        let (measure, _, worst) = concerned.first()?;
        let evidence = evidence(worst, *measure);
        let sessions = concerned.iter().map(|(_, id, _)| (*id).clone()).collect();
        Some(Self::of_sessions(kind, sessions, evidence))
    }

    /// About these, the worst of whom the evidence is of.
    const fn of_sessions(kind: FindingKind, sessions: Vec<SessionId>, evidence: Evidence) -> Self {
        let severity = kind.severity();
        Self { kind, severity, sessions, left_out: 0, evidence, remedied_by: None }
    }

    /// About the key, whoever holds it.
    const fn of_key(kind: FindingKind, evidence: Evidence) -> Self {
        Self::of_sessions(kind, Vec::new(), evidence)
    }

    /// The same to be told of later: of its sessions, of which there may be thousands, the first.
    pub fn brief(&self) -> Self {
        let sessions: Vec<SessionId> = self.sessions.iter().take(NAMED).cloned().collect();
        Self {
            left_out: self.session_count() - sessions.len(),
            sessions,
            evidence: self.evidence.clone(),
            remedied_by: self.remedied_by.clone(),
            ..*self
        }
    }

    /// How many sessions it is about.
    pub const fn session_count(&self) -> usize {
        self.sessions.len() + self.left_out
    }

    /// What a person reads: one line. Without `details` it tells no more than what strangers see of
    /// holders and waiters.
    pub fn render_text(&self, details: bool) -> String {
        let text = self.evidence.render_text(details);
        match self.session_count() {
            0 | 1 => text,
            2 => format!("{text}; and another session likewise"),
            all => format!("{text}; and {} other sessions likewise", all - 1),
        }
    }

    /// What may be done about it: one line, for the first of the sessions.
    pub fn render_remedy(&self, details: bool) -> String {
        self.remedied_by.as_deref().unwrap_or(&self.evidence).render_remedy(details)
    }

    /// The backends among those it is about.
    pub fn pids(&self) -> impl Iterator<Item = Pid> {
        self.sessions.iter().filter_map(SessionId::pid)
    }
}

impl FindingKind {
    /// The whole list, in the order of the rules.
    pub const ALL: &[Self] = &[
        Self::HeldTooLong,
        Self::WaitingTooLong,
        Self::Stuck,
        Self::HiddenCycle,
        Self::HolderIdleInTransaction,
        Self::HeldByPreparedTransaction,
        Self::PooledBackend,
        Self::WaiterHoldsBackVacuum,
        Self::TooManyKeys,
        Self::UnexpectedHolder,
        Self::UnexpectedScope,
        Self::Vacant,
        Self::Missed,
        Self::Repeated,
        Self::Flapping,
        Self::OrderInversion,
    ];

    /// The kind of this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.as_str() == name)
    }

    /// The label `finding`, the word in the JSON and the heading in the runbook.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::HeldTooLong => "held_too_long",
            Self::WaitingTooLong => "waiting_too_long",
            Self::Stuck => "stuck",
            Self::HiddenCycle => "hidden_cycle",
            Self::HolderIdleInTransaction => "holder_idle_in_transaction",
            Self::HeldByPreparedTransaction => "held_by_prepared_transaction",
            Self::PooledBackend => "pooled_backend",
            Self::WaiterHoldsBackVacuum => "waiter_holds_back_vacuum",
            Self::TooManyKeys => "too_many_keys",
            Self::UnexpectedHolder => "unexpected_holder",
            Self::UnexpectedScope => "unexpected_scope",
            Self::Vacant => "vacant",
            Self::Missed => "missed",
            Self::Repeated => "repeated",
            Self::Flapping => "flapping",
            Self::OrderInversion => "order_inversion",
        }
    }

    /// The findings that an entry of the registry asks for: they are counted from the start, and are
    /// 0 while there is nothing to say.
    pub fn armed_by(resolution: &Resolution) -> impl Iterator<Item = Self> {
        let armed = [
            (Self::UnexpectedHolder, resolution.holders.is_some()),
            (Self::UnexpectedScope, resolution.scope.is_some()),
            (Self::Vacant, resolution.must_be_held),
            (Self::Missed, resolution.last_held_within.is_some()),
            (Self::Repeated, resolution.not_again_within.is_some()),
        ];
        armed.into_iter().filter(|(_, is_armed)| *is_armed).map(|(kind, _)| kind)
    }

    /// Whether it is over when a hidden circle is broken, and its own remedy would break the wrong end.
    const fn ends_with_the_cycle(self) -> bool {
        matches!(
            self,
            Self::HeldTooLong | Self::WaitingTooLong | Self::Stuck | Self::HolderIdleInTransaction
        )
    }

    /// How urgent it is, unless more is known of the one that was found.
    pub const fn severity(self) -> Severity {
        match self {
            Self::Stuck | Self::HiddenCycle | Self::Vacant => Severity::Critical,
            Self::HeldTooLong
            | Self::WaitingTooLong
            | Self::HolderIdleInTransaction
            | Self::HeldByPreparedTransaction
            | Self::PooledBackend
            | Self::WaiterHoldsBackVacuum
            | Self::TooManyKeys
            | Self::UnexpectedHolder
            | Self::UnexpectedScope
            | Self::Missed
            | Self::Repeated
            | Self::Flapping
            | Self::OrderInversion => Severity::Warning,
        }
    }
}

impl Severity {
    /// The label's value.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_may_hold_a_tenth_of_a_small_lock_table() {
        let mut judge = Judge::new(Thresholds::default(), Arc::default());
        assert_eq!(judge.most_keys(), 1000);
        judge.observe_table_capacity(Some(6_400));
        assert_eq!(judge.most_keys(), 640);
        judge.observe_table_capacity(Some(100_000));
        assert_eq!(judge.most_keys(), 1000);
    }

    #[test]
    fn an_expectation_is_about_servers_in_the_role_it_names() {
        for (role, on_primary, on_standby) in
            [(Role::Any, true, true), (Role::Primary, true, false), (Role::Standby, false, true)]
        {
            assert_eq!(is_meant(role, false), on_primary, "{role:?}");
            assert_eq!(is_meant(role, true), on_standby, "{role:?}");
        }
    }

    #[test]
    fn exactly_the_limit_is_not_longer_than_the_limit() {
        let second = Duration::from_secs(1);
        assert_eq!(longer(second, Limit::Of(second)), None);
        assert_eq!(longer(2 * second, Limit::Of(second)), Some(2 * second));
        assert_eq!(longer(Duration::MAX, Limit::Unlimited), None);
    }
}
