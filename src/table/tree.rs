//! Pictures → the blocking tree: roots first, below each who waits for it.
//!
//! Pure. Each waiter is there once, below the first of those who keep it waiting (who holds comes
//! before who is ahead in the queue), with the number of the others. A circle begins with one of its
//! members, which says that it waits too. Holders that keep nobody waiting are in the other views.
//! Where an exporter does not tell who waits for locks of other types, a line says that they are
//! missing.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::column::{
    Cell, Subject, Tone, application, render_age, render_held, render_waited, title,
};
use super::filter::Filter;
use super::list::Row;
use super::row::{LockId, Party, Place, RowId, What};
use crate::blocking::BlockerKind;
use crate::sample::Pid;
use crate::snapshot::{Blocker, Holder, Lock, Root, Server};
use crate::timestamp::Timestamp;

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
    /// What it holds.
    holds: Holds,
    /// It waits in a circle, and so many wait behind it.
    circle: Option<usize>,
}

/// What somebody holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holds {
    /// Keys, some of them, those first that are waited for.
    named: Vec<usize>,
    /// How many there are.
    count: usize,
    /// What its holder was called when it was first seen with one of them, if that is another name.
    was: Option<Arc<str>>,
}

/// Those above somebody, and those below.
#[derive(Debug, Default)]
pub struct Family {
    /// From whom the chain ends at.
    pub above: Vec<Row>,
    /// Itself, then everybody behind it.
    pub below: Vec<Row>,
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

    /// A prepared transaction whose name is not told: there may be several.
    const fn is_anyone(&self) -> bool {
        matches!(self, Self::Prepared(None))
    }
}

/// Somebody as one who holds keys: of prepared transactions without a name, when they were prepared
/// tells one from another.
type HolderId = (Who, Option<Timestamp>);

fn holder_id(party: Party<'_>) -> HolderId {
    let at = party.prepared().and_then(|prepared| prepared.prepared_at);
    (Who::of_party(party), at)
}

/// The lines of all servers, in their order.
pub fn rows<S: AsRef<Server>>(all: &[S], filter: &Filter) -> Vec<Row> {
    let mut rows = Vec::new();
    for index in 0..all.len() {
        let mut lines = Forest::of(index, all).lines();
        if !filter.is_empty() {
            lines = with_ancestors(lines, |row| matches(all, filter, row));
        }
        hang(&mut lines);
        rows.extend(lines);
    }
    rows
}

/// The line of somebody with those above and below it.
pub fn family<S: AsRef<Server>>(all: &[S], server: usize, party: Party<'_>) -> Family {
    let mut lines = Forest::of(server, all).lines();
    let id = holder_id(party);
    let is_own = |row: &Row| row.place.party(all).is_some_and(|party| holder_id(party) == id);
    let Some(own) = lines.iter().position(is_own) else { return Family::default() };
    let depth = |row: &Row| row.branch.as_ref().map_or(0, |branch| branch.depth);
    let own_depth = depth(&lines[own]);
    let end = lines[own + 1..].iter().position(|row| depth(row) <= own_depth);
    lines.truncate(end.map_or(lines.len(), |end| own + 1 + end));
    let below = lines.split_off(own);
    let mut wanted = own_depth;
    lines.reverse();
    lines.retain(|row| {
        let is_above = depth(row) + 1 == wanted;
        wanted -= usize::from(is_above);
        is_above
    });
    lines.reverse();
    let above = lines.len();
    lines.extend(below);
    hang(&mut lines);
    let below = lines.split_off(above);
    Family { above: lines, below }
}

fn matches<S: AsRef<Server>>(all: &[S], filter: &Filter, row: &Row) -> bool {
    match (Subject::of(&row.place, all), row.place.server(all), row.place.party(all)) {
        (Some(subject), ..) => filter.matches(&subject),
        (None, Some(server), Some(party)) => filter.matches_party(server, party),
        (None, ..) => false,
    }
}

/// Who waits for whom on one server.
struct Forest<'a, S> {
    all: &'a [S],
    server: usize,
    roots: Vec<Place>,
    /// Of each who keeps others waiting, those that hang below it.
    below: HashMap<Who, Vec<Place>>,
    /// Keys held, by whom.
    holds: HashMap<HolderId, Holds>,
    /// Who waits in a circle, and how many behind it.
    circles: HashMap<Who, usize>,
}

impl<'a, S: AsRef<Server>> Forest<'a, S> {
    fn of(index: usize, all: &'a [S]) -> Self {
        let mut forest = Self {
            all,
            server: index,
            roots: Vec::new(),
            below: HashMap::new(),
            holds: HashMap::new(),
            circles: HashMap::new(),
        };
        let mut waiting: Vec<(Who, Place)> = Vec::new();
        let Some(server) = all.get(index).map(AsRef::as_ref) else { return forest };
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
        if waiting.is_empty()
            && !lacks_other_waits(server)
            && server.roots.iter().flatten().count() == 0
        {
            return forest;
        }
        forest.find_holds(server);
        forest.find_roots(server, &waiting);
        forest
    }

    fn find_holds(&mut self, server: &Server) {
        for (index, lock) in server.locks.iter().flatten().enumerate() {
            for holder in &lock.holders {
                let holds = self.holds.entry(holder_id(Party::Holder(lock, holder))).or_default();
                holds.count += 1;
                // What is waited for says more than the first by number.
                if !lock.waiters.is_empty() {
                    holds.named.insert(0, index);
                    holds.named.truncate(NAMED);
                } else if holds.named.len() < NAMED {
                    holds.named.push(index);
                }
                let first = holder.first_application_name.as_ref();
                if let (Some(first), Some(name)) = (first, &holder.session.application_name)
                    && first != name
                {
                    holds.was.get_or_insert_with(|| first.clone());
                }
            }
        }
    }

    /// Those who were told, then whoever is waited for and waits for nobody: an older exporter does
    /// not tell roots.
    fn find_roots(&mut self, server: &Server, waiting: &[(Who, Place)]) {
        let waits: HashMap<&Who, &Place> =
            waiting.iter().map(|(who, place)| (who, place)).collect();
        let mut found = Vec::new();
        let mut known: HashSet<Who> = HashSet::new();
        for (index, root) in server.roots.iter().flatten().enumerate() {
            let who = Who::of_party(Party::Root(root));
            if root.in_cycle {
                self.circles.insert(who.clone(), root.blocks);
            }
            // Of one that waits too its wait says more.
            let root = Place { server: self.server, what: What::Root(index) };
            found.push(waits.get(&who).map_or(root, |place| (*place).clone()));
            known.insert(who);
        }
        if server.roots.is_none() {
            self.find_circles(server);
        }
        let mut unknown: Vec<(usize, Place)> = Vec::new();
        for (index, lock) in server.locks.iter().flatten().enumerate() {
            for (number, holder) in lock.holders.iter().enumerate() {
                let id = holder_id(Party::Holder(lock, holder));
                let who = &id.0;
                let keeps_others = self.below.contains_key(who)
                    || (lacks_other_waits(server) && holder.blocks > 0);
                let is_root = keeps_others && !waits.contains_key(who) && !known.contains(who);
                if is_root && self.holds.get(&id).is_some_and(|holds| holds.named[0] == index) {
                    let what = What::Holder(index, number);
                    unknown.push((holder.blocks, Place { server: self.server, what }));
                }
            }
        }
        unknown.sort_by_key(|(blocks, _)| std::cmp::Reverse(*blocks));
        found.extend(unknown.into_iter().map(|(_, place)| place));
        // Whoever is in nobody's tree begins one: a circle that nobody told of, or a chain whose end
        // is not seen.
        found.append(&mut self.roots);
        found.extend(waiting.iter().map(|(_, place)| place.clone()));
        self.roots = found;
    }

    /// Where roots are not told, those who wait name some of them.
    fn find_circles(&mut self, server: &Server) {
        let waiters = server.locks.iter().flatten().flat_map(|lock| &lock.waiters);
        for root in waiters.flat_map(|waiter| &waiter.roots).filter(|root| root.in_cycle) {
            self.circles.insert(Who::of(root.pid, root.gid.as_ref()), root.blocks);
        }
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
            let is_new = seen.insert(who.clone());
            // Of those without a name each that is told has its line.
            let is_another = who.is_anyone() && depth == 0;
            if !is_new && !is_another {
                continue;
            }
            rows.extend(self.row(&place, party, &who, depth));
            if !is_new {
                continue;
            }
            let below = self.below.get(&who).into_iter().flatten().rev();
            open.extend(below.map(|place| (place.clone(), depth + 1)));
        }
        rows.extend(self.missing(!rows.is_empty()));
        rows
    }

    /// A line that says what is not there, where an older exporter does not tell it.
    fn missing(&self, is_any: bool) -> Option<Row> {
        let server = self.all.get(self.server)?.as_ref();
        (is_any && lacks_other_waits(server)).then(|| Row {
            id: RowId::Server(server.server.clone()),
            place: Place { server: self.server, what: What::Server },
            fold: None,
            branch: Some(Branch::default()),
        })
    }

    fn row(&self, place: &Place, party: Party<'_>, who: &Who, depth: usize) -> Option<Row> {
        let server = place.server(self.all)?;
        let id = match (&place.what, place.lock(self.all)) {
            (What::Waiter(..), Some(lock)) => RowId::Party(LockId::of(server, lock), party.id()),
            (_, _) => RowId::Session(server.server.clone(), party.id()),
        };
        let branch = Branch {
            depth,
            holds: self.holds.get(&holder_id(party)).cloned().unwrap_or_default(),
            circle: self.circles.get(who).copied(),
            ..Branch::default()
        };
        Some(Row { id, place: place.clone(), fold: None, branch: Some(branch) })
    }
}

/// An older exporter does not tell who waits for locks of other types.
const fn lacks_other_waits(server: &Server) -> bool {
    server.locks.is_some() && server.other_waits.is_none()
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
    /// How far in it stands: the deepest stand under each other.
    pub fn shown_depth(&self) -> usize {
        self.depth.min(DEEPEST)
    }

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
pub fn line<S: AsRef<Server>>(row: &Row, all: &[S]) -> Vec<Cell> {
    let (Some(branch), Some(server)) = (&row.branch, row.place.server(all)) else {
        return Vec::new();
    };
    let Some(party) = row.place.party(all) else {
        let text = "not told by this exporter, which is older: who waits for locks of other types";
        return vec![Cell { text: text.to_owned(), tone: Tone::Dim }];
    };
    let mut cells = vec![who(party, branch)];
    let held = held(branch, party, server);
    match party {
        Party::Waiter(_, _) | Party::OtherWait(_) => {
            cells.extend(branch.circle.map(|_| in_a_circle()));
            cells.extend(wait(party, branch));
            cells.extend(branch.circle.filter(|_| branch.depth == 0).map(behind));
        }
        Party::Root(root) => {
            // For how long a prepared transaction holds says more than when it was prepared.
            let says_more = party.pid().is_some() || held.is_none();
            cells.extend(state(party, server).filter(|_| says_more));
            cells.extend(root.in_cycle.then(in_a_circle));
            cells.push(behind(root.blocks));
        }
        Party::Holder(_, holder) => {
            cells.extend(state(party, server));
            cells.push(behind(holder.blocks));
        }
    }
    cells.extend(held);
    cells
}

fn plain(text: String) -> Cell {
    Cell { text, tone: Tone::Plain }
}

fn in_a_circle() -> Cell {
    Cell { text: "in a circle".to_owned(), tone: Tone::Critical }
}

fn who(party: Party<'_>, branch: &Branch) -> Cell {
    let Some(pid) = party.pid() else {
        let gid = party.prepared().and_then(|prepared| prepared.gid.as_deref());
        return plain(render_prepared(gid));
    };
    let name = application(party.session().application_name.as_deref());
    match &branch.holds.was {
        // Whoever looks for the program that took the lock looks for this name.
        Some(was) => Cell {
            text: format!("{} {name} (was {})", pid.0, application(Some(was))),
            tone: Tone::Warning,
        },
        None => plain(format!("{} {name}", pid.0)),
    }
}

fn render_prepared(gid: Option<&str>) -> String {
    match gid {
        Some(gid) => format!("prepared transaction {gid}"),
        None => "a prepared transaction".to_owned(),
    }
}

/// What somebody waits for, and how, where that is not simply for who is above.
fn wait(party: Party<'_>, branch: &Branch) -> Vec<Cell> {
    let (waited, target, mode, blockers, count, roots) = match party {
        Party::Waiter(lock, one) => (
            one.waited(),
            title(lock),
            &one.mode,
            &one.blocked_by,
            one.blocked_by_count,
            &one.roots[..],
        ),
        Party::OtherWait(one) => (
            one.waited(),
            (&*one.target).into(),
            &one.mode,
            &one.blocked_by,
            one.blocked_by_count,
            &[][..],
        ),
        Party::Holder(..) | Party::Root(_) => return Vec::new(),
    };
    let waited = render_waited(waited);
    let mut cells = vec![plain(format!("waits {waited} for {target} ({})", mode.as_str()))];
    if branch.depth == 0 {
        cells.push(behind_whom(blockers.first(), roots));
    } else if let Some(first) = blockers.first()
        && first.kind == BlockerKind::Soft
    {
        let doubt = if first.certain { "" } else { "?" };
        cells.push(plain(format!("queued behind it{doubt}")));
    }
    cells.extend(also_behind(blockers, count));
    cells
}

/// Of a line that hangs below nobody: whom it waits for.
fn behind_whom(first: Option<&Blocker>, roots: &[Root]) -> Cell {
    let Some(first) = first else {
        let text = "behind nobody that was seen".to_owned();
        return Cell { text, tone: Tone::Dim };
    };
    let same = |root: &&Root| (root.pid, &root.gid) == (first.pid, &first.gid);
    let root = roots.iter().find(same).filter(|root| root.pid.is_some() && !root.in_cycle);
    let known = root.map_or_else(String::new, |root| {
        let state = root.state.as_deref().unwrap_or("state unknown");
        format!(" {} ({state})", application(root.application_name.as_deref()))
    });
    let how = match first.kind {
        BlockerKind::Hard => "behind",
        BlockerKind::Soft => "queued behind",
    };
    let doubt = if first.certain { "" } else { "?" };
    plain(format!("{how} {}{known}{doubt}", render_blocker(first)))
}

fn also_behind(blockers: &[Blocker], count: usize) -> Option<Cell> {
    let others = count.saturating_sub(1);
    let mut named: Vec<String> = blockers.iter().skip(1).take(2).map(render_blocker).collect();
    let more = others.saturating_sub(named.len());
    match more {
        0 => {}
        1 => named.push("1 other".to_owned()),
        more => named.push(format!("{more} others")),
    }
    let last = named.pop()?;
    let text = match named.is_empty() {
        true => format!("also behind {last}"),
        false => format!("also behind {} and {last}", named.join(", ")),
    };
    Some(Cell { text, tone: Tone::Dim })
}

fn render_blocker(blocker: &Blocker) -> String {
    match blocker.pid {
        Some(pid) => pid.0.to_string(),
        None => render_prepared(blocker.gid.as_deref()),
    }
}

/// What somebody does, and since when.
fn state(party: Party<'_>, server: &Server) -> Option<Cell> {
    let age = |since: Timestamp| Some(render_age(server.polled_at?.since(since).as_secs_f64()));
    if party.pid().is_none() {
        let at = party.prepared().and_then(|prepared| prepared.prepared_at);
        let text = format!("prepared {} ago", at.and_then(age)?);
        return Some(Cell { text, tone: Tone::Warning });
    }
    let session = party.session();
    let Some(state) = session.state.as_deref() else {
        return Some(Cell { text: "state unknown".to_owned(), tone: Tone::Dim });
    };
    let tone = match state {
        "idle in transaction" | "idle in transaction (aborted)" => Tone::Warning,
        _ => Tone::Plain,
    };
    let text = match session.state_since.and_then(age) {
        Some(age) => format!("{state} for {age}"),
        None => state.to_owned(),
    };
    Some(Cell { text, tone })
}

fn behind(blocks: usize) -> Cell {
    plain(format!("{blocks} behind it"))
}

/// What somebody holds who keeps others waiting. For how long comes first: names may be cut.
fn held(branch: &Branch, party: Party<'_>, server: &Server) -> Option<Cell> {
    let locks = server.locks.as_ref()?;
    let held: Vec<&Lock> = branch.holds.named.iter().filter_map(|key| locks.get(*key)).collect();
    let (first, others) = held.split_first()?;
    let id = holder_id(party);
    let is_own = |holder: &&Holder| holder_id(Party::Holder(first, holder)) == id;
    let age = first.holders.iter().find(is_own).map(render_held)?;
    let mut text = format!("held {age}: {}", title(first));
    let names: Vec<_> = others.iter().map(|lock| title(lock)).collect();
    if !names.is_empty() {
        text.push_str(&format!("; also {}", names.join(", ")));
    }
    let more = branch.holds.count.saturating_sub(held.len());
    if more > 0 {
        text.push_str(&format!(" and {more} more"));
    }
    Some(plain(text))
}

#[cfg(test)]
mod tests;
