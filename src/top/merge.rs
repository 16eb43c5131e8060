//! Our own picture of a server, and what an exporter remembers of it, made one.
//!
//! Who holds and waits now, and how, is our own to say. An exporter that watches the same server has
//! seen it for longer: since when, under which first name, and findings that take long to judge.
//! What it says is taken only where both speak of the same session and hold, and computed anew for
//! our moment. Everything is on the server's own clock, so the clocks of who looks do not matter.
//! Pure; who asks the exporter is `source`.
//!
//! A hold that ended and began again between the two pictures cannot be told from one that lasted;
//! a poller decides the same way between two polls. So the pictures may be only a few polls apart,
//! and wherever either side saw a gap in the hold nothing is taken.

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use crate::finding::FindingKind;
use crate::key::Key;
use crate::sample::Pid;
use crate::snapshot::{Finding, Holder, Lock, Server, Session};
use crate::timestamp::Timestamp;
use crate::tracker::Scope;

/// So many polls the two pictures may be apart, and so long at least.
const POLLS_APART: u32 = 3;
const TIME_APART: Duration = Duration::from_secs(3);

/// Why what an exporter remembers is not of use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Our own role was not told which cluster it is connected to.
    UnknownOwn,
    /// The exporter does not tell of any server which cluster it is.
    UnknownTheirs,
    /// It watches other servers.
    Other,
    /// It watches a standby of the same cluster, and they all have the same identifier.
    AnyStandby,
    /// It watches the same server and does not see it at the moment.
    Down,
    /// Its picture is so much older, or newer, than ours.
    Stale(Duration),
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownOwn => f.write_str(
                "the server did not tell its system identifier, by which it would be known as the \
                 same",
            ),
            Self::UnknownTheirs => f.write_str("it does not know which cluster it watches"),
            Self::Other => f.write_str("it watches another server"),
            Self::AnyStandby => f.write_str(
                "it watches a standby of the same cluster, and no session shows that it is this one",
            ),
            Self::Down => f.write_str("it does not see the server at the moment"),
            Self::Stale(apart) => {
                write!(f, "it is stale: {} s between its picture and ours", apart.as_secs())
            }
        }
    }
}

/// The server of an exporter that is the same as ours.
///
/// Standbys and copies share the system identifier of their cluster, so it must have been started in
/// the same moment too. From an exporter that does not tell when, the role must be the same, and of
/// standbys a session that both see. Where several are the same (a server under two names), it is
/// the one that shares a session with our picture, then the one that was watched for longest: it
/// remembers most.
pub fn find_same<'a>(own: &Server, all: &'a [Server]) -> Result<&'a Server, Mismatch> {
    let (Some(identifier), Some(at)) = (&own.system_identifier, own.polled_at) else {
        return Err(Mismatch::UnknownOwn);
    };
    if !all.is_empty() && all.iter().all(|theirs| theirs.system_identifier.is_none()) {
        return Err(Mismatch::UnknownTheirs);
    }
    let cluster = all
        .iter()
        .filter(|it| it.system_identifier.as_ref() == Some(identifier))
        .filter(|it| it.started_at.is_none() || own.started_at.is_none() || started(own, it));
    let cluster: Vec<&Server> = cluster.collect();
    if cluster.is_empty() {
        return Err(Mismatch::Other);
    }
    let up = cluster.into_iter().filter(|theirs| theirs.up && theirs.locks.is_some());
    let up: Vec<(&Server, Timestamp)> =
        up.filter_map(|theirs| Some((theirs, theirs.polled_at?))).collect();
    if up.is_empty() {
        return Err(Mismatch::Down);
    }
    let same_role =
        up.into_iter().filter(|(theirs, _)| theirs.role == own.role || started(own, theirs));
    let same_role: Vec<(&Server, Timestamp)> = same_role.collect();
    if same_role.is_empty() {
        return Err(Mismatch::Other);
    }
    let apart = |(theirs, their_at): &(&Server, Timestamp)| {
        let apart = at.since(*their_at).max(their_at.since(at));
        (apart, apart <= patience(own, theirs))
    };
    let (fresh, stale): (Vec<_>, Vec<_>) = same_role.into_iter().partition(|it| apart(it).1);
    let candidates = fresh.into_iter().map(|(theirs, _)| (shares_session(own, theirs), theirs));
    let best = candidates.min_by_key(|(is_shared, theirs)| {
        (!is_shared, theirs.watching_since.is_none(), theirs.watching_since)
    });
    match best {
        Some((false, theirs))
            if own.role.as_deref() != Some("primary") && !started(own, theirs) =>
        {
            Err(Mismatch::AnyStandby)
        }
        Some((_, theirs)) => Ok(theirs),
        None => {
            let apart = stale.iter().map(|it| apart(it).0).min();
            Err(Mismatch::Stale(apart.unwrap_or_default()))
        }
    }
}

/// Whether both are known to have been started in the same moment.
fn started(own: &Server, theirs: &Server) -> bool {
    own.started_at.is_some() && own.started_at == theirs.started_at
}

/// How far the pictures may be apart: by the slower of the two rhythms.
fn patience(own: &Server, theirs: &Server) -> Duration {
    let intervals = [own, theirs].map(|server| server.poll.interval_seconds.and_then(duration));
    let interval = intervals.into_iter().flatten().max().unwrap_or_default();
    interval.saturating_mul(POLLS_APART).max(TIME_APART)
}

/// Whether somebody is on the same key in both pictures.
fn shares_session(own: &Server, theirs: &Server) -> bool {
    let known = KeyedLocks::of(theirs);
    let locks = own.locks.iter().flatten();
    locks.filter_map(|lock| Some((lock, known.get(lock)?))).any(|(lock, remembered)| {
        let mut pids = lock.pids();
        pids.any(|(pid, session)| {
            remembered.start_of(pid).is_some_and(|start| session.backend_start == Some(start))
        }) || lock.holders.iter().any(|own| {
            own.pid.is_none() && remembered.holders.iter().any(|it| is_same_session(own, it))
        })
    })
}

/// Our own picture, with what is remembered of the same server by [`find_same`].
pub fn merge(mut own: Server, remembered: &Server) -> Server {
    let (Some(at), Some(their_at)) = (own.polled_at, remembered.polled_at) else { return own };
    let moment = Moment { at, their_at };
    let known = KeyedLocks::of(remembered);
    let mut locks = own.locks.take().unwrap_or_default();
    let mine: HashMap<(&str, Key), ()> =
        locks.iter().map(|lock| ((&*lock.datname, lock.key), ())).collect();
    // What nobody holds or awaits and something is said of: in our picture as long as that is so.
    let free: Vec<Lock> = remembered
        .locks
        .iter()
        .flatten()
        .filter(|lock| lock.holders.is_empty() && lock.waiters.is_empty())
        .filter(|lock| !mine.contains_key(&(&*lock.datname, lock.key)))
        .filter(|lock| known.get(lock).is_some())
        .cloned()
        .collect();
    let is_own_unique = KeyedLocks::unique(&locks);
    for (lock, is_unique) in locks.iter_mut().zip(is_own_unique) {
        let Some(theirs) = known.get(lock).filter(|_| is_unique) else { continue };
        take_name(lock, theirs);
        let is_awaited = !lock.waiters.is_empty();
        for holder in &mut lock.holders {
            let same = theirs.holders.iter().find(|theirs| is_same_session(holder, theirs));
            if let Some(theirs) = same {
                moment.take_hold(holder, theirs, is_awaited);
            }
        }
        take_findings(lock, theirs);
    }
    locks.extend(free);
    own.locks = Some(locks);
    own.watching_since = earlier(own.watching_since, remembered.watching_since);
    if remembered.not_judged.is_some() {
        own.not_judged = remembered.not_judged.clone();
    }
    if remembered.lock_orders_count > own.lock_orders_count {
        own.lock_orders = remembered.lock_orders.clone();
        own.lock_orders_count = remembered.lock_orders_count;
    }
    own
}

/// Locks of a server by database and key. Databases beyond a bound go by one name together: a key
/// that is there twice is nobody's.
struct KeyedLocks<'a>(HashMap<(&'a str, Key), Option<&'a Lock>>);

impl<'a> KeyedLocks<'a> {
    fn of(server: &'a Server) -> Self {
        let mut locks = HashMap::new();
        for lock in server.locks.iter().flatten() {
            let entry = locks.entry((&*lock.datname, lock.key));
            entry.and_modify(|it| *it = None).or_insert(Some(lock));
        }
        Self(locks)
    }

    fn get(&self, lock: &Lock) -> Option<&'a Lock> {
        self.0.get(&(&*lock.datname, lock.key)).copied().flatten()
    }

    /// Of each lock, whether it is the only one of its name and key.
    fn unique(locks: &[Lock]) -> Vec<bool> {
        let mut counts: HashMap<(&str, Key), usize> = HashMap::new();
        for lock in locks {
            *counts.entry((&*lock.datname, lock.key)).or_default() += 1;
        }
        locks.iter().map(|lock| counts.get(&(&*lock.datname, lock.key)) == Some(&1)).collect()
    }
}

impl Lock {
    /// Backends that hold it or wait for it.
    fn pids(&self) -> impl Iterator<Item = (Pid, &Session)> {
        let holders = self.holders.iter().map(|it| (it.pid, &it.session));
        let waiters = self.waiters.iter().map(|it| (it.pid, &it.session));
        holders.chain(waiters).filter_map(|(pid, session)| Some((pid?, session)))
    }

    /// When the backend of this pid began, if it is on the key and that is known.
    fn start_of(&self, pid: Pid) -> Option<Timestamp> {
        self.pids().find(|(it, _)| *it == pid).and_then(|(_, session)| session.backend_start)
    }
}

/// The moments of both pictures, on the server's clock.
#[derive(Clone, Copy)]
struct Moment {
    at: Timestamp,
    their_at: Timestamp,
}

impl Moment {
    /// Takes over what is remembered of a hold by the same session, if it is the same hold.
    fn take_hold(self, own: &mut Holder, theirs: &Holder, is_awaited: bool) {
        let (Some(since), Some(their_since)) = (own.since, theirs.since) else { return };
        let not_before = moment(self.at, own.held_at_most_seconds);
        let their_not_before = moment(self.their_at, theirs.held_at_most_seconds);
        let is_same = own.modes == theirs.modes
            && own.mode == theirs.mode
            // Each saw it held since then, and neither saw it let go after.
            && not_before.is_none_or(|it| it <= their_since)
            && their_not_before.is_none_or(|it| it <= since)
            // It did not begin after our picture.
            && their_since <= self.at;
        if !is_same {
            return;
        }
        self.take_proof(own, theirs);
        let is_older = their_since < since;
        let knows_more = is_older || (theirs.seen_to_begin && !own.seen_to_begin);
        if theirs.first_application_name.is_some()
            && !own.seen_to_begin
            && (knows_more || own.first_application_name.is_none())
        {
            own.first_application_name = theirs.first_application_name.clone();
            own.seen_to_begin = theirs.seen_to_begin;
        }
        if is_older {
            own.since = Some(their_since);
            own.seen_for_seconds = self.at.since(their_since).as_secs_f64();
        }
        own.held_at_most_seconds =
            not_before.max(their_not_before).map(|it| self.at.since(it).as_secs_f64());
        if own.scope == Scope::Unknown && theirs.scope != Scope::Unknown {
            own.scope = theirs.scope;
            own.scope_evidence = theirs.scope_evidence.clone();
        }
        own.transactions_seen = own.transactions_seen.max(theirs.transactions_seen);
        if is_awaited {
            own.contended_since = earlier(own.contended_since, theirs.contended_since);
        }
    }

    /// What is proved of their time, where it reaches our moment without a gap: their picture is
    /// not older than ours, or our own proof reaches back to theirs.
    fn take_proof(self, own: &mut Holder, theirs: &Holder) {
        let Some(theirs) = moment(self.their_at, theirs.held_at_least_seconds) else { return };
        let proved = moment(self.at, own.held_at_least_seconds);
        let reaches = self.their_at >= self.at || proved.is_some_and(|it| it <= self.their_at);
        if reaches && theirs < self.at && proved.is_none_or(|it| theirs < it) {
            own.held_at_least_seconds = Some(self.at.since(theirs).as_secs_f64());
        }
    }
}

/// The same backend, not only the same pid, or the same prepared transaction.
fn is_same_session(own: &Holder, theirs: &Holder) -> bool {
    match (own.pid, theirs.pid) {
        (Some(pid), Some(their_pid)) => {
            pid == their_pid
                && own.session.backend_start.is_some()
                && own.session.backend_start == theirs.session.backend_start
        }
        (None, None) => {
            let gid = |holder: &Holder| holder.prepared.as_ref().and_then(|it| it.gid.clone());
            gid(own).is_some() && gid(own) == gid(theirs)
        }
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Their registry's name for a key that ours does not name.
fn take_name(own: &mut Lock, theirs: &Lock) {
    if own.lock.is_some() || (theirs.lock.is_none() && !own.candidates.is_empty()) {
        return;
    }
    own.lock = theirs.lock.clone();
    own.display_name = theirs.display_name.clone();
    own.parameters = theirs.parameters.clone();
    own.candidates = theirs.candidates.clone();
    own.owner = theirs.owner.clone();
    own.runbook = theirs.runbook.clone();
    own.description = theirs.description.clone();
    own.limits = theirs.limits;
}

/// Their findings that are not over in our picture, before ours of the same kind.
fn take_findings(own: &mut Lock, theirs: &Lock) {
    let lasting: Vec<&Finding> =
        theirs.findings.iter().filter(|finding| lasts(finding, own, theirs)).collect();
    if lasting.is_empty() {
        return;
    }
    own.findings.retain(|it| lasting.iter().all(|other| other.finding != it.finding));
    own.findings.extend(lasting.into_iter().cloned());
    own.findings.sort_by_key(|finding| {
        let kind = FindingKind::parse(&finding.finding);
        FindingKind::ALL.iter().position(|it| Some(*it) == kind).unwrap_or(usize::MAX)
    });
}

/// Whether a finding of theirs may still be so.
fn lasts(finding: &Finding, own: &Lock, theirs: &Lock) -> bool {
    let is_present = |pid: &Pid| {
        let before = theirs.start_of(*pid);
        own.pids().any(|(it, session)| {
            it == *pid && (before.is_none() || session.backend_start == before)
        })
    };
    let is_about_somebody_there = finding.pids.is_empty() || finding.pids.iter().any(is_present);
    let fits = match FindingKind::parse(&finding.finding) {
        Some(FindingKind::Vacant | FindingKind::Missed) => own.holders.is_empty(),
        Some(FindingKind::HeldByPreparedTransaction) => {
            own.holders.iter().any(|holder| holder.pid.is_none())
        }
        Some(FindingKind::Stuck | FindingKind::WaiterHoldsBackVacuum) => !own.waiters.is_empty(),
        Some(
            FindingKind::HeldTooLong
            | FindingKind::HolderIdleInTransaction
            | FindingKind::PooledBackend
            | FindingKind::UnexpectedHolder
            | FindingKind::UnexpectedScope,
        ) => !own.holders.is_empty(),
        Some(
            FindingKind::WaitingTooLong
            | FindingKind::HiddenCycle
            | FindingKind::TooManyKeys
            | FindingKind::Repeated
            | FindingKind::Flapping
            | FindingKind::OrderInversion,
        )
        | None => true,
    };
    fits && is_about_somebody_there
}

fn earlier(own: Option<Timestamp>, theirs: Option<Timestamp>) -> Option<Timestamp> {
    own.into_iter().chain(theirs).min()
}

/// So long before.
fn moment(at: Timestamp, seconds: Option<f64>) -> Option<Timestamp> {
    Some(at.before(duration(seconds?)?))
}

fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds).ok()
}
