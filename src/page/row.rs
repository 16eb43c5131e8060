//! The list of locks: a row for each, and folded into it everything that is known of it.

use askama::Template;

use super::{Listed, Most, WIDEST, anchor, filters, place, reference, render};
use crate::printable::fit;
use crate::snapshot::{Lock, Server, Waited};
use crate::table::column::{Cell, Column, Subject, Tone, render_waited, title};
use crate::table::list::Row;
use crate::table::row::{Party, What};
use crate::table::tell;

/// On one page.
pub(super) const ROWS: Most = Most { entries: 50, bytes: 30_000 };
/// Of a lock, so many of those who hold it, and of those who wait.
const PARTIES: usize = 10;

#[derive(Template)]
#[template(path = "lock.html", config = "src/page/askama.toml")]
struct LockTemplate<'a> {
    id: String,
    worst: Tone,
    name: Cell,
    place: String,
    application: Cell,
    state: Cell,
    held: String,
    waiters: String,
    findings: Cell,
    more: &'a str,
}

#[derive(Template)]
#[template(path = "more.html", config = "src/page/askama.toml")]
struct MoreTemplate {
    findings: Vec<Cell>,
    parties: Listed<PartyPart>,
    entry: Vec<(&'static str, String)>,
}

struct PartyPart {
    who: String,
    facts: Vec<Cell>,
}

/// The rows of a page; of the last ones without what is folded into them, where there is no room.
pub(super) fn render_rows(rows: &[Row], servers: &[Server], mut room: usize) -> Vec<String> {
    let render_row = |row: &Row| {
        let more = more(row, servers);
        let fits = more.len() <= room;
        room = if fits { room - more.len() } else { 0 };
        render_lock(row, servers, if fits { &more } else { NO_ROOM })
    };
    rows.iter().map(render_row).collect()
}

const NO_ROOM: &str =
    "<p class=\"more\">No room for more on this page: filter, or see the JSON.</p>";

/// A row of the list, with what is folded into it.
pub(super) fn render_lock(row: &Row, servers: &[Server], more: &str) -> String {
    let Some(subject) = Subject::of(&row.place, servers) else { return String::new() };
    let cell = |column: Column| {
        let Cell { text, tone } = column.cell(&subject);
        Cell { text: fit(&text, WIDEST).into_owned(), tone }
    };
    let findings = cell(Column::Findings);
    let waiters = subject.lock.waiters.len();
    render(&LockTemplate {
        id: anchor(&row.id),
        worst: findings.tone,
        name: cell(Column::Lock),
        place: place(&subject, servers),
        application: cell(Column::Application),
        state: cell(Column::State),
        held: cell(Column::Held).text,
        waiters: match waiters {
            0 => String::new(),
            count => format!("{count}, {}", render_waited(Waited::longest(&subject.lock.waiters))),
        },
        findings,
        more,
    })
}

/// What is folded into a row: what is wrong, who is on it, what the registry says.
fn more(row: &Row, servers: &[Server]) -> String {
    let (Some(server), Some(lock)) = (row.place.server(servers), row.place.lock(servers)) else {
        return String::new();
    };
    if let What::Fold(keys) = &row.place.what {
        return more_of_fold(row, server, servers, keys);
    }
    let holders = lock.holders.iter().take(PARTIES).map(|one| tell::holder(server, lock, one));
    let waiters = lock.waiters.iter().take(PARTIES).map(|one| tell::waiter(server, lock, one));
    let left_out = [lock.holders.len(), lock.waiters.len()].map(|one| one.saturating_sub(PARTIES));
    render(&MoreTemplate {
        findings: lock.findings.iter().flat_map(tell::finding).collect(),
        parties: Listed {
            shown: holders.chain(waiters).map(party).collect(),
            left_out: left_out.iter().sum(),
        },
        entry: entry(lock),
    })
}

fn party(mut told: Vec<Cell>) -> PartyPart {
    let facts = told.split_off(1.min(told.len()));
    PartyPart { who: told.pop().map(|cell| cell.text).unwrap_or_default(), facts }
}

fn entry(lock: &Lock) -> Vec<(&'static str, String)> {
    tell::key(lock).into_iter().map(|(field, value)| (field, reference(&value))).collect()
}

/// Of many keys: what they have in common, and some of them.
fn more_of_fold(row: &Row, server: &Server, servers: &[Server], keys: &[usize]) -> String {
    let locks = server.locks.as_deref().unwrap_or_default();
    let first = row.place.lock(servers);
    let one = |lock: &Lock| {
        let holder = lock.holders.first().map(|one| tell::who(Party::Holder(lock, one)));
        let text = format!("{}, held by {}", title(lock), holder.unwrap_or_default());
        PartyPart { who: text, facts: Vec::new() }
    };
    render(&MoreTemplate {
        findings: first
            .into_iter()
            .flat_map(|lock| &lock.findings)
            .flat_map(tell::finding)
            .collect(),
        parties: Listed {
            shown: keys.iter().filter_map(|key| locks.get(*key)).take(PARTIES).map(one).collect(),
            left_out: keys.len().saturating_sub(PARTIES),
        },
        entry: Vec::new(),
    })
}
