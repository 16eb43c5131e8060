//! Who waits for whom: chains through locks of any type, and the roots at which they end.
//!
//! Whoever waits for an advisory lock may wait for somebody who waits for a row, who waits for a
//! table; and who holds a lock nobody waits for may keep an index from being built. All of it is
//! in one sample, and what follows is what `pg_blocking_pids()` would say of the same moment, with
//! no further question to the server.
//!
//! Parallel workers are one with their leader, as they are for the server: they never wait for
//! each other. Pure: from a sample, with the tracker's word for whose a row is. It knows no names
//! and no labels; what it finds goes to `view`.

mod graph;
mod queue;

use std::cmp::Reverse;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use self::graph::{Graph, Node};
use self::queue::{Cause, Queue};
use crate::map::{HashMap, HashSet};
use crate::mode::ModeSet;
use crate::sample::{LockTag, Pid, Sample};
use crate::timestamp::Timestamp;
use crate::tracker::{KeyId, SessionId, Tracker};

/// Everybody who waits for a lock of any type, and everybody waited for.
#[derive(Clone, Debug, Default)]
pub struct Chains {
    /// In order; a node of the graph is a place here.
    sessions: Vec<SessionId>,
    numbers: HashMap<SessionId, Node>,
    /// Of parallel workers.
    leaders: HashMap<Pid, Pid>,
    /// Locks that somebody waits for.
    queues: Vec<Queue>,
    /// What these locks are.
    awaited: Vec<Awaited>,
    by_key: HashMap<KeyId, usize>,
    /// What each session waits for: a queue and the place in it. One, but for parallel workers.
    requests: HashMap<Node, Vec<(usize, usize)>>,
    /// Which queues each session holds the lock of.
    holds: HashMap<Node, Vec<usize>>,
    graph: Graph,
    /// Of each session that waits.
    roots: HashMap<Node, Arc<[Root]>>,
}

/// A lock that somebody waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// An advisory lock.
    Key(KeyId),
    /// A lock of another type.
    Other(LockTag),
}

/// Somebody whom a waiter waits for directly.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocker {
    /// Who.
    pub id: SessionId,
    /// By what.
    pub kind: BlockerKind,
    /// Whether it is sure. Only the order of a queue may be in doubt.
    pub is_certain: bool,
}

/// What makes somebody a blocker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlockerKind {
    /// It holds the lock in a conflicting mode.
    Hard,
    /// It waits itself, ahead in the queue and for a conflicting mode.
    Soft,
}

/// Somebody at whom chains end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// Who.
    pub id: SessionId,
    /// It waits too, in a circle: a deadlock that the server has not broken yet.
    pub is_in_cycle: bool,
}

impl Awaited {
    /// The type, as `pg_locks.locktype` spells it.
    pub fn locktype(&self) -> &str {
        match self {
            Self::Key(_) => "advisory",
            Self::Other(tag) => &tag.locktype,
        }
    }
}

impl Chains {
    /// Reads them off a sample that the tracker has folded in.
    pub fn of(sample: &Sample, tracker: &Tracker) -> Self {
        // Workers of logical replication have a leader too, and wait for each other all the same.
        let workers = sample
            .backends
            .iter()
            .flatten()
            .filter(|backend| backend.backend_type.as_deref() == Some("parallel worker"));
        let leaders: HashMap<Pid, Pid> =
            workers.filter_map(|worker| Some((worker.pid, worker.leader?))).collect();
        let rows = Rows::of(sample, tracker, &leaders);
        let sessions: Vec<SessionId> = rows.who.iter().cloned().collect();
        let numbers: HashMap<SessionId, Node> =
            sessions.iter().cloned().enumerate().map(|(node, id)| (id, node)).collect();
        let mut chains = Self { sessions, numbers, leaders, ..Self::default() };
        for (lock, rows) in rows.by_lock {
            chains.add_queue(lock, rows);
        }
        chains.graph = Graph::of(chains.sessions.len(), &chains.queues);
        chains.name_roots();
        chains
    }

    /// Whom a session waits for directly, those who hold first. Each is there once. A session that
    /// waits for nobody has none.
    pub fn blockers(&self, waiter: &SessionId) -> impl Iterator<Item = Blocker> {
        let requests = self.requests_of(waiter);
        let mut seen = HashSet::default();
        requests
            .iter()
            .flat_map(|(queue, index)| self.queues[*queue].blockers(*index))
            .filter(move |(node, _)| requests.len() == 1 || seen.insert(*node))
            .map(|(node, cause)| Blocker {
                id: self.sessions[node].clone(),
                kind: match cause {
                    Cause::Holds => BlockerKind::Hard,
                    Cause::IsAhead { .. } => BlockerKind::Soft,
                },
                is_certain: match cause {
                    Cause::Holds => true,
                    Cause::IsAhead { is_certain } => is_certain,
                },
            })
    }

    /// How many [`Chains::blockers`] there are, without listing them.
    pub fn blocker_count(&self, waiter: &SessionId) -> usize {
        match self.requests_of(waiter) {
            [(queue, index)] => self.queues[*queue].blocker_count(*index),
            _ => self.blockers(waiter).count(),
        }
    }

    /// Where the chains of a waiter end: with sessions and prepared transactions that wait for no
    /// lock, and with circles, of which every member is a root. Who keeps most others waiting comes
    /// first. Waiters of one end share the list.
    pub fn roots(&self, waiter: &SessionId) -> Arc<[Root]> {
        self.node(waiter).and_then(|node| self.roots.get(&node)).cloned().unwrap_or_default()
    }

    /// How many other sessions wait for this one, directly or through others, by locks of any type.
    pub fn sessions_behind(&self, id: &SessionId) -> usize {
        self.node(id).map_or(0, |node| self.graph.behind(node))
    }

    /// How many sessions wait for at least one of these.
    pub fn sessions_behind_any<'a>(&self, ids: impl IntoIterator<Item = &'a SessionId>) -> usize {
        let nodes: BTreeSet<Node> = ids
            .into_iter()
            .filter_map(|id| self.node(id))
            .filter(|node| self.graph.behind(*node) > 0)
            .collect();
        self.graph.behind_any(&Vec::from_iter(nodes))
    }

    /// Who is let in at once when this holder lets go of the key, and of nothing else. `None` where
    /// that depends on an order of waiters that is not known.
    pub fn next_holders(&self, key: KeyId, holder: &SessionId) -> Option<Arc<[SessionId]>> {
        let known = self.by_key.get(&key).zip(self.node(holder));
        let Some((queue, node)) = known else { return Some(Arc::default()) };
        let next = self.queues[*queue].next_without(node)?;
        Some(next.iter().map(|node| self.sessions[*node].clone()).collect())
    }

    /// The types of the locks for which somebody waits for this session directly: a hold without a
    /// waiter of its own may keep others waiting all the same.
    pub fn blocks_through(&self, id: &SessionId) -> BTreeSet<&str> {
        let Some(node) = self.node(id) else { return BTreeSet::new() };
        let held = self.holds.get(&node).into_iter().flatten();
        held.filter(|queue| self.queues[**queue].keeps_out_others(node))
            .map(|queue| self.awaited[*queue].locktype())
            .collect()
    }

    /// What a session waits for. A session waits for one lock at a time; one with parallel workers
    /// may for several.
    pub fn awaited(&self, waiter: &SessionId) -> impl Iterator<Item = &Awaited> {
        self.requests_of(waiter).iter().map(|(queue, _)| &self.awaited[*queue])
    }

    /// Since when a session waits. `None` where that is not known, and where it waits for several
    /// locks at once.
    pub fn waiting_since(&self, waiter: &SessionId) -> Option<Timestamp> {
        match self.requests_of(waiter) {
            [(queue, index)] => self.queues[*queue].waiting()[*index].start,
            _ => None,
        }
    }

    /// Where the chains end that one of these is part of: each end once, who keeps most others waiting
    /// first. One that waits for nobody is an end itself, if somebody waits for it.
    pub fn ends<'a>(&self, ids: impl IntoIterator<Item = &'a SessionId>) -> Vec<Root> {
        // Very many waiters share few lists.
        let mut seen = HashSet::default();
        let mut ends = BTreeSet::new();
        for roots in ids.into_iter().filter_map(|id| self.node(id)).map(|it| self.graph.roots(it)) {
            if seen.insert(roots.as_ptr()) {
                ends.extend(roots.iter().map(|end| (Reverse(self.graph.behind(*end)), *end)));
            }
        }
        ends.into_iter()
            .filter(|(Reverse(behind), _)| *behind > 0)
            .map(|(_, node)| self.name_root(node))
            .collect()
    }

    /// Everybody who is in a chain with one of these: in front of it, behind it, or it itself.
    pub fn in_chains_of<'a>(
        &self,
        ids: impl IntoIterator<Item = &'a SessionId>,
    ) -> HashSet<&SessionId> {
        let starts: Vec<Node> = ids.into_iter().filter_map(|id| self.node(id)).collect();
        let (ahead, behind) = (self.graph.ahead_of(&starts), self.graph.behind_of(&starts));
        let are_in = ahead.into_iter().zip(behind).map(|(ahead, behind)| ahead || behind);
        self.sessions.iter().zip(are_in).filter(|(_, is_in)| *is_in).map(|(id, _)| id).collect()
    }

    /// The session that stands for this one: the leader of a parallel worker, else itself. `None` for
    /// one that is in no chain.
    pub fn member(&self, id: &SessionId) -> Option<&SessionId> {
        self.node(id).map(|node| &self.sessions[node])
    }

    /// The same chains, to be followed from those who are waited for.
    pub fn backwards(&self) -> Backwards<'_> {
        Backwards { chains: self, edges: self.graph.reversed() }
    }

    /// Everybody who waits for a lock, of any type.
    pub fn waiters(&self) -> impl Iterator<Item = &SessionId> {
        self.requests.keys().map(|node| &self.sessions[*node])
    }

    /// The session that stands for this one: the leader of a parallel worker, else itself.
    fn node(&self, id: &SessionId) -> Option<Node> {
        let leader = id.pid().and_then(|pid| self.leaders.get(&pid));
        match leader {
            Some(leader) => self.numbers.get(&SessionId::Backend(*leader)),
            None => self.numbers.get(id),
        }
        .copied()
    }

    fn requests_of(&self, waiter: &SessionId) -> &[(usize, usize)] {
        self.node(waiter).and_then(|node| self.requests.get(&node)).map_or(&[], Vec::as_slice)
    }

    fn add_queue(&mut self, lock: LockId<'_>, rows: Vec<Row>) {
        let mut held: HashMap<Node, ModeSet> = HashMap::default();
        let mut requests = Vec::new();
        for row in rows {
            let node = self.numbers[&row.who];
            if row.is_granted {
                let modes = held.entry(node).or_default();
                *modes = modes.union(row.mode);
            } else {
                requests.push((node, row.mode, row.wait_start));
            }
        }
        let queue = Queue::new(held, requests);
        let number = self.queues.len();
        for (index, request) in queue.waiting().iter().enumerate() {
            self.requests.entry(request.node).or_default().push((number, index));
        }
        for node in queue.holders() {
            self.holds.entry(node).or_default().push(number);
        }
        self.awaited.push(match lock {
            LockId::Key(key) => {
                self.by_key.insert(key, number);
                Awaited::Key(key)
            }
            LockId::Other(tag) => Awaited::Other(tag.clone()),
        });
        self.queues.push(queue);
    }

    fn name_roots(&mut self) {
        let mut named: HashMap<*const Node, Arc<[Root]>> = HashMap::default();
        for node in self.requests.keys() {
            let roots = self.graph.roots(*node);
            let named = named.entry(roots.as_ptr()).or_insert_with(|| {
                let mut nodes = roots.to_vec();
                nodes.sort_by_key(|node| (Reverse(self.graph.behind(*node)), *node));
                nodes.into_iter().map(|node| self.name_root(node)).collect()
            });
            self.roots.insert(*node, named.clone());
        }
    }

    fn name_root(&self, node: Node) -> Root {
        Root { id: self.sessions[node].clone(), is_in_cycle: self.graph.is_in_cycle(node) }
    }
}

/// Chains, from their ends to those who wait.
#[derive(Debug)]
pub struct Backwards<'a> {
    chains: &'a Chains,
    /// For each node of the graph, who waits for it.
    edges: Vec<Vec<Node>>,
}

impl<'a> Backwards<'a> {
    /// Who waits for one of these, directly or through others that `passes` lets through: each once,
    /// with one of those for whom it waits. Nobody is visited twice, however many ways there are.
    pub fn waiters_behind<'b>(
        &self,
        ids: impl IntoIterator<Item = &'b SessionId>,
        passes: impl Fn(&SessionId) -> bool,
    ) -> Vec<(&'a SessionId, &'a SessionId)> {
        let chains = self.chains;
        let starts = ids.into_iter().filter_map(|id| chains.node(id));
        let mut open: VecDeque<(Node, Node)> = starts.map(|node| (node, node)).collect();
        let mut is_seen: HashSet<Node> = open.iter().map(|(node, _)| *node).collect();
        let mut found = Vec::new();
        while let Some((node, start)) = open.pop_front() {
            for waiter in &self.edges[node] {
                if !is_seen.insert(*waiter) {
                    continue;
                }
                // What all who wait for the same share is nobody.
                let Some(id) = chains.sessions.get(*waiter) else {
                    open.push_back((*waiter, start));
                    continue;
                };
                found.push((id, &chains.sessions[start]));
                if passes(id) {
                    open.push_back((*waiter, start));
                }
            }
        }
        found
    }
}

/// What a row is about.
#[derive(PartialEq, Eq, Hash)]
enum LockId<'a> {
    Key(KeyId),
    Other(&'a LockTag),
}

struct Row {
    who: SessionId,
    mode: ModeSet,
    is_granted: bool,
    wait_start: Option<Timestamp>,
}

/// The rows of locks that somebody waits for; no others make chains.
struct Rows<'a> {
    by_lock: HashMap<LockId<'a>, Vec<Row>>,
    who: BTreeSet<SessionId>,
}

impl<'a> Rows<'a> {
    fn of(sample: &'a Sample, tracker: &Tracker, leaders: &HashMap<Pid, Pid>) -> Self {
        let mut rows = Self { by_lock: HashMap::default(), who: BTreeSet::new() };
        let whose = |pid: Option<Pid>, transaction| match pid.and_then(|pid| leaders.get(&pid)) {
            Some(leader) => SessionId::Backend(*leader),
            None => tracker.owner(pid, transaction),
        };
        // Those who wait first: they decide which locks matter, and nearly always there are none.
        for is_granted in [false, true] {
            for group in sample.advisory.iter().filter(|group| group.granted == is_granted) {
                if is_granted && rows.by_lock.is_empty() {
                    break;
                }
                let who = whose(group.pid, &group.transaction);
                for key in &group.keys {
                    let lock = LockId::Key(KeyId { database: group.database, key: *key });
                    rows.add(
                        lock,
                        Row {
                            who: who.clone(),
                            mode: (&group.mode).into(),
                            is_granted,
                            wait_start: group.wait_start,
                        },
                    );
                }
            }
            for row in sample.other_locks.iter().filter(|row| row.granted == is_granted) {
                rows.add(
                    LockId::Other(&row.tag),
                    Row {
                        who: whose(row.pid, &row.transaction),
                        mode: (&row.mode).into(),
                        is_granted,
                        wait_start: row.wait_start,
                    },
                );
            }
        }
        rows
    }

    fn add(&mut self, lock: LockId<'a>, row: Row) {
        if row.is_granted {
            let Some(rows) = self.by_lock.get_mut(&lock) else { return };
            self.who.insert(row.who.clone());
            rows.push(row);
        } else {
            self.who.insert(row.who.clone());
            self.by_lock.entry(lock).or_default().push(row);
        }
    }
}

#[cfg(test)]
mod tests;
