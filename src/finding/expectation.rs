//! What an entry of the registry expects of its key over time: that somebody holds it, that it is
//! held now and then, that it is not held again too soon, and that it does not change hands.
//!
//! Each is judged over successful polls alone: a failed one neither ends a vacancy nor adds to it,
//! and takes away nothing that was seen before. What happened before the process began is not
//! known, so everything counts from then; or, where an earlier process left its memory, from what
//! that one saw. The time between the two is like one long failed poll: who holds the key after it
//! took it no earlier than the last sight of somebody else. Pure; kept by series, which outlive a
//! hold.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::sentence::{Evidence, Who};
use super::{Finding, FindingKind, Moment, Undecided, is_meant};
use crate::config::HolderChanges;
use crate::key::Key;
use crate::memory::{past, seconds};
use crate::registry::{Resolution, Role};
use crate::sample::{DatabaseOid, Names};
use crate::series::{Label, LockSeries};
use crate::timestamp::Timestamp;
use crate::tracker::{KeyId, SessionId};
use crate::view::{Holder, Lock, Picture};

/// The grace of `must_be_held` where the entry says none.
const VACANT_FOR: Duration = Duration::from_secs(120);

/// What was seen so far of keys of which an entry expects something.
#[derive(Debug, Default)]
pub(super) struct Expectations {
    seen: HashMap<LockSeries, Expected>,
    /// What an earlier process saw of keys of which none has been seen here yet.
    recalled: HashMap<LockSeries, Expected>,
}

/// What was seen of one key of which an entry expects something, to be remembered.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
pub struct Expectation {
    #[serde(flatten)]
    series: LockSeries,
    #[serde(flatten)]
    seen: Expected,
}

/// What was seen of one key.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Expected {
    /// When we began to look, before restarts too.
    began: Timestamp,
    /// Time over which it was seen free at every successful poll; `None` while it is held.
    #[serde(rename = "free_for_seconds", with = "seconds")]
    free_for: Option<Duration>,
    /// When it was last seen held, or when the process began to look.
    counted_from: Timestamp,
    was_held: bool,
    /// The last hold of one session alone. Readers beside each other do not exclude anybody.
    last_hold: Option<LastHold>,
    /// A hold that began too soon.
    repeated: Option<Repeated>,
    /// When another session was seen to have taken the key, the last of these.
    changes: VecDeque<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct LastHold {
    session: SessionId,
    backend_start: Option<Timestamp>,
    /// The earliest moment at which it can have begun, if there is a bound.
    not_before: Option<Timestamp>,
    seen_at: Timestamp,
    /// An earlier process saw it, and nobody what came of it.
    #[serde(skip)]
    is_recalled: bool,
}

#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
struct Repeated {
    who: Who,
    since: Timestamp,
    /// The earliest moment at which the hold before can have begun.
    previous: Timestamp,
}

impl Expectations {
    /// Folds a picture in and puts the findings into it: to the key where somebody holds or awaits
    /// it, else among those that are free. What it is too early to tell goes beside them.
    pub(super) fn observe(
        &mut self,
        picture: &mut Picture,
        moment: &Moment<'_>,
        most_changes: HolderChanges,
    ) {
        let expecting: HashMap<&LockSeries, &Arc<Resolution>> = moment
            .registered
            .iter()
            .filter(|(_, registered)| expects(&registered.resolution))
            .map(|(series, registered)| (series, &registered.resolution))
            .collect();
        picture.free.clear();
        picture.undecided.clear();
        let databases = oids(moment.names);
        if expecting.is_empty() {
            self.seen.clear();
        }
        // A server in another role, a database that is not there: nothing is expected, and what was
        // seen before says nothing of what comes after.
        let is_live = |series: &LockSeries, resolution: &Resolution| {
            is_meant(resolution.role.unwrap_or(Role::Primary), picture.in_recovery)
                && databases.contains_key(&*series.datname)
        };
        let is_expected = |series: &LockSeries| {
            expecting.get(series).is_some_and(|resolution| is_live(series, resolution))
        };
        self.seen.retain(|series, _| is_expected(series));
        // Before databases have names, nothing is expected in them yet.
        if !databases.is_empty() {
            self.recalled.retain(|series, _| is_expected(series));
        }
        let locks = picture.locks.iter().enumerate();
        let present: HashMap<LockSeries, usize> = locks
            .filter(|(_, lock)| lock.label.is_single)
            .filter(|(_, lock)| expecting.contains_key(&lock.label.series))
            .map(|(index, lock)| (lock.label.series.clone(), index))
            .collect();
        let at = picture.at;
        for (series, resolution) in expecting {
            if !is_live(series, resolution) {
                continue;
            }
            let begin = || Expected::begin(at);
            let expected = match self.recalled.remove(series) {
                Some(recalled) => {
                    let seen = self.seen.remove(series).unwrap_or_else(begin);
                    self.seen.entry(series.clone()).or_insert(seen.after(recalled))
                }
                None => self.seen.entry(series.clone()).or_insert_with(begin),
            };
            let index = present.get(series).copied();
            let holders = index.map_or(&[][..], |index| &picture.locks[index].holders);
            expected.observe(holders, at, moment.elapsed, resolution, most_changes);
            let findings = expected.judge(at, resolution, most_changes);
            let undecided = expected.undecided(at, resolution, most_changes, &findings);
            picture.undecided.extend(undecided);
            match index {
                Some(index) => picture.locks[index].findings.extend(findings),
                None if findings.is_empty() => {}
                None => picture.free.extend(free_lock(series, resolution, &databases, findings)),
            }
        }
        picture.free.sort_by_key(|lock| lock.id);
        picture.undecided.sort_by(|a, b| (a.kind, &a.lock).cmp(&(b.kind, &b.lock)));
    }

    /// All that is known, in the order of series.
    pub(super) fn remembered(&self) -> Vec<Expectation> {
        let recalled = self.recalled.iter().filter(|(series, _)| !self.seen.contains_key(series));
        let mut remembered: Vec<Expectation> = recalled
            .chain(&self.seen)
            .map(|(series, seen)| Expectation { series: series.clone(), seen: seen.clone() })
            .collect();
        remembered.sort_by(|one, other| one.series.cmp(&other.series));
        remembered
    }

    /// Takes over what an earlier process saw, as far as it can be so.
    pub(super) fn recall(&mut self, expectations: Vec<Expectation>, now: Timestamp) {
        let believed =
            expectations.into_iter().filter_map(|it| Some((it.series, it.seen.believed(now)?)));
        self.recalled = believed.collect();
    }
}

fn expects(resolution: &Resolution) -> bool {
    resolution.must_be_held
        || resolution.last_held_within.is_some()
        || resolution.not_again_within.is_some()
}

fn oids(names: &Names) -> HashMap<&str, DatabaseOid> {
    names.databases.iter().map(|(oid, database)| (&*database.name, *oid)).collect()
}

/// A key that nobody holds or awaits. Only single keys can be expected to be held, so the label is
/// the key.
fn free_lock(
    series: &LockSeries,
    resolution: &Arc<Resolution>,
    databases: &HashMap<&str, DatabaseOid>,
    findings: Vec<Finding>,
) -> Option<Lock> {
    let key: Key = series.key.parse().ok()?;
    let id = KeyId { database: *databases.get(&*series.datname)?, key };
    let label = Label {
        resolution: resolution.clone(),
        datname: series.datname.clone(),
        series: series.clone(),
        is_single: true,
    };
    Some(Lock::free(id, label.into(), findings))
}

impl Expected {
    const fn begin(at: Timestamp) -> Self {
        Self {
            began: at,
            free_for: None,
            counted_from: at,
            was_held: false,
            last_hold: None,
            repeated: None,
            changes: VecDeque::new(),
        }
    }

    /// What may be believed of a memory: nothing that has not come yet, and no more time than there
    /// was.
    fn believed(self, now: Timestamp) -> Option<Self> {
        let counted_from = past(self.counted_from, now)?;
        let last_hold = self.last_hold.and_then(|hold| {
            let seen_at = past(hold.seen_at, now)?;
            let not_before = hold.not_before.filter(|bound| *bound <= seen_at);
            Some(LastHold { seen_at, not_before, is_recalled: true, ..hold })
        });
        let repeated = self.repeated.and_then(|repeated| {
            let since = past(repeated.since, now)?;
            (repeated.previous <= since).then_some(Repeated { since, ..repeated })
        });
        let mut changes: Vec<_> =
            self.changes.into_iter().filter_map(|change| past(change, now)).collect();
        changes.sort_unstable();
        Some(Self {
            began: self.began.min(counted_from),
            free_for: self.free_for.map(|time| time.min(now.since(counted_from))),
            counted_from,
            was_held: self.was_held,
            last_hold,
            repeated,
            changes: changes.into(),
        })
    }

    /// What was seen here, after what an earlier process saw.
    fn after(self, earlier: Self) -> Self {
        if self.was_held {
            // Too late to say what came between.
            return self;
        }
        let free_for = match (self.free_for, earlier.free_for) {
            (Some(here), Some(before)) => Some(here + before),
            // Not polled here yet, or held when it was last seen.
            (here, before) => here.or(before),
        };
        Self { free_for, ..earlier }
    }

    fn observe(
        &mut self,
        holders: &[Holder],
        at: Timestamp,
        elapsed: Duration,
        resolution: &Resolution,
        most_changes: HolderChanges,
    ) {
        if holders.is_empty() {
            self.free_for = Some(self.free_for.map_or(Duration::ZERO, |time| time + elapsed));
        } else {
            self.free_for = None;
            self.counted_from = at;
            self.was_held = true;
        }
        if let Some(holder) = holders.iter().find(|it| it.mode.conflicts_with(&it.mode)) {
            self.observe_hold(holder, at, resolution.not_again_within);
        }
        // More than count as far as the finding goes, and no more are kept.
        let kept = usize::try_from(most_changes.count).unwrap_or(usize::MAX).saturating_add(1);
        while self.changes.len() > kept {
            self.changes.pop_front();
        }
        self.changes.retain(|change| at.since(*change) <= most_changes.within);
        // Until then the hold before should have been the only one.
        let is_over = |repeated: &Repeated| {
            resolution.not_again_within.is_none_or(|limit| at.since(repeated.previous) >= limit)
        };
        if self.repeated.as_ref().is_some_and(is_over) {
            self.repeated = None;
        }
    }

    fn observe_hold(&mut self, holder: &Holder, at: Timestamp, not_again: Option<Duration>) {
        let mut now = LastHold {
            session: holder.id.clone(),
            backend_start: holder.session.backend_start,
            not_before: holder.not_before,
            seen_at: at,
            is_recalled: false,
        };
        if let Some(last) = &self.last_hold {
            // A hold that was there when the last one was seen is the same one: of a backend whose
            // start has become visible, or of its transaction that was prepared since.
            let has_begun = holder.since > last.seen_at;
            let is_other = !last.is_session_of(&now);
            if has_begun && is_other {
                self.changes.push_back(at);
                let too_soon = |previous: &Timestamp| {
                    not_again.is_some_and(|limit| holder.since.since(*previous) < limit)
                };
                if let Some(previous) = last.not_before.filter(too_soon) {
                    let who = Who::of_holder(holder);
                    self.repeated = Some(Repeated { who, since: holder.since, previous });
                }
            }
            if !has_begun {
                now.not_before = now.not_before.min(last.not_before);
            } else if is_other {
                // Who excludes others did not hold it beside the one before.
                now.not_before = now.not_before.max(Some(last.seen_at));
            } else {
                // It may still be the one before.
                now.not_before = now.not_before.max(last.not_before);
            }
        }
        self.last_hold = Some(now);
    }

    fn judge(
        &self,
        at: Timestamp,
        resolution: &Resolution,
        most_changes: HolderChanges,
    ) -> Vec<Finding> {
        let vacant = || {
            let limit = resolution.vacant_for.unwrap_or(VACANT_FOR);
            let free_for = self.free_for.filter(|_| resolution.must_be_held)?;
            (free_for >= limit).then_some((
                FindingKind::Vacant,
                Evidence::Vacant { free_for, limit, was_held: self.was_held },
            ))
        };
        let missed = || {
            let limit = resolution.last_held_within?;
            let missed_for = at.since(self.counted_from);
            (missed_for > limit).then_some((
                FindingKind::Missed,
                Evidence::Missed { missed_for, limit, was_held: self.was_held },
            ))
        };
        let repeated = || {
            let limit = resolution.not_again_within?;
            let Repeated { who, since, previous } = self.repeated.clone()?;
            Some((FindingKind::Repeated, Evidence::Repeated { who, since, previous, limit }))
        };
        let flapping = || {
            let HolderChanges { count, within } = most_changes;
            let changes = self.changes.len();
            let is_flapping =
                resolution.must_be_held && u32::try_from(changes).is_ok_and(|it| it > count);
            is_flapping.then_some((FindingKind::Flapping, Evidence::Flapping { count, within }))
        };
        [vacant(), missed(), repeated(), flapping()]
            .into_iter()
            .flatten()
            .map(|(kind, evidence)| Finding::of_key(kind, evidence))
            .collect()
    }

    /// Of what there is no finding, that for which it is too early: what happened before the process
    /// began to look may be one.
    fn undecided(
        &self,
        at: Timestamp,
        resolution: &Resolution,
        most_changes: HolderChanges,
        findings: &[Finding],
    ) -> Vec<Undecided> {
        let watched = at.since(self.began);
        // Who was seen to hold it reaches back further than we look.
        let never = |limit: Duration| (!self.was_held).then_some(limit);
        let vacant = resolution.vacant_for.unwrap_or(VACANT_FOR);
        let expected = [
            (FindingKind::Vacant, resolution.must_be_held.then_some(vacant).and_then(never)),
            (FindingKind::Missed, resolution.last_held_within.and_then(never)),
            (FindingKind::Repeated, resolution.not_again_within),
            (FindingKind::Flapping, resolution.must_be_held.then_some(most_changes.within)),
        ];
        let is_told = |kind: FindingKind| findings.iter().any(|finding| finding.kind == kind);
        let lock: Arc<str> = resolution.label().into();
        expected
            .into_iter()
            .filter_map(|(kind, needs)| Some((kind, needs?)))
            // Time in which polls failed says nothing of a vacancy.
            .filter(|(kind, needs)| *kind == FindingKind::Vacant || watched <= *needs)
            .filter(|(kind, _)| !is_told(*kind))
            .map(|(kind, needs)| Undecided { kind, lock: lock.clone(), watched, needs })
            .collect()
    }
}

impl LastHold {
    /// Where one of the two starts is hidden, nothing speaks against the same backend. What was
    /// prepared while nobody looked may be the transaction of the backend that held the key.
    fn is_session_of(&self, other: &Self) -> bool {
        if self.is_recalled && self.session.pid().is_some() && other.session.pid().is_none() {
            return true;
        }
        let is_same_start = self.backend_start.is_none()
            || other.backend_start.is_none()
            || self.backend_start == other.backend_start;
        self.session == other.session && is_same_start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Pid;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_unix_micros(seconds * 1_000_000)
    }

    fn remembered() -> Expected {
        Expected {
            began: at(60),
            free_for: Some(Duration::from_secs(50)),
            counted_from: at(100),
            was_held: true,
            last_hold: Some(LastHold {
                session: SessionId::Backend(Pid(7)),
                backend_start: Some(at(10)),
                not_before: Some(at(90)),
                seen_at: at(100),
                is_recalled: false,
            }),
            repeated: None,
            changes: VecDeque::from([at(80), at(90)]),
        }
    }

    #[test]
    fn what_can_be_so_is_believed() {
        let mut believed = remembered().believed(at(200)).unwrap();
        assert!(std::mem::replace(&mut believed.last_hold.as_mut().unwrap().is_recalled, false));
        assert_eq!(believed, remembered());
    }

    #[test]
    fn what_has_not_come_yet_or_contradicts_itself_is_not_believed() {
        assert_eq!(Expected { counted_from: at(999), ..remembered() }.believed(at(200)), None);
        let hold = |change: fn(&mut LastHold)| {
            let mut memory = remembered();
            memory.last_hold.as_mut().map(change);
            memory.believed(at(200)).unwrap().last_hold
        };
        assert_eq!(hold(|hold| hold.seen_at = at(999)), None);
        assert_eq!(hold(|hold| hold.not_before = Some(at(101))).unwrap().not_before, None);
        let changes = VecDeque::from([at(999), at(90), at(80)]);
        let believed = Expected { changes, ..remembered() }.believed(at(200)).unwrap();
        assert_eq!(believed.changes, [at(80), at(90)]);
        let free_for = Some(Duration::from_secs(5000));
        let believed = Expected { free_for, ..remembered() }.believed(at(200)).unwrap();
        assert_eq!(believed.free_for, Some(Duration::from_secs(100)), "no longer than unheld");
        let who = Who::Prepared { gid: None };
        let repeated = Some(Repeated { who, since: at(150), previous: at(160) });
        assert_eq!(Expected { repeated, ..remembered() }.believed(at(200)).unwrap().repeated, None);
    }

    #[test]
    fn what_was_seen_here_goes_before_a_memory_that_comes_late() {
        let here = Expected { free_for: Some(Duration::from_secs(3)), ..Expected::begin(at(300)) };
        let both = here.after(remembered());
        assert_eq!(both.free_for, Some(Duration::from_secs(53)));
        assert_eq!((both.counted_from, both.was_held), (at(100), true));
        let held = Expected { was_held: true, ..Expected::begin(at(300)) };
        assert_eq!(held.clone().after(remembered()), held);
    }
}
