//! A circle of waits that the server cannot see, since it closes in a program.
//!
//! A program keeps a key on one connection, which is idle, and works on another. That one waits for
//! somebody who waits for the key. Nobody waits in a circle as far as locks go, so no deadlock is
//! reported, and it lasts for ever: the idle connection lets go of the key only when the work is
//! done. To end the holder would take the lock away under that work; it is the waiter between that
//! has to go. Pure; one pass over the waits behind such holders, of which there are hardly ever any.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use super::pooled::SharingWatch;
use super::sentence::{Evidence, Who};
use super::{Finding, FindingKind, idle_for, longer};
use crate::blocking::{Awaited, Backwards};
use crate::sample::{ClientAddress, DatabaseOid, RoleOid};
use crate::timestamp::Timestamp;
use crate::tracker::{KeyId, SessionId};
use crate::view::{Holder, Lock, NAMED, Picture, Session, Waiter};

/// What clients of one program have in common. What is hidden, or has no name, is no program's.
#[derive(PartialEq, Eq)]
struct Program<'a> {
    role: RoleOid,
    database: DatabaseOid,
    name: &'a str,
    address: ClientAddress,
}

/// One circle.
struct Cycle<'a> {
    /// Waits for the key.
    waiter: &'a Waiter,
    /// Waits behind that, and is of the holder's program.
    blocked: SessionId,
    blocked_for: Duration,
    locktype: &'a str,
    root: &'a Holder,
}

/// The finding of each key in such a circle.
pub(super) fn find(
    picture: &Picture,
    sharing: &SharingWatch,
    own_pooler: Option<ClientAddress>,
) -> BTreeMap<KeyId, Finding> {
    let may_be_shared = |address| sharing.is_pooler(address) || own_pooler == Some(address);
    let mut backwards: Option<Backwards<'_>> = None;
    let mut findings = BTreeMap::new();
    for lock in picture.locks.iter().filter(|lock| !lock.waiters.is_empty()) {
        let mut cycles: Vec<Cycle<'_>> = Vec::new();
        for root in idle_holders(lock, picture.at) {
            let Some(program) = Program::of(&root.session) else { continue };
            if may_be_shared(program.address) {
                continue;
            }
            let backwards = backwards.get_or_insert_with(|| picture.chains.backwards());
            cycles.extend(Search { picture, lock, root, program }.run(backwards));
        }
        if let Some(finding) = finding_of(lock, picture, cycles) {
            findings.insert(lock.id, finding);
        }
    }
    findings
}

/// Holders that have been idle for too long before somebody who waits through others, the longest
/// first: of a key that very many share, a few are enough to look at.
pub(super) fn idle_holders(lock: &Lock, at: Timestamp) -> Vec<&Holder> {
    let limit = lock.label.resolution.max_wait;
    let idle = |holder: &Holder| idle_for(holder, at).and_then(|time| longer(time, limit));
    // One that nobody waits for through others is not at the end of such a chain.
    let holders = lock.holders.iter().filter(|holder| holder.blocks > 1);
    let mut holders: Vec<_> =
        holders.filter_map(|holder| Some((Reverse(idle(holder)?), &holder.id, holder))).collect();
    holders.sort_by_key(|(idle, id, _)| (*idle, *id));
    holders.into_iter().map(|(.., holder)| holder).take(NAMED).collect()
}

/// Looks for circles that end at one holder of a key.
struct Search<'a> {
    picture: &'a Picture,
    lock: &'a Lock,
    root: &'a Holder,
    program: Program<'a>,
}

impl<'a> Search<'a> {
    fn run(&self, backwards: &Backwards<'a>) -> Vec<Cycle<'a>> {
        let between = self.lock.waiters.iter().filter(|waiter| self.is_between(waiter));
        let between: Vec<&Waiter> = between.collect();
        let by_id: HashMap<&SessionId, &Waiter> =
            between.iter().map(|waiter| (&waiter.id, *waiter)).collect();
        // Everybody on the way has to have waited for long, else the circle is not that old.
        let behind = backwards.waiters_behind(between.iter().map(|waiter| &waiter.id), |id| {
            self.waited(self.picture.chains.waiting_since(id)).is_some()
        });
        let mut cycles: HashMap<&SessionId, Cycle<'a>> = HashMap::new();
        for (blocked, waiter) in behind {
            let Some(blocked_for) = self.blocked_for(blocked) else { continue };
            let worst = cycles.get(waiter).map(|known| (known.blocked_for, &known.blocked));
            if worst.is_none_or(|worst| worst < (blocked_for, blocked)) {
                let Some(waiter) = by_id.get(waiter).copied() else { continue };
                let awaited = self.picture.chains.awaited(blocked).next();
                let cycle = Cycle {
                    waiter,
                    blocked: blocked.clone(),
                    blocked_for,
                    locktype: awaited.map_or("", Awaited::locktype),
                    root: self.root,
                };
                cycles.insert(&waiter.id, cycle);
            }
        }
        cycles.into_values().collect()
    }

    /// Kept out by the holder for long, and of another program for certain.
    fn is_between(&self, waiter: &Waiter) -> bool {
        waiter.id != self.root.id
            && self.waited(waiter.since).is_some()
            && self.root.modes().any(|held| held.conflicts_with(&waiter.mode))
            && self.program.is_not_of(&waiter.session)
    }

    /// For how long somebody has waited who closes the circle.
    fn blocked_for(&self, id: &SessionId) -> Option<Duration> {
        let chains = &self.picture.chains;
        let session = self.picture.sessions.get(&id.pid()?)?;
        let since = chains.waiting_since(id)?;
        let is_idle_longer = self.root.session.state_since.is_some_and(|idle| idle < since);
        let waits_for_root = || {
            chains.awaited(id).any(|awaited| match awaited {
                // Most who wait behind it do so for the same key, which may have very many holders.
                Awaited::Key(key) if *key == self.lock.id => true,
                Awaited::Key(key) => self.picture.lock(*key).is_some_and(|lock| {
                    lock.holders.iter().any(|holder| holder.id == self.root.id)
                }),
                Awaited::Other(_) => false,
            })
        };
        let closes = is_idle_longer
            && Program::of(session).is_some_and(|program| program == self.program)
            && !waits_for_root();
        self.waited(Some(since)).filter(|_| closes)
    }

    fn waited(&self, since: Option<Timestamp>) -> Option<Duration> {
        longer(self.picture.at.since(since?), self.lock.label.resolution.max_wait)
    }
}

impl<'a> Program<'a> {
    fn of(session: &'a Session) -> Option<Self> {
        let name = session.application_name.as_deref().filter(|name| !name.is_empty())?;
        let (role, database) = (session.role?, session.database?);
        Some(Self { role, database, name, address: session.client_address()? })
    }

    /// Whether something that is known of a session speaks against it.
    fn is_not_of(&self, session: &Session) -> bool {
        let name = session.application_name.as_deref().filter(|name| !name.is_empty());
        session.role.is_some_and(|role| role != self.role)
            || session.database.is_some_and(|database| database != self.database)
            || session.client_address().is_some_and(|address| address != self.address)
            || name.is_some_and(|name| name != self.name)
    }
}

/// One finding a key: about the waiters that have to go, whose victims have waited longest in front.
fn finding_of(lock: &Lock, picture: &Picture, mut cycles: Vec<Cycle<'_>>) -> Option<Finding> {
    cycles.sort_by_key(|cycle| (Reverse(cycle.blocked_for), &cycle.waiter.id));
    // A key shared by two idle holders may be closed twice by one waiter.
    let mut seen = HashSet::new();
    let waiters = cycles.iter().map(|cycle| &cycle.waiter.id).filter(|id| seen.insert(*id));
    let waiters = waiters.cloned().collect();
    let worst = cycles.first()?;
    let evidence = Evidence::HiddenCycle {
        waiter: Who::of_waiter(worst.waiter),
        blocked: Who::of_session(&worst.blocked, picture),
        root: Who::of_holder(worst.root),
        blocked_for: worst.blocked_for,
        locktype: worst.locktype.into(),
        limit: lock.label.resolution.max_wait,
    };
    Some(Finding::of_sessions(FindingKind::HiddenCycle, waiters, evidence))
}
