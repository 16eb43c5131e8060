//! Pictures → rows: which there are, in which order, and what is folded into one line.
//!
//! Pure. Many keys that say the same (the same name, one holder each of the same application in the
//! same state, nobody waiting, the same findings) are one line until somebody unfolds it: one
//! session with a thousand keys must not push the lock that everybody waits for off the screen. A
//! key that somebody waits for is never folded.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::column::{Sort, Subject, UNREGISTERED, ViewKind};
use super::filter::Filter;
use super::row::{FoldId, LockId, Party, PartyId, Place, RowId, What};
use super::tree::{self, Branch};
use crate::snapshot::{Finding, Lock, Server};

/// More keys than this that say the same are one line.
const ALIKE: usize = 5;

/// A line of a view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Who or what it is.
    pub id: RowId,
    /// Where that is in the present pictures.
    pub place: Place,
    /// The fold that it is, or that it came out of.
    pub fold: Option<FoldId>,
    /// Where it hangs, in the tree.
    pub branch: Option<Branch>,
}

/// The rows of a view, in their order.
pub fn rows<S: AsRef<Server>>(
    kind: ViewKind,
    all: &[S],
    filter: &Filter,
    sort: Sort,
    unfolded: &HashSet<FoldId>,
) -> Vec<Row> {
    match places(kind, all, filter) {
        Some(places) => sorted(fold(places, kind, all, unfolded), all, sort),
        None => tree::rows(all, filter),
    }
}

/// The same without folds, as scripts want it: whatever a row is alike to, it stands where its own
/// values put it.
pub fn flat_rows<S: AsRef<Server>>(
    kind: ViewKind,
    all: &[S],
    filter: &Filter,
    sort: Sort,
) -> Vec<Row> {
    let Some(places) = places(kind, all, filter) else { return tree::rows(all, filter) };
    let alone = |place| Some((row(place, None, all)?, Vec::new()));
    sorted(places.into_iter().filter_map(alone).collect(), all, sort)
}

/// What is shown, in the order of the pictures; `None` for the tree, which has an order of its own.
fn places<S: AsRef<Server>>(kind: ViewKind, all: &[S], filter: &Filter) -> Option<Vec<Place>> {
    let mut places = match kind {
        ViewKind::Locks => lock_places(all),
        ViewKind::Sessions => session_places(all),
        ViewKind::Tree => return None,
    };
    if !filter.is_empty() {
        places.retain(|place| {
            Subject::of(place, all).is_some_and(|subject| filter.matches(&subject))
        });
    }
    Some(places)
}

/// The worst of what is said of a row; of many keys it is said of the first.
pub fn worst_finding<'a, S: AsRef<Server>>(all: &'a [S], row: &'a Row) -> Option<&'a Finding> {
    let lock = row.place.lock(all);
    let party = match row.place.what {
        What::Holder(..) | What::Waiter(..) | What::OtherWait(_) | What::Root(_) => {
            row.place.party(all)
        }
        What::Server | What::Lock(_) | What::Fold(_) => None,
    };
    let worst = |findings: &mut dyn Iterator<Item = &'a Finding>| {
        // Of equals the first: they are in the order of their importance.
        findings.reduce(|worst, next| if next.severity > worst.severity { next } else { worst })
    };
    let Some(party) = party else { return worst(&mut lock?.findings.iter()) };
    let pid = party.pid();
    let names = |finding: &&Finding| pid.is_some_and(|pid| finding.pids.contains(&pid));
    // What is said of somebody else on the same key is the next best.
    let own = worst(&mut lock.into_iter().flat_map(|lock| &lock.findings).filter(names));
    let server = row.place.server(all)?;
    own.or_else(|| worst(&mut findings_of(server).filter(names)))
        .or_else(|| worst(&mut lock?.findings.iter()))
}

fn findings_of(server: &Server) -> impl Iterator<Item = &Finding> {
    server.locks.iter().flatten().flat_map(|lock| &lock.findings)
}

fn lock_places<S: AsRef<Server>>(all: &[S]) -> Vec<Place> {
    let of_server = |(server, one): (usize, &S)| {
        let count = one.as_ref().locks.as_ref().map_or(0, Vec::len);
        (0..count).map(move |lock| Place { server, what: What::Lock(lock) })
    };
    all.iter().enumerate().flat_map(of_server).collect()
}

fn session_places<S: AsRef<Server>>(all: &[S]) -> Vec<Place> {
    let mut places = Vec::new();
    for (server, one) in all.iter().enumerate() {
        for (index, lock) in one.as_ref().locks.iter().flatten().enumerate() {
            let holders = (0..lock.holders.len()).map(|holder| What::Holder(index, holder));
            let waiters = (0..lock.waiters.len()).map(|waiter| What::Waiter(index, waiter));
            places.extend(holders.chain(waiters).map(|what| Place { server, what }));
        }
    }
    places
}

/// A key that can be one of many in a line: one holder, nobody waiting.
fn fold_id<S: AsRef<Server>>(place: &Place, kind: ViewKind, all: &[S]) -> Option<FoldId> {
    let server = place.server(all)?;
    let lock = place.lock(all)?;
    let [holder] = &lock.holders[..] else { return None };
    if !lock.waiters.is_empty() || matches!(place.what, What::Waiter(..)) {
        return None;
    }
    Some(FoldId {
        server: server.server.clone(),
        datname: lock.datname.clone(),
        lock: lock.lock.clone(),
        // Among sessions, one line stands for one of them.
        party: (kind == ViewKind::Sessions || holder.pid.is_none())
            .then(|| Party::Holder(lock, holder).id()),
        application_name: holder.session.application_name.clone(),
        first_application_name: holder.first_application_name.clone(),
        state: holder.session.state.clone(),
        mode: holder.mode.clone(),
        findings: lock.findings.iter().map(|one| (one.finding.clone(), one.severity)).collect(),
    })
}

/// Groups of rows: a row alone, or a fold with the rows in it.
fn fold<S: AsRef<Server>>(
    places: Vec<Place>,
    kind: ViewKind,
    all: &[S],
    unfolded: &HashSet<FoldId>,
) -> Vec<(Row, Vec<Row>)> {
    let mut folds: HashMap<FoldId, Vec<Place>> = HashMap::new();
    let mut groups = Vec::new();
    for place in places {
        match fold_id(&place, kind, all) {
            Some(id) => folds.entry(id).or_default().push(place),
            None => groups.extend(row(place, None, all).map(|row| (row, Vec::new()))),
        }
    }
    for (id, places) in folds {
        if places.len() <= ALIKE {
            groups.extend(
                places.into_iter().filter_map(|place| Some((row(place, None, all)?, Vec::new()))),
            );
            continue;
        }
        let Some(server) = places.first().map(|place| place.server) else { continue };
        let keys = places.iter().filter_map(|place| match place.what {
            What::Lock(lock) | What::Holder(lock, _) | What::Waiter(lock, _) => Some(lock),
            What::Server | What::OtherWait(_) | What::Root(_) | What::Fold(_) => None,
        });
        let what = What::Fold(keys.collect());
        let head = Row {
            id: RowId::Fold(id.clone()),
            place: Place { server, what },
            fold: Some(id.clone()),
            branch: None,
        };
        let inside = match unfolded.contains(&id) {
            true => places.into_iter().filter_map(|place| row(place, Some(&id), all)).collect(),
            false => Vec::new(),
        };
        groups.push((head, inside));
    }
    groups
}

fn row<S: AsRef<Server>>(place: Place, fold: Option<&FoldId>, all: &[S]) -> Option<Row> {
    let server = place.server(all)?;
    let lock = place.lock(all)?;
    let key = LockId::of(server, lock);
    let id = match place.what {
        What::Holder(..) | What::Waiter(..) => RowId::Party(key, place.party(all)?.id()),
        What::Server | What::Lock(_) | What::OtherWait(_) | What::Root(_) | What::Fold(_) => {
            RowId::Lock(key)
        }
    };
    Some(Row { id, place, fold: fold.cloned(), branch: None })
}

/// The groups in their order, the rows of each below its head and in the same order. Equals stay in
/// the order of servers and keys, so that nothing jumps about between two polls.
fn sorted<S: AsRef<Server>>(mut groups: Vec<(Row, Vec<Row>)>, all: &[S], sort: Sort) -> Vec<Row> {
    sort_by_place(&mut groups, |(head, _)| &head.place, all, sort);
    let mut rows = Vec::with_capacity(groups.iter().map(|(_, inside)| 1 + inside.len()).sum());
    for (head, mut inside) in groups {
        rows.push(head);
        sort_by_place(&mut inside, |row| &row.place, all, sort);
        rows.append(&mut inside);
    }
    rows
}

/// The values are looked up once for each item, not once for each comparison.
fn sort_by_place<T, S: AsRef<Server>>(
    items: &mut Vec<T>,
    place: fn(&T) -> &Place,
    all: &[S],
    sort: Sort,
) {
    let mut order: Vec<_> = items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| {
            let place = place(item);
            let value = sort.value(&Subject::of(place, all)?);
            Some((value, (place.server, first_index(place)), index))
        })
        .collect();
    order.sort_unstable_by(|(a, a_place, _), (b, b_place, _)| {
        sort.compare(a, b).then_with(|| a_place.cmp(b_place))
    });
    let order: Vec<usize> = order.into_iter().map(|(_, _, index)| index).collect();
    let mut taken: Vec<Option<T>> = std::mem::take(items).into_iter().map(Some).collect();
    items.extend(order.into_iter().filter_map(|index| taken.get_mut(index)?.take()));
}

/// Within its server: holders before waiters.
fn first_index(place: &Place) -> (usize, bool, usize) {
    match &place.what {
        What::Lock(lock) => (*lock, false, 0),
        What::Holder(lock, holder) => (*lock, false, *holder),
        What::Waiter(lock, waiter) => (*lock, true, *waiter),
        What::Fold(locks) => match locks.first() {
            Some(lock) => (*lock, false, 0),
            None => (0, false, 0),
        },
        What::Server | What::OtherWait(_) | What::Root(_) => (0, false, 0),
    }
}

/// Of one session the keys that it holds, and those that it waits for.
pub fn keys_of<'a>(server: &'a Server, party: &PartyId) -> (Vec<&'a Lock>, Vec<&'a Lock>) {
    let (mut held, mut awaited) = (Vec::new(), Vec::new());
    for lock in server.locks.iter().flatten() {
        if lock.holders.iter().any(|holder| Party::Holder(lock, holder).id() == *party) {
            held.push(lock);
        }
        if lock.waiters.iter().any(|waiter| Party::Waiter(lock, waiter).id() == *party) {
            awaited.push(lock);
        }
    }
    (held, awaited)
}

/// What a fold has in common, in words.
pub fn fold_title(fold: &FoldId, keys: usize) -> String {
    let name: Arc<str> = fold.lock.clone().unwrap_or_else(|| UNREGISTERED.into());
    format!("{keys} keys of {name}")
}

#[cfg(test)]
pub(super) mod tests;
