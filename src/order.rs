//! In which order sessions take their keys.
//!
//! Who takes A and then B, and who takes B and then A, will deadlock one day, when they come at the
//! same moment. No deadlock has to happen to see it: each order shows by itself, at its own time.
//!
//! - An order is *certain* when one sample shows a session that holds A and waits for B.
//! - It is a *hint* when A was held throughout since the last poll, for certain, and B was taken
//!   meanwhile. Two keys that appear in one poll say nothing of their order, nor does a key that may
//!   have been let go of and taken again between two polls, by whatever means: unlocked, or rolled
//!   back to a savepoint within one transaction.
//!
//! Two opposite orders are an inversion if a deadlock is possible: the modes conflict on both keys,
//! somebody has waited for each of them (who only ever tries does not deadlock), and no third key
//! that both held keeps the two apart. It is told as a finding if one of the two is certain.
//!
//! Pure, and bounded in memory and time, whatever sessions do. Names come from `series`; what is
//! found goes into the picture, where `finding` and the JSON take it from.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::map::{HashMap, HashSet};
use crate::mode::{Mode, ModeSet};
use crate::sample::{KeyGroup, Pid, Sample};
use crate::series::Label;
use crate::timestamp::Timestamp;
use crate::tracker::{Change, HoldId, KeyId, SessionId, Tracker, WaitId};
use crate::view::{Holder, Party, Picture};

/// An inversion is told for so long after the later of its orders was last seen.
pub const OPEN: Duration = Duration::from_secs(24 * 3600);

/// An order is remembered for so long after it was last seen. Longer than an inversion is open, so
/// that the second order may come a day after the first; and not for good, so that an inversion ends
/// when one of the orders is given up and the other goes on.
const REMEMBERED: Duration = Duration::from_secs(48 * 3600);

/// So many keys of one session count at one moment.
pub const KEYS_OF_A_SESSION: usize = 64;

/// So many orders are remembered, and so many keys for which somebody waited.
pub const EDGES: usize = 10_000;

/// So many inversions are told, the newest.
pub const INVERSIONS: usize = 1_000;

/// One key taken while another was held.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Held.
    pub held: KeyId,
    /// How.
    pub held_modes: ModeSet,
    /// Taken, or waited for, meanwhile.
    pub taken: KeyId,
    /// How.
    pub taken_modes: ModeSet,
    /// How sure it is.
    pub grade: Grade,
    /// Who did so last, as it was seen then.
    pub who: Party,
    /// When it was seen first.
    pub first: Sight,
    /// When it was seen last.
    pub last: Sight,
    /// How often: waits, or takings; not polls.
    pub times: u64,
    /// Keys held beside these two every time, each in the weakest modes, in order.
    beside: Arc<[(KeyId, ModeSet)]>,
}

/// How sure an order is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Grade {
    /// One key was there throughout while the other appeared.
    Hint,
    /// One sample shows both the hold and the wait.
    Certain,
}

/// The moment of a poll on both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Sight {
    /// The server's.
    pub at: Timestamp,
    /// Ours.
    pub at_local: Timestamp,
}

/// Two keys that were seen taken in both orders, so that a deadlock is possible.
#[derive(Clone, Debug)]
pub struct Inversion {
    /// One order and the other: each takes what the other holds. The first holds the lower key.
    pub edges: [Edge; 2],
    /// What the key is called that each of them holds.
    pub labels: [Arc<Label>; 2],
    /// At least one of the orders is certain. From two hints it may be an inversion, and is no
    /// finding.
    pub is_certain: bool,
}

/// What orders are read off.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// What the poll saw.
    pub sample: &'a Sample,
    /// What is known of holds and waits, this poll included.
    pub tracker: &'a Tracker,
    /// What the poll changed.
    pub changes: &'a [Change],
    /// What it is drawn as.
    pub picture: &'a Picture,
    /// What the poll before it, if there was one, was drawn as.
    pub before: Option<&'a Picture>,
}

/// The orders seen on one server.
#[derive(Debug, Default)]
pub struct Orders {
    /// By the key held and the key taken; one for each combination of modes and grade.
    edges: HashMap<(KeyId, KeyId), Vec<Edge>>,
    /// Of all of the above.
    count: usize,
    /// Pairs of keys with edges in both directions, the lower key first.
    both: BTreeSet<(KeyId, KeyId)>,
    /// When somebody was last seen to wait for a key, on our clock.
    awaited: HashMap<KeyId, Timestamp>,
}

/// One session that takes a key, or waits for it, while it holds others.
struct Taking<'a> {
    /// Those that it held for certain.
    before: Vec<(KeyId, ModeSet)>,
    /// Everything it held, these included, in order.
    beside: Arc<[(KeyId, ModeSet)]>,
    taken: KeyId,
    mode: &'a Mode,
    grade: Grade,
    who: Party,
    /// Not the wait that an earlier poll saw.
    is_new: bool,
}

impl Orders {
    /// Folds one sample in.
    pub fn observe(&mut self, scene: Scene<'_>) {
        let now = Sight { at: scene.picture.at, at_local: scene.picture.at_local };
        self.forget(now.at_local);
        let awaited: BTreeSet<KeyId> = scene.tracker.waits().keys().map(|id| id.key).collect();
        // An order shows only while somebody waits: for the key that is taken, or behind the hold
        // that this proves.
        if awaited.is_empty() {
            return;
        }
        self.awaited.extend(awaited.iter().map(|key| (*key, now.at_local)));
        self.bound_awaited();
        let lasting = scene.lasting_holders(&awaited);
        let waiters = scene.tracker.waits().keys().filter_map(|id| id.waiter.pid());
        let groups = scene.groups_of(&waiters.chain(lasting.keys().copied()).collect());
        let mut takings = self.waits(scene, &awaited, &groups);
        takings.extend(self.takings(scene, &lasting, &groups));
        self.remember(takings, now);
    }

    /// What is open, the newest first; `labels` says what keys are called.
    pub fn inversions(
        &self,
        now: Timestamp,
        labels: impl FnOnce(&[KeyId]) -> HashMap<KeyId, Arc<Label>>,
    ) -> Vec<Arc<Inversion>> {
        let mut open: Vec<Opposite<'_>> =
            self.both.iter().filter_map(|pair| self.opposite(*pair, now)).collect();
        open.sort_by_key(|it| (Reverse(it.seen()), it.edges[0].held, it.edges[0].taken));
        open.truncate(INVERSIONS);
        // Those of findings first: within a bound it is they that keep what they have.
        let of = |is_certain: bool| open.iter().filter(move |it| it.is_certain() == is_certain);
        let keys = of(true).chain(of(false)).flat_map(|it| it.edges.map(|edge| edge.held));
        let mut seen = HashSet::default();
        let keys: Vec<KeyId> = keys.filter(|key| seen.insert(*key)).collect();
        let labels = labels(&keys);
        open.iter().filter_map(|it| it.told(&labels)).map(Arc::new).collect()
    }

    /// How many orders are remembered.
    pub const fn len(&self) -> usize {
        self.count
    }

    /// Whether none was seen.
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Who holds something and waits for something else.
    fn waits<'a>(
        &self,
        scene: Scene<'a>,
        awaited: &BTreeSet<KeyId>,
        groups: &HashMap<Pid, Vec<&'a KeyGroup>>,
    ) -> Vec<Taking<'a>> {
        let mut takings = Vec::new();
        let locks = awaited.iter().filter_map(|key| scene.picture.lock(*key));
        for (lock, waiter) in locks.flat_map(|lock| lock.waiters.iter().map(move |it| (lock, it))) {
            let Some(groups) = waiter.id.pid().and_then(|pid| groups.get(&pid)) else { continue };
            let beside = self.kept_keys(&waiter.id, groups, lock.id, scene.tracker);
            let id = WaitId { waiter: waiter.id.clone(), key: lock.id, mode: waiter.mode.clone() };
            takings.push(Taking {
                before: beside.iter().filter(|(key, _)| *key != lock.id).copied().collect(),
                beside: beside.into(),
                taken: lock.id,
                mode: &waiter.mode,
                grade: Grade::Certain,
                who: Party::of_waiter(waiter),
                is_new: scene
                    .tracker
                    .waits()
                    .get(&id)
                    .is_none_or(|wait| wait.first_seen == scene.picture.at),
            });
        }
        takings
    }

    /// Who has taken something while it held something else throughout.
    fn takings<'a>(
        &self,
        scene: Scene<'a>,
        lasting: &HashMap<Pid, Vec<(KeyId, ModeSet, &'a Holder)>>,
        groups: &HashMap<Pid, Vec<&'a KeyGroup>>,
    ) -> Vec<Taking<'a>> {
        let mut begun: BTreeMap<Pid, Vec<&HoldId>> = BTreeMap::new();
        for change in scene.changes {
            if let Change::HoldBegan { id } = change
                && let Some(pid) = id.holder.pid().filter(|pid| lasting.contains_key(pid))
                && !scene.was_held(id)
            {
                begun.entry(pid).or_default().push(id);
            }
        }
        let mut takings = Vec::new();
        for (pid, mut taken) in begun {
            // In an order of their own, and each session makes no more hints than it has keys.
            taken.sort_by_key(|id| id.key);
            let (held, mut left) = (&lasting[&pid], KEYS_OF_A_SESSION);
            let is_new = |key: KeyId| taken.binary_search_by_key(&key, |id| id.key).is_ok();
            for id in &taken {
                let before = held.iter().map(|(key, modes, _)| (*key, *modes));
                let before = before.filter(|(key, _)| key.database == id.key.database);
                let before: Vec<_> = before.filter(|(key, _)| !is_new(*key)).take(left).collect();
                let Some((.., holder)) = held.first().filter(|_| !before.is_empty()) else {
                    continue;
                };
                left -= before.len();
                let beside = self.kept_keys(&id.holder, &groups[&pid], id.key, scene.tracker);
                takings.push(Taking {
                    before,
                    beside: beside.into_iter().filter(|(key, _)| !is_new(*key)).collect(),
                    taken: id.key,
                    mode: &id.mode,
                    grade: Grade::Hint,
                    who: Party::of_holder(holder),
                    is_new: true,
                });
            }
        }
        takings
    }

    /// What a session holds in the database of a key, in order, up to the bound. Of more keys those
    /// count first for which somebody waited: no other can be part of an inversion, and few are. Of
    /// these and of the session's keys the fewer are looked at.
    fn kept_keys(
        &self,
        session: &SessionId,
        groups: &[&KeyGroup],
        of: KeyId,
        tracker: &Tracker,
    ) -> Vec<(KeyId, ModeSet)> {
        let groups = || groups.iter().filter(|group| group.database == of.database);
        let rows = || {
            groups().flat_map(|group| {
                let row = |key| (KeyId { database: group.database, key }, (&group.mode).into());
                group.keys.iter().map(move |key| row(*key))
            })
        };
        let count: usize = groups().map(|group| group.keys.len()).sum();
        let mut kept: Vec<(KeyId, ModeSet)> = if count <= KEYS_OF_A_SESSION {
            rows().collect()
        } else if count <= self.awaited.len() {
            rows().filter(|(key, _)| self.awaited.contains_key(key)).collect()
        } else {
            let is_held = |key: &KeyId, mode: &Mode| {
                let id = HoldId { holder: session.clone(), key: *key, mode: mode.clone() };
                tracker.holds().contains_key(&id)
            };
            let held = self.awaited.keys().flat_map(|key| {
                let modes = groups().map(|group| &group.mode);
                modes.filter(|mode| is_held(key, mode)).map(|mode| (*key, mode.into()))
            });
            held.collect()
        };
        if count > KEYS_OF_A_SESSION {
            kept.sort_by_key(|(key, _)| (Reverse(self.awaited.get(key)), *key));
            kept.truncate(KEYS_OF_A_SESSION);
            for row in rows() {
                if kept.len() >= KEYS_OF_A_SESSION {
                    break;
                }
                if !kept.contains(&row) {
                    kept.push(row);
                }
            }
        }
        // A session that has a key in two modes has two rows.
        kept.sort_by_key(|(key, _)| *key);
        kept.dedup_by(|(key, modes), (first, all)| {
            let is_same = key == first;
            if is_same {
                *all = all.union(*modes);
            }
            is_same
        });
        kept
    }

    fn remember(&mut self, takings: Vec<Taking<'_>>, now: Sight) {
        let mut fresh: BTreeMap<Rank, Edge> = BTreeMap::new();
        for taking in takings {
            for (held, held_modes) in &taking.before {
                let rank = taking.rank(*held, *held_modes);
                let known = self.edges.get_mut(&(*held, taking.taken));
                let known = known.into_iter().flatten().find(|edge| edge.rank() == rank);
                if let Some(edge) = known.or_else(|| fresh.get_mut(&rank)) {
                    edge.see(&taking, now);
                } else if fresh.len() < EDGES {
                    // More could not be kept, whatever is forgotten for them.
                    fresh.insert(rank, taking.edge(*held, *held_modes, now));
                }
            }
        }
        self.make_room(fresh.len(), now);
        for edge in fresh.into_values().take(EDGES - self.count) {
            let (held, taken) = (edge.held, edge.taken);
            if self.edges.contains_key(&(taken, held)) {
                self.both.insert(pair(held, taken));
            }
            self.edges.entry((held, taken)).or_default().push(edge);
            self.count += 1;
        }
    }

    /// Forgets what was not seen for longest, and nothing that is seen now.
    fn make_room(&mut self, fresh: usize, now: Sight) {
        let surplus = (self.count + fresh).saturating_sub(EDGES);
        if surplus == 0 {
            return;
        }
        let all = self.edges.values().flatten();
        let past = all.filter(|edge| edge.last.at_local != now.at_local);
        let mut oldest: Vec<_> = past.map(|edge| (edge.last.at_local, edge.rank())).collect();
        oldest.sort_unstable();
        let Some(last) = oldest.get(surplus.min(oldest.len()).saturating_sub(1)).copied() else {
            return;
        };
        self.retain(|edge| {
            edge.last.at_local == now.at_local || (edge.last.at_local, edge.rank()) > last
        });
    }

    fn forget(&mut self, now: Timestamp) {
        self.retain(|edge| now.since(edge.last.at_local) <= REMEMBERED);
        self.awaited.retain(|_, seen| now.since(*seen) <= REMEMBERED);
    }

    fn retain(&mut self, keep: impl Fn(&Edge) -> bool) {
        let (both, count) = (&mut self.both, &mut self.count);
        self.edges.retain(|(held, taken), edges| {
            let before = edges.len();
            edges.retain(|edge| keep(edge));
            *count -= before - edges.len();
            if edges.is_empty() {
                both.remove(&pair(*held, *taken));
            }
            !edges.is_empty()
        });
    }

    fn bound_awaited(&mut self) {
        let surplus = self.awaited.len().saturating_sub(EDGES);
        if surplus == 0 {
            return;
        }
        let mut oldest: Vec<_> = self.awaited.iter().map(|(key, seen)| (*seen, *key)).collect();
        oldest.sort_unstable();
        for (_, key) in oldest.into_iter().take(surplus) {
            self.awaited.remove(&key);
        }
    }

    /// The two orders of a pair that may deadlock and were seen last; certain ones before hints.
    fn opposite(&self, (low, high): (KeyId, KeyId), now: Timestamp) -> Option<Opposite<'_>> {
        let (there, back) = (self.edges.get(&(low, high))?, self.edges.get(&(high, low))?);
        let all = there.iter().flat_map(|one| back.iter().map(|other| Opposite::of(one, other)));
        all.filter(|it| now.since(it.seen()) <= OPEN && it.may_deadlock())
            .filter(|it| it.edges.iter().all(|edge| self.was_awaited(edge)))
            .max_by_key(|it| (it.is_certain(), it.seen()))
    }

    /// Whether somebody waited for the key that it takes.
    fn was_awaited(&self, edge: &Edge) -> bool {
        edge.grade == Grade::Certain || self.awaited.contains_key(&edge.taken)
    }
}

impl<'a> Scene<'a> {
    /// Who has held an awaited key throughout since the last poll, with these keys.
    fn lasting_holders(
        self,
        awaited: &BTreeSet<KeyId>,
    ) -> HashMap<Pid, Vec<(KeyId, ModeSet, &'a Holder)>> {
        let mut lasting: HashMap<Pid, Vec<_>> = HashMap::default();
        let locks = awaited.iter().filter_map(|key| self.picture.lock(*key));
        for (lock, holder) in locks.flat_map(|lock| lock.holders.iter().map(move |it| (lock, it))) {
            let Some(pid) = holder.id.pid() else { continue };
            let is_unbroken = |mode: &&Mode| {
                let (holder, mode) = (holder.id.clone(), (*mode).clone());
                let hold = self.tracker.holds().get(&HoldId { holder, key: lock.id, mode });
                hold.is_some_and(|hold| hold.is_unbroken)
            };
            let modes: ModeSet = holder.modes().filter(is_unbroken).map(ModeSet::from).collect();
            if !modes.is_empty() {
                lasting.entry(pid).or_default().push((lock.id, modes, holder));
            }
        }
        lasting
    }

    /// What these sessions hold.
    fn groups_of(self, pids: &HashSet<Pid>) -> HashMap<Pid, Vec<&'a KeyGroup>> {
        let mut groups: HashMap<Pid, Vec<&KeyGroup>> = HashMap::default();
        for group in self.sample.advisory.iter().filter(|group| group.granted) {
            if let Some(pid) = group.pid.filter(|pid| pids.contains(pid)) {
                groups.entry(pid).or_default().push(group);
            }
        }
        groups
    }

    /// Whether the poll before saw the session with the key, in whatever mode: then it has not
    /// been taken since, for all that is known.
    fn was_held(self, id: &HoldId) -> bool {
        let lock = self.before.and_then(|before| before.lock(id.key));
        lock.is_some_and(|lock| lock.holders.iter().any(|holder| holder.id == id.holder))
    }
}

impl Taking<'_> {
    fn rank(&self, held: KeyId, held_modes: ModeSet) -> Rank {
        (held, self.taken, held_modes, self.mode.into(), self.grade)
    }

    fn edge(&self, held: KeyId, held_modes: ModeSet, now: Sight) -> Edge {
        Edge {
            held,
            held_modes,
            taken: self.taken,
            taken_modes: self.mode.into(),
            grade: self.grade,
            who: self.who.clone(),
            first: now,
            last: now,
            times: 1,
            beside: self.beside.clone(),
        }
    }
}

/// What makes an edge another one, and an order among those that were seen at one moment.
type Rank = (KeyId, KeyId, ModeSet, ModeSet, Grade);

impl Edge {
    fn rank(&self) -> Rank {
        (self.held, self.taken, self.held_modes, self.taken_modes, self.grade)
    }

    fn see(&mut self, taking: &Taking<'_>, now: Sight) {
        self.who = taking.who.clone();
        self.times += u64::from(taking.is_new);
        self.last = now;
        // Who waits takes nothing more meanwhile.
        if taking.is_new && *self.beside != *taking.beside {
            self.beside = common(&self.beside, &taking.beside)
                .filter_map(|(key, one, other)| Some((key, weaker(one, other)?)))
                .collect();
        }
    }
}

/// Two orders of one pair of keys, each the other's opposite.
struct Opposite<'a> {
    edges: [&'a Edge; 2],
}

impl<'a> Opposite<'a> {
    fn of(one: &'a Edge, other: &'a Edge) -> Self {
        Self { edges: [one, other] }
    }

    /// When the later of the two was last seen, on our clock.
    fn seen(&self) -> Timestamp {
        let [one, other] = self.edges.map(|edge| edge.last.at_local);
        one.max(other)
    }

    fn is_certain(&self) -> bool {
        self.edges.iter().any(|edge| edge.grade == Grade::Certain)
    }

    /// Each waits for what the other holds, and nothing keeps them from coming so far.
    fn may_deadlock(&self) -> bool {
        let [one, other] = self.edges;
        let is_apart = |(key, one_modes, other_modes): (KeyId, ModeSet, ModeSet)| {
            key != one.held && key != one.taken && one_modes.conflicts().intersects(other_modes)
        };
        one.held_modes.conflicts().intersects(other.taken_modes)
            && one.taken_modes.conflicts().intersects(other.held_modes)
            && !common(&one.beside, &other.beside).any(is_apart)
    }

    fn told(&self, labels: &HashMap<KeyId, Arc<Label>>) -> Option<Inversion> {
        let [one, other] = self.edges;
        Some(Inversion {
            labels: [labels.get(&one.held)?.clone(), labels.get(&other.held)?.clone()],
            edges: [one.clone(), other.clone()],
            is_certain: self.is_certain(),
        })
    }
}

fn pair(one: KeyId, other: KeyId) -> (KeyId, KeyId) {
    (one.min(other), one.max(other))
}

/// Keys that are in both of two lists in order, with their modes.
fn common(
    one: &[(KeyId, ModeSet)],
    other: &[(KeyId, ModeSet)],
) -> impl Iterator<Item = (KeyId, ModeSet, ModeSet)> {
    one.iter().filter_map(|(key, modes)| {
        let index = other.binary_search_by_key(key, |(key, _)| *key).ok()?;
        Some((*key, *modes, other[index].1))
    })
}

/// The modes that keep fewer others out; `None` where neither keeps out all that the other does not.
fn weaker(one: ModeSet, other: ModeSet) -> Option<ModeSet> {
    let (by_one, by_other) = (one.conflicts(), other.conflicts());
    match by_one.union(by_other) {
        all if all == by_other => Some(one),
        all if all == by_one => Some(other),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
