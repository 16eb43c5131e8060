//! Who waits for whom, through all queues at once: where chains end, who waits behind whom, and
//! who waits in a circle.
//!
//! Pairs are never listed: a thousand waiters for one key are half a million of them. A request
//! waits for the holders of its lock and for the line before it, which are nodes of their own and
//! shared by all who wait for the same.

use std::sync::Arc;

use super::queue::Queue;
use crate::mode::Mode;

/// A session, by its number. Larger numbers are holders or lines.
pub(super) type Node = usize;

/// What follows from all queues together.
#[derive(Clone, Debug, Default)]
pub(super) struct Graph {
    /// Whom each node waits for: sessions, holders of a lock, lines.
    edges: Vec<Vec<Node>>,
    /// Which nodes are sessions: those below this number.
    sessions: usize,
    /// Sessions that have a request in a queue.
    waits: Vec<bool>,
    /// Nodes that wait for each other; ends of chains come before what waits for them.
    components: Vec<Component>,
    /// The component of each node.
    component_of: Vec<usize>,
    /// For each session, how many wait behind it.
    behind: Vec<usize>,
}

/// Nodes that all wait for each other, through however many others; nearly always a single one.
#[derive(Clone, Debug)]
struct Component {
    nodes: Vec<Node>,
    is_cycle: bool,
    /// Sessions at which the chains of these nodes end.
    roots: Arc<[Node]>,
}

impl Graph {
    /// From the queues, over so many sessions.
    pub(super) fn of(sessions: usize, queues: &[Queue]) -> Self {
        let mut graph = Self {
            edges: vec![Vec::new(); sessions],
            sessions,
            waits: vec![false; sessions],
            ..Self::default()
        };
        queues.iter().for_each(|queue| graph.join(queue));
        graph.find_components();
        graph.find_roots();
        graph.count_behind();
        graph
    }

    /// Sessions at which the chains of this one end, in order: those that do not wait, and all
    /// members of a circle. Empty for one that waits for nobody.
    pub(super) fn roots(&self, session: Node) -> &Arc<[Node]> {
        &self.components[self.component_of[session]].roots
    }

    /// Whether the session waits for itself, through others.
    pub(super) fn is_in_cycle(&self, session: Node) -> bool {
        self.components[self.component_of[session]].is_cycle
    }

    /// How many other sessions wait for this one, directly or through others.
    pub(super) fn behind(&self, session: Node) -> usize {
        self.behind[session]
    }

    /// How many sessions wait for at least one of these, directly or through others.
    pub(super) fn behind_any(&self, sessions: &[Node]) -> usize {
        if let [one] = sessions {
            return self.behind(*one);
        }
        let mut is_meant = vec![false; self.edges.len()];
        sessions.iter().for_each(|session| is_meant[*session] = true);
        let mut leads_there = vec![false; self.components.len()];
        let mut count = 0;
        for (number, component) in self.components.iter().enumerate() {
            let leads = |node: &Node| {
                self.edges[*node]
                    .iter()
                    .any(|to| is_meant[*to] || leads_there[self.component_of[*to]])
            };
            if component.nodes.iter().any(leads) {
                leads_there[number] = true;
                count += component.nodes.iter().filter(|node| self.is_waiter(**node)).count();
            }
        }
        count
    }

    /// For each node, who waits for it.
    pub(super) fn reversed(&self) -> Vec<Vec<Node>> {
        let mut reversed = vec![Vec::new(); self.edges.len()];
        for (from, edges) in self.edges.iter().enumerate() {
            edges.iter().for_each(|to| reversed[*to].push(from));
        }
        reversed
    }

    /// For each node, whether it is one of these or in front of one of them.
    pub(super) fn ahead_of(&self, starts: &[Node]) -> Vec<bool> {
        reached(starts, &self.edges)
    }

    /// For each node, whether it is one of these or behind one of them.
    pub(super) fn behind_of(&self, starts: &[Node]) -> Vec<bool> {
        reached(starts, &self.reversed())
    }

    /// How much there is to walk through.
    #[cfg(test)]
    pub(super) fn edge_count(&self) -> usize {
        self.edges.iter().map(Vec::len).sum()
    }

    fn is_waiter(&self, node: Node) -> bool {
        self.waits.get(node).copied().unwrap_or(false)
    }

    fn add_node(&mut self, edges: Vec<Node>) -> Node {
        self.edges.push(edges);
        self.edges.len() - 1
    }

    fn join(&mut self, queue: &Queue) {
        // The node of all who hold the lock against a mode, and the end of the line of each mode.
        let mut holders = [None; Mode::KNOWN.len()];
        let mut lines: [Option<Node>; Mode::KNOWN.len()] = [None; Mode::KNOWN.len()];
        for (index, request) in queue.waiting().iter().enumerate() {
            self.waits[request.node] = true;
            if queue.is_its_own_opponent(index) {
                // What all share would lead it back to itself, so its blockers are listed. There are
                // few of these: two that hold the same modes and ask for the same would be a deadlock
                // that the server sees at once.
                self.edges[request.node].extend(queue.blockers(index).map(|(node, _)| node));
            } else {
                for place in request.mode.places() {
                    let opponents = queue.opponents(request.mode);
                    let node =
                        *holders[place].get_or_insert_with(|| self.add_node(opponents.to_vec()));
                    self.edges[request.node].push(node);
                }
                let against = request.mode.conflicts();
                self.edges[request.node].extend(against.places().filter_map(|place| lines[place]));
            }
            for place in request.mode.places() {
                let line = lines[place].into_iter().chain([request.node]).collect();
                lines[place] = Some(self.add_node(line));
            }
        }
    }

    /// Tarjan's algorithm, without recursion: chains may be as long as there are sessions.
    fn find_components(&mut self) {
        const UNSEEN: usize = usize::MAX;
        let count = self.edges.len();
        let mut numbers = vec![UNSEEN; count];
        let mut lowest = vec![UNSEEN; count];
        self.component_of = vec![UNSEEN; count];
        let (mut seen, mut open) = (0, Vec::new());
        for start in 0..count {
            if numbers[start] != UNSEEN {
                continue;
            }
            let mut path = vec![(start, 0)];
            while let Some((node, edge)) = path.last_mut() {
                let node = *node;
                if *edge == 0 {
                    (numbers[node], lowest[node]) = (seen, seen);
                    seen += 1;
                    open.push(node);
                }
                if let Some(to) = self.edges[node].get(*edge) {
                    *edge += 1;
                    if numbers[*to] == UNSEEN {
                        path.push((*to, 0));
                    } else if self.component_of[*to] == UNSEEN {
                        lowest[node] = lowest[node].min(numbers[*to]);
                    }
                    continue;
                }
                path.pop();
                if let Some((parent, _)) = path.last() {
                    lowest[*parent] = lowest[*parent].min(lowest[node]);
                }
                if lowest[node] == numbers[node] {
                    let first = open.iter().rposition(|it| *it == node).unwrap_or_default();
                    self.close(open.split_off(first));
                }
            }
        }
    }

    fn close(&mut self, nodes: Vec<Node>) {
        for node in &nodes {
            self.component_of[*node] = self.components.len();
        }
        let is_cycle = nodes.iter().filter(|node| **node < self.sessions).nth(1).is_some();
        self.components.push(Component { nodes, is_cycle, roots: Arc::default() });
    }

    fn find_roots(&mut self) {
        for number in 0..self.components.len() {
            let component = &self.components[number];
            let sessions = component.nodes.iter().copied().filter(|node| *node < self.sessions);
            let own: Vec<Node> =
                sessions.filter(|node| component.is_cycle || !self.waits[*node]).collect();
            let others = component.nodes.iter().flat_map(|node| &self.edges[*node]);
            let sets = others.map(|to| self.component_of[*to]).filter(|other| *other != number);
            let sets = sets.map(|other| &self.components[other].roots).collect();
            self.components[number].roots = unite(own, sets);
        }
    }

    /// Passes 64 waiters at a time along all edges, from the ends where nobody waits to the roots.
    fn count_behind(&mut self) {
        self.behind = vec![0; self.sessions];
        let waiters: Vec<Node> = (0..self.sessions).filter(|node| self.waits[*node]).collect();
        for group in waiters.chunks(64) {
            let mut passing = vec![0_u64; self.components.len()];
            let bits = group.iter().zip((0..64).map(|bit| 1_u64 << bit));
            bits.clone().for_each(|(node, bit)| passing[self.component_of[*node]] |= bit);
            for (number, component) in self.components.iter().enumerate().rev() {
                let here = passing[number];
                if here == 0 {
                    continue;
                }
                for to in component.nodes.iter().flat_map(|node| &self.edges[*node]) {
                    passing[self.component_of[*to]] |= here;
                }
            }
            for node in 0..self.sessions {
                self.behind[node] += passing[self.component_of[node]].count_ones() as usize;
            }
            bits.for_each(|(node, _)| self.behind[*node] -= 1);
        }
    }
}

/// For each node, whether it is one of these or can be reached from one of them.
fn reached(starts: &[Node], edges: &[Vec<Node>]) -> Vec<bool> {
    let mut is_reached = vec![false; edges.len()];
    let mut open = starts.to_vec();
    while let Some(node) = open.pop() {
        if !std::mem::replace(&mut is_reached[node], true) {
            open.extend_from_slice(&edges[node]);
        }
    }
    is_reached
}

/// The union of sorted sets; one of them, if all others are in it: nearly always all are one.
fn unite(mut own: Vec<Node>, mut sets: Vec<&Arc<[Node]>>) -> Arc<[Node]> {
    sets.retain(|set| !set.is_empty());
    sets.sort_by_key(|set| (std::cmp::Reverse(set.len()), set.as_ptr()));
    sets.dedup_by(|a, b| Arc::ptr_eq(a, b));
    if own.is_empty() && sets.len() == 1 {
        return sets[0].clone();
    }
    sets.iter().for_each(|set| own.extend_from_slice(set));
    own.sort_unstable();
    own.dedup();
    match sets.first() {
        Some(largest) if largest.len() == own.len() => (*largest).clone(),
        Some(_) | None => own.into(),
    }
}
