//! One lock with a queue: in which order its waiters stand, whom each of them waits for, and who
//! comes next.
//!
//! The lock table does not show the order. It follows from when each began to wait, but for those
//! who were let in front: the server puts a session that holds the lock in another mode before the
//! first waiter whom that hold keeps out (`JoinWaitQueue`), since behind it neither could go on.
//! Where the server's deadlock detector has reordered a queue, nothing tells.
//! Sessions are numbers here, and what the lock is does not matter. The queues go to `graph`, which
//! follows them from lock to lock.

use std::sync::Arc;

use super::graph::Node;
use crate::map::{HashMap, HashSet};
use crate::mode::{Mode, ModeSet};
use crate::timestamp::Timestamp;

/// The number of modes there are.
const MODES: usize = Mode::KNOWN.len();

/// Who holds a lock, and who waits for it, first come first.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    held: HashMap<Node, ModeSet>,
    waiting: Vec<Request>,
    /// For each mode that is asked for: who holds a mode that keeps it out.
    opponents: [Vec<Node>; MODES],
    /// For each mode: where in the queue it is asked for.
    places: [Vec<usize>; MODES],
    /// For each place in the queue: how many sessions its request waits for.
    blockers: Vec<usize>,
    /// Who holds the lock and waits for it too.
    upgraders: HashSet<Node>,
    /// Who comes next when somebody lets go who holds these modes and does not wait.
    next: HashMap<ModeSet, Arc<[Node]>>,
}

/// A request that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    /// Whose it is.
    pub node: Node,
    /// The mode asked for; none where it is not known.
    pub mode: ModeSet,
    /// Since when.
    pub start: Option<Timestamp>,
    /// What the session holds of the same lock.
    holds: ModeSet,
    /// The session waits here with another request too: so do parallel workers.
    is_one_of_several: bool,
    /// Put where it stands as the first of several who could have stood there.
    is_guessed: bool,
    has_moved: bool,
}

/// Why somebody is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// Holds the lock in a conflicting mode.
    Holds,
    /// Stands ahead in the queue and asks for a conflicting mode. `is_certain` is false where the
    /// order of the two is not sure.
    IsAhead { is_certain: bool },
}

impl Queue {
    /// From what is held and who waits, in any order.
    pub(super) fn new(
        held: HashMap<Node, ModeSet>,
        requests: impl IntoIterator<Item = (Node, ModeSet, Option<Timestamp>)>,
    ) -> Self {
        let waiting = arrange(&held, requests);
        let asked: ModeSet = waiting.iter().map(|request| request.mode).collect();
        let mut opponents: [Vec<Node>; MODES] = Default::default();
        for place in asked.places() {
            let against = single(place).conflicts();
            opponents[place] = held
                .iter()
                .filter(|(_, modes)| modes.intersects(against))
                .map(|(node, _)| *node)
                .collect();
            opponents[place].sort_unstable();
        }
        let mut places: [Vec<usize>; MODES] = Default::default();
        for (index, request) in waiting.iter().enumerate() {
            request.mode.places().for_each(|place| places[place].push(index));
        }
        let nodes = waiting.iter().map(|request| request.node);
        let upgraders = nodes.filter(|node| held.contains_key(node)).collect();
        let mut queue = Self { held, waiting, opponents, places, upgraders, ..Self::default() };
        queue.blockers = queue.count_blockers();
        queue.next = queue.plan();
        queue
    }

    /// Everybody who waits, in the order in which they stand.
    pub(super) fn waiting(&self) -> &[Request] {
        &self.waiting
    }

    /// Who holds the lock in a mode that keeps this one out, the asking session included if it does.
    pub(super) fn opponents(&self, mode: ModeSet) -> &[Node] {
        mode.places().next().map_or(&[], |place| &self.opponents[place])
    }

    /// How many sessions a request waits for.
    pub(super) fn blocker_count(&self, index: usize) -> usize {
        self.blockers[index]
    }

    /// Whom a request waits for, each session once: holders, then those ahead in the queue.
    pub(super) fn blockers(&self, index: usize) -> impl Iterator<Item = (Node, Cause)> {
        let request = &self.waiting[index];
        let is_other = |node: Node| node != request.node;
        let holders = self.opponents(request.mode).iter().copied().filter(move |n| is_other(*n));
        let against = request.mode.conflicts();
        let mut seen = HashSet::default();
        let ahead = self
            .ahead_in_conflict(index)
            .map(|index| &self.waiting[index])
            .filter(move |other| is_other(other.node) && !other.holds.intersects(against))
            .filter(move |other| !other.is_one_of_several || seen.insert(other.node));
        holders.map(|node| (node, Cause::Holds)).chain(ahead.map(|other| {
            let is_certain = request.is_surely_behind(other);
            (other.node, Cause::IsAhead { is_certain })
        }))
    }

    /// Whether the session that asks is among those who would keep such a request out: it holds the
    /// lock in a conflicting mode, or asks twice.
    pub(super) fn is_its_own_opponent(&self, index: usize) -> bool {
        let request = &self.waiting[index];
        request.is_one_of_several || request.holds.intersects(request.mode.conflicts())
    }

    /// Who is let in at once when this session lets go of the lock. `None` where that depends on an
    /// order that is not known.
    pub(super) fn next_without(&self, node: Node) -> Option<Arc<[Node]>> {
        // One without a start has only just come and stands last; of two, nobody knows.
        if self.waiting.iter().filter(|request| request.start.is_none()).nth(1).is_some() {
            return None;
        }
        let Some(modes) = self.held.get(&node) else { return Some(Arc::default()) };
        // Who waits here as well changes the queue too.
        let planned = self.next.get(modes).filter(|_| !self.upgraders.contains(&node));
        Some(planned.cloned().unwrap_or_else(|| self.next_of(node).into()))
    }

    /// Whether somebody else waits for what this session holds.
    pub(super) fn keeps_out_others(&self, node: Node) -> bool {
        let against = self.held.get(&node).copied().unwrap_or_default().conflicts();
        against
            .places()
            .any(|place| self.places[place].iter().any(|index| self.waiting[*index].node != node))
    }

    /// Everybody who holds the lock.
    pub(super) fn holders(&self) -> impl Iterator<Item = Node> {
        self.held.keys().copied()
    }

    /// The requests ahead of one that conflict with it, the first in the queue first.
    fn ahead_in_conflict(&self, index: usize) -> impl Iterator<Item = usize> {
        let against = self.waiting[index].mode.conflicts();
        let mut rest: Vec<&[usize]> =
            against.places().map(|place| self.places[place].as_slice()).collect();
        std::iter::from_fn(move || {
            let nearest =
                rest.iter_mut().min_by_key(|places| places.first().copied().unwrap_or(index))?;
            let (first, others) = nearest.split_first()?;
            *nearest = others;
            (*first < index).then_some(*first)
        })
    }

    /// In one pass: with a thousand waiters for one key, half a million pairs wait for each other.
    fn count_blockers(&self) -> Vec<usize> {
        let mut ahead = [0_usize; MODES];
        // Those ahead who are counted as holders already, for each mode that may be asked for.
        let mut counted = [0_usize; MODES];
        let has_several = self.waiting.iter().any(|request| request.is_one_of_several);
        let mut counts = Vec::with_capacity(self.waiting.len());
        for (index, request) in self.waiting.iter().enumerate() {
            let against = request.mode.conflicts();
            let own = usize::from(request.holds.intersects(against));
            counts.push(if has_several {
                self.blockers(index).count()
            } else {
                let ahead: usize = against.places().map(|place| ahead[place]).sum();
                let counted: usize = request.mode.places().map(|place| counted[place]).sum();
                self.opponents(request.mode).len() - own + ahead - counted
            });
            request.mode.places().for_each(|place| ahead[place] += 1);
            let both = request.holds.conflicts();
            let queued = request.mode.conflicts();
            both.places()
                .filter(|place| queued.intersects(single(*place)))
                .for_each(|place| counted[place] += 1);
        }
        counts
    }

    /// Who comes next, for all who hold the same modes at once.
    fn plan(&self) -> HashMap<ModeSet, Arc<[Node]>> {
        let mut next = HashMap::default();
        for (node, modes) in self.held.iter().filter(|(node, _)| !self.upgraders.contains(node)) {
            next.entry(*modes).or_insert_with(|| self.next_of(*node).into());
        }
        next
    }

    /// What the server does when a lock is let go of (`ProcLockWakeup`): it walks through the
    /// queue and lets in whom neither a holder nor somebody left waiting ahead keeps out.
    fn next_of(&self, leaver: Node) -> Vec<Node> {
        let mut held =
            Counts::of(self.held.iter().filter(|(node, _)| **node != leaver).map(|it| *it.1));
        let (mut ahead, mut next) = (ModeSet::default(), Vec::new());
        let others = self.waiting.iter().filter(|request| request.node != leaver);
        // Of a mode that is not known nobody can say when it is let in.
        for request in others.filter(|request| !request.mode.is_empty()) {
            let against = request.mode.conflicts();
            if ahead.intersects(against) || held.without(request.holds).intersects(against) {
                ahead = ahead.union(request.mode);
            } else {
                held.add(request.mode);
                next.push(request.node);
            }
        }
        next
    }
}

impl Request {
    /// One that holds the lock too may stand further ahead than it seems: it may have been let in
    /// front of a waiter who has given up since.
    fn is_surely_behind(&self, other: &Self) -> bool {
        self.holds.is_empty()
            && self.start.is_some()
            && other.start.is_some()
            && self.start != other.start
            && !self.is_guessed
            && !other.is_guessed
    }
}

/// How many sessions hold or ask for each mode.
#[derive(Clone, Copy, Default)]
struct Counts([usize; MODES]);

impl Counts {
    fn of(sets: impl IntoIterator<Item = ModeSet>) -> Self {
        let mut counts = Self::default();
        sets.into_iter().for_each(|modes| counts.add(modes));
        counts
    }

    fn add(&mut self, modes: ModeSet) {
        modes.places().for_each(|place| self.0[place] += 1);
    }

    /// The modes that are there even without one session of these modes.
    fn without(self, own: ModeSet) -> ModeSet {
        (0..MODES)
            .filter(|place| self.0[*place] > usize::from(own.intersects(single(*place))))
            .map(single)
            .collect()
    }
}

/// The set of one mode, by its place in [`Mode::KNOWN`].
fn single(place: usize) -> ModeSet {
    ModeSet::from(&Mode::KNOWN[place])
}

/// Puts requests in the order of the server's queue.
fn arrange(
    held: &HashMap<Node, ModeSet>,
    requests: impl IntoIterator<Item = (Node, ModeSet, Option<Timestamp>)>,
) -> Vec<Request> {
    let mut requests: Vec<_> = requests.into_iter().collect();
    // In the first moment of a wait it has no start yet.
    requests.sort_by_key(|(node, _, start)| (start.is_none(), *start, *node));
    requests.dedup();
    let mut nodes = HashMap::default();
    requests.iter().for_each(|(node, ..)| *nodes.entry(*node).or_insert(0_usize) += 1);
    let mut queue: Vec<Request> = Vec::with_capacity(requests.len());
    let mut queued = ModeSet::default();
    for (node, mode, start) in requests {
        let holds = held.get(&node).copied().unwrap_or_default();
        let is_one_of_several = nodes[&node] > 1;
        let request = Request {
            node,
            mode,
            start,
            holds,
            is_one_of_several,
            is_guessed: false,
            has_moved: false,
        };
        let keeps_out = holds.conflicts();
        let is_kept_out = |other: &Request| other.node != node && other.mode.intersects(keeps_out);
        let place = queued.intersects(keeps_out).then(|| queue.iter().position(is_kept_out));
        queue.insert(place.flatten().unwrap_or(queue.len()), request);
        queued = queued.union(mode);
    }
    repair(held, &mut queue);
    queue
}

/// A waiter whom nobody keeps out would have been let in. Where one seems to be, somebody was let
/// in front of a waiter who has given up since, and whom no sample can show: it is the first behind
/// who holds the lock and keeps this one out.
fn repair(held: &HashMap<Node, ModeSet>, queue: &mut Vec<Request>) {
    let holders = Counts::of(held.values().copied());
    let mut ahead = ModeSet::default();
    let mut index = 0;
    while let Some(request) = queue.get(index) {
        let (node, against) = (request.node, request.mode.conflicts());
        let before = if request.is_one_of_several {
            queue[..index].iter().filter(|it| it.node != node).map(|it| it.mode).collect()
        } else {
            ahead
        };
        let is_blocked =
            before.intersects(against) || holders.without(request.holds).intersects(against);
        let mut candidates = queue[index + 1..].iter().enumerate().filter(|(_, other)| {
            let could_jump = !other.has_moved && !other.holds.is_empty();
            could_jump && other.node != node && other.mode.intersects(against)
        });
        let jumper = if is_blocked { None } else { candidates.next() };
        let Some((distance, _)) = jumper else {
            ahead = ahead.union(request.mode);
            index += 1;
            continue;
        };
        let is_guessed = candidates.next().is_some();
        let jumper = queue.remove(index + 1 + distance);
        queue.insert(index, Request { is_guessed, has_moved: true, ..jumper });
    }
}
