//! Pictures → the blocking tree: roots first, below each who waits for it.
//!
//! Pure. Each waiter is there once, below the first of those who keep it waiting (who holds comes
//! before who is ahead in the queue), with the number of the others. A circle begins with one of its
//! members, which says that it waits too. Holders that keep nobody waiting are in the other views.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::column::{Cell, Subject, Tone, application, render_held, render_waited, title};
use super::filter::Filter;
use super::list::Row;
use super::row::{LockId, Party, Place, RowId, What};
use super::source::Watched;
use crate::blocking::BlockerKind;
use crate::sample::Pid;
use crate::snapshot::{Blocker, Lock, Server};

/// Of what a root holds, so many are named.
const NAMED: usize = 3;

/// Deeper than this, a line is not indented any further.
const DEEPEST: usize = 12;

/// Where a line hangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Branch {
    /// 0 for a root.
    pub depth: usize,
    /// Nobody else waits for the same below it.
    pub is_last: bool,
    /// Of each level above, from the outermost of those shown: whether its line goes on below.
    goes_on: Vec<bool>,
    /// Keys that it holds, some of them.
    holds: Vec<usize>,
    /// How many these are.
    holds_count: usize,
}

/// Somebody as blockers are named, who have no start.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Who {
    Backend(Pid),
    Prepared(Option<Arc<str>>),
}

impl Who {
    fn of(pid: Option<Pid>, gid: Option<&Arc<str>>) -> Self {
        pid.map_or_else(|| Self::Prepared(gid.cloned()), Self::Backend)
    }

    fn of_party(party: Party<'_>) -> Self {
        Self::of(party.pid(), party.prepared().and_then(|prepared| prepared.gid.as_ref()))
    }
}

/// The lines of all servers, in their order.
pub fn rows(all: &[Watched], filter: &Filter) -> Vec<Row> {
    let mut rows = Vec::new();
    for (index, watched) in all.iter().enumerate() {
        let mut lines = Forest::of(index, watched, all).lines();
        if !filter.is_empty() {
            lines = with_ancestors(lines, |row| matches(all, filter, row));
        }
        hang(&mut lines);
        rows.extend(lines);
    }
    rows
}

fn matches(all: &[Watched], filter: &Filter, row: &Row) -> bool {
    match (Subject::of(&row.place, all), row.place.watched(all), row.place.party(all)) {
        (Some(subject), ..) => filter.matches(&subject),
        (None, Some(watched), Some(party)) => filter.matches_party(&watched.server, party),
        (None, ..) => false,
    }
}

/// Who waits for whom on one server.
struct Forest<'a> {
    all: &'a [Watched],
    server: usize,
    roots: Vec<Place>,
    /// Of each who keeps others waiting, those that hang below it.
    below: HashMap<Who, Vec<Place>>,
    /// Keys held, by whom: some of them, and how many.
    holds: HashMap<Who, (Vec<usize>, usize)>,
}

impl<'a> Forest<'a> {
    fn of(index: usize, watched: &'a Watched, all: &'a [Watched]) -> Self {
        let server = &watched.server;
        let mut forest = Self {
            all,
            server: index,
            roots: Vec::new(),
            below: HashMap::new(),
            holds: HashMap::new(),
        };
        let mut waiting: Vec<(Who, Place)> = Vec::new();
        for (place, party, blockers) in waits(index, server) {
            let who = Who::of_party(party);
            match blockers.first() {
                Some(first) => {
                    let above = Who::of(first.pid, first.gid.as_ref());
                    forest.below.entry(above).or_default().push(place.clone());
                }
                // Whoever kept it waiting was gone when the sample was taken.
                None => forest.roots.push(place.clone()),
            }
            waiting.push((who, place));
        }
        if waiting.is_empty() {
            return forest;
        }
        forest.find_holds(server);
        forest.find_roots(server, &waiting);
        forest
    }

    fn find_holds(&mut self, server: &Server) {
        for (index, lock) in server.locks.iter().flatten().enumerate() {
            for holder in &lock.holders {
                let who = Who::of_party(Party::Holder(lock, holder));
                let (named, count) = self.holds.entry(who).or_default();
                *count += 1;
                // What is waited for says more than the first by number.
                if !lock.waiters.is_empty() {
                    named.insert(0, index);
                    named.truncate(NAMED);
                } else if named.len() < NAMED {
                    named.push(index);
                }
            }
        }
    }

    /// Those who were told, then whoever is waited for and waits for nobody: an older exporter does
    /// not tell roots.
    fn find_roots(&mut self, server: &Server, waiting: &[(Who, Place)]) {
        let roots = server.roots.as_deref().unwrap_or_default();
        let told =
            (0..roots.len()).map(|root| Place { server: self.server, what: What::Root(root) });
        let waits: HashSet<&Who> = waiting.iter().map(|(who, _)| who).collect();
        let known: HashSet<Who> =
            roots.iter().map(|root| Who::of_party(Party::Root(root))).collect();
        let mut found: Vec<Place> = told.collect();
        for (index, lock) in server.locks.iter().flatten().enumerate() {
            for (number, holder) in lock.holders.iter().enumerate() {
                let who = Who::of_party(Party::Holder(lock, holder));
                let is_root =
                    self.below.contains_key(&who) && !waits.contains(&who) && !known.contains(&who);
                if is_root && self.holds.get(&who).is_some_and(|(named, _)| named[0] == index) {
                    found.push(Place { server: self.server, what: What::Holder(index, number) });
                }
            }
        }
        // Whoever is in nobody's tree begins one: a circle that nobody told of, or a chain whose end
        // is not seen.
        found.append(&mut self.roots);
        found.extend(waiting.iter().map(|(_, place)| place.clone()));
        self.roots = found;
    }

    /// All lines, roots first and each with those below it; nobody twice.
    fn lines(self) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut seen: HashSet<Who> = HashSet::new();
        let mut open: Vec<(Place, usize)> =
            self.roots.iter().rev().map(|one| (one.clone(), 0)).collect();
        while let Some((place, depth)) = open.pop() {
            let Some(party) = place.party(self.all) else { continue };
            let who = Who::of_party(party);
            if !seen.insert(who.clone()) {
                continue;
            }
            if let Some(row) = self.row(&place, party, &who, depth) {
                rows.push(row);
            }
            let below = self.below.get(&who).into_iter().flatten().rev();
            open.extend(below.map(|place| (place.clone(), depth + 1)));
        }
        rows
    }

    fn row(&self, place: &Place, party: Party<'_>, who: &Who, depth: usize) -> Option<Row> {
        let server = &place.watched(self.all)?.server;
        let id = match (&place.what, place.lock(self.all)) {
            (What::Waiter(..), Some(lock)) => RowId::Party(LockId::of(server, lock), party.id()),
            (_, _) => RowId::Session(server.server.clone(), party.id()),
        };
        let (holds, holds_count) = self.holds.get(who).cloned().unwrap_or_default();
        let branch = Branch { depth, holds, holds_count, ..Branch::default() };
        Some(Row { id, place: place.clone(), fold: None, branch: Some(branch) })
    }
}

/// Everybody who waits, with those who keep them waiting.
fn waits(index: usize, server: &Server) -> impl Iterator<Item = (Place, Party<'_>, &[Blocker])> {
    let place = move |what| Place { server: index, what };
    let keys = server.locks.iter().flatten().enumerate().flat_map(move |(number, lock)| {
        lock.waiters.iter().enumerate().map(move |(waiter, wait)| {
            let what = What::Waiter(number, waiter);
            (place(what), Party::Waiter(lock, wait), &wait.blocked_by[..])
        })
    });
    let others = server.other_waits.iter().flatten().enumerate().map(move |(number, wait)| {
        (place(What::OtherWait(number)), Party::OtherWait(wait), &wait.blocked_by[..])
    });
    keys.chain(others)
}

/// What matches, with everything that it hangs on.
fn with_ancestors(rows: Vec<Row>, is_shown: impl Fn(&Row) -> bool) -> Vec<Row> {
    let mut wanted: Option<usize> = None;
    let mut kept: Vec<Row> = rows
        .into_iter()
        .rev()
        .filter(|row| {
            let depth = row.branch.as_ref().map_or(0, |branch| branch.depth);
            let is_kept = wanted == Some(depth) || is_shown(row);
            if is_kept {
                wanted = depth.checked_sub(1);
            }
            is_kept
        })
        .collect();
    kept.reverse();
    kept
}

/// Which lines go on below which, seen from the last.
fn hang(rows: &mut [Row]) {
    let mut more: Vec<bool> = Vec::new();
    for branch in rows.iter_mut().rev().filter_map(|row| row.branch.as_mut()) {
        let depth = branch.depth;
        more.resize(depth + 1, false);
        branch.is_last = !more[depth];
        // The outermost level has no line.
        let first = depth.saturating_sub(DEEPEST).max(1).min(depth);
        branch.goes_on = more[first..depth].to_vec();
        more[depth] = true;
    }
}

impl Branch {
    /// The lines that a row hangs on, drawn with these characters or, where the terminal has no such,
    /// with plain ones.
    pub fn guides(&self, is_ascii: bool) -> String {
        if self.depth == 0 {
            return String::new();
        }
        let (down, fork, end) =
            if is_ascii { ("|  ", "|- ", "`- ") } else { ("│  ", "├─ ", "└─ ") };
        let mut guides = String::new();
        if self.depth > DEEPEST {
            guides.push_str(&format!("({}) ", self.depth));
        }
        guides.extend(self.goes_on.iter().map(|goes_on| if *goes_on { down } else { "   " }));
        guides.push_str(if self.is_last { end } else { fork });
        guides
    }
}

/// What a line says, without its guides.
pub fn line(row: &Row, all: &[Watched]) -> Vec<Cell> {
    let (Some(branch), Some(party)) = (&row.branch, row.place.party(all)) else {
        return Vec::new();
    };
    let Some(watched) = row.place.watched(all) else { return Vec::new() };
    let mut cells = vec![who(party)];
    match party {
        Party::Waiter(lock, waiter) => {
            cells.push(wait(waiter.waited_seconds, &title(lock), waiter.mode.as_str()));
            cells.extend(queue(&waiter.blocked_by, waiter.blocked_by_count));
        }
        Party::OtherWait(other) => {
            cells.push(wait(other.waited_seconds, &other.target, other.mode.as_str()));
            cells.extend(queue(&other.blocked_by, other.blocked_by_count));
        }
        Party::Root(root) => {
            cells.extend(state(party));
            if root.in_cycle {
                cells.push(Cell { text: "in a circle".to_owned(), tone: Tone::Critical });
            }
            cells.push(behind(root.blocks));
        }
        Party::Holder(_, holder) => {
            cells.extend(state(party));
            cells.push(behind(holder.blocks));
        }
    }
    cells.extend(holds(branch, party, &watched.server));
    cells
}

fn plain(text: String) -> Cell {
    Cell { text, tone: Tone::Plain }
}

fn who(party: Party<'_>) -> Cell {
    let name = application(party.session().application_name.as_deref());
    plain(match (party.pid(), party.prepared()) {
        (Some(pid), _) => format!("{} {name}", pid.0),
        (None, Some(prepared)) => match &prepared.gid {
            Some(gid) => format!("prepared transaction {gid}"),
            None => "a prepared transaction".to_owned(),
        },
        (None, None) => "a prepared transaction".to_owned(),
    })
}

fn wait(waited: Option<f64>, target: &str, mode: &str) -> Cell {
    plain(format!("waits {} for {target} ({mode})", render_waited(waited)))
}

/// How it waits, where that is not simply for a holder.
fn queue(blockers: &[Blocker], count: usize) -> Vec<Cell> {
    let mut cells = Vec::new();
    if let Some(first) = blockers.first()
        && first.kind == BlockerKind::Soft
    {
        let doubt = if first.certain { "" } else { "?" };
        cells.push(plain(format!("queued behind it{doubt}")));
    }
    let others = count.saturating_sub(1);
    if others > 0 {
        let named: Vec<String> = blockers
            .iter()
            .skip(1)
            .take(2)
            .map(|one| {
                one.pid.map_or_else(|| "a prepared transaction".to_owned(), |pid| pid.0.to_string())
            })
            .collect();
        let more = others - named.len().min(others);
        let more = if more > 0 { format!(" and {more} others") } else { String::new() };
        cells.push(Cell {
            text: format!("also behind {}{more}", named.join(", ")),
            tone: Tone::Dim,
        });
    }
    cells
}

fn state(party: Party<'_>) -> Option<Cell> {
    if party.pid().is_none() {
        return Some(Cell { text: "prepared".to_owned(), tone: Tone::Warning });
    }
    let state = party.session().state.as_deref();
    let tone = match state {
        Some("idle in transaction" | "idle in transaction (aborted)") => Tone::Warning,
        Some(_) => Tone::Plain,
        None => Tone::Dim,
    };
    Some(Cell { text: state.unwrap_or("state unknown").to_owned(), tone })
}

fn behind(blocks: usize) -> Cell {
    plain(format!("{blocks} behind it"))
}

/// What somebody holds who keeps others waiting: the first with how long.
fn holds(branch: &Branch, party: Party<'_>, server: &Server) -> Option<Cell> {
    let locks = server.locks.as_ref()?;
    let held: Vec<&Lock> = branch.holds.iter().filter_map(|index| locks.get(*index)).collect();
    let first = held.first()?;
    let pid = party.pid();
    let age = first.holders.iter().find(|holder| holder.pid == pid).map(render_held);
    let names: Vec<String> = held.iter().map(|lock| title(lock).into_owned()).collect();
    let others = branch.holds_count - held.len().min(branch.holds_count);
    let others = if others > 0 { format!(" and {others} more") } else { String::new() };
    Some(plain(match age {
        Some(age) => format!("holds {}{others} for {age}", names.join(", ")),
        None => format!("holds {}{others}", names.join(", ")),
    }))
}
