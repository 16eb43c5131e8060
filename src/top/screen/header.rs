//! The first lines: which servers, where the pictures come from and how old they are, what is wrong
//! on the whole, and which view is shown.

use crate::duration::render_duration;
use crate::finding::Severity;
use crate::printable::width;
use crate::snapshot::{LockTable, Server};
use crate::table::column::{Cell, Tone, ViewKind, render_age};
use crate::timestamp::Timestamp;
use crate::top::app::{App, Screen};
use crate::top::source::Watched;

/// Of several servers so many have a line of their own; the lost ones first.
const LISTED: usize = 8;

/// So many of them, as wide as they come: which view is shown is always there, and of the rest what
/// matters most.
pub fn lines(app: &App, now: Timestamp, columns: u16, most: usize) -> Vec<Vec<Cell>> {
    let mut lines = Vec::new();
    match app.watched() {
        [] => lines.push(vec![plain("no server is watched yet")]),
        [one] => lines.extend(alone(one, now, usize::from(columns))),
        several => lines.extend(all_of(several, now)),
    }
    lines.truncate(most.saturating_sub(1).max(1));
    lines.push(tabs(app));
    lines
}

/// A server alone has room for everything.
fn alone(watched: &Watched, now: Timestamp, columns: usize) -> Vec<Vec<Cell>> {
    let server = &watched.server;
    let mut first = vec![plain(&server.server)];
    first.extend(facts(server));
    let origin = watched.origin.to_string();
    let taken: usize = first.iter().map(|cell| width(&cell.text) + 2).sum();
    let origin = Cell { text: origin, tone: Tone::Dim };
    // Where it comes from is said in full, on a line of its own if need be.
    let has_room = taken + width(&origin.text) <= columns;
    let mut state = age(watched, now);
    if watched.is_seen() {
        state.push(findings(server));
        state.extend(table(server.lock_table));
    }
    let mut lines = vec![first, state];
    lines.extend(warnings(watched));
    if has_room {
        lines[0].push(origin);
    } else {
        lines.push(vec![origin]);
    }
    lines
}

/// Several servers: a line each, whoever is lost first.
fn all_of(all: &[Watched], now: Timestamp) -> Vec<Vec<Cell>> {
    let is_lost = |watched: &&Watched| watched.lost.is_some() || !watched.is_seen();
    let lost = all.iter().filter(is_lost).count();
    let mut summary = vec![plain(&format!("{} servers", all.len()))];
    if lost > 0 {
        summary.push(Cell { text: format!("{lost} not seen now"), tone: Tone::Critical });
    }
    summary.push(count(all.iter().map(|watched| &*watched.server)));
    // Where they come from is the same for all of them, but for what an exporter remembers.
    if let Some(watched) = all.first() {
        summary.push(Cell { text: watched.origin.to_string(), tone: Tone::Dim });
    }
    let mut lines = vec![summary];
    let mut ordered: Vec<&Watched> = all.iter().collect();
    ordered.sort_by_key(|watched| !is_lost(watched));
    for watched in ordered.iter().take(LISTED) {
        let server = &watched.server;
        let mut line = vec![plain(&format!("  {}", server.server))];
        if watched.is_seen() && watched.lost.is_none() {
            line.push(findings(server));
        }
        line.extend(age(watched, now));
        line.extend(facts(server));
        if watched.is_seen() {
            line.extend(table(server.lock_table));
        }
        line.extend(warnings(watched).into_iter().flatten());
        lines.push(line);
    }
    let more = all.len().saturating_sub(LISTED);
    if more > 0 {
        lines.push(vec![plain(&format!("  and {more} more"))]);
    }
    lines
}

/// What a server says of itself.
fn facts(server: &Server) -> Vec<Cell> {
    // `15.18 (Debian 15.18-0+deb12u1)`: where it was packaged is of no concern at night.
    let version = server.version.as_deref().and_then(|version| version.split(' ').next());
    let version = version.map(|version| plain(&format!("PostgreSQL {version}")));
    version.into_iter().chain(server.role.as_deref().map(plain)).collect()
}

/// How old the picture is, what it took, and how often there is one.
fn age(watched: &Watched, now: Timestamp) -> Vec<Cell> {
    let critical = |text: String| Cell { text, tone: Tone::Critical };
    if !watched.is_seen() {
        let reason = watched.server.error.as_deref().unwrap_or("no answer yet");
        return vec![critical(format!("NOT SEEN YET: {reason}"))];
    }
    let seconds = |since: Timestamp| render_age(now.since(since).as_secs_f64());
    if let Some(lost) = &watched.lost {
        return vec![critical(format!(
            "LOST {} ago, picture {} old: {}",
            seconds(lost.since),
            seconds(watched.received_at),
            lost.reason
        ))];
    }
    let cost = match watched.server.poll.duration_seconds {
        Some(cost) => format!(" in {}ms", (cost * 1000.0).ceil()),
        None => String::new(),
    };
    let interval = render_duration(watched.interval);
    vec![plain(&format!("polled {} ago{cost}, every {interval}", seconds(watched.received_at)))]
}

fn table(table: LockTable) -> Option<Cell> {
    let LockTable { entries: Some(entries), capacity } = table else { return None };
    let Some(capacity) = capacity else { return Some(plain(&format!("lock table {entries}"))) };
    let percent = entries.saturating_mul(100).checked_div(capacity)?;
    let is_full = entries > LockTable::full_at(capacity);
    let tone = if is_full { Tone::Warning } else { Tone::Plain };
    let percent = if percent > 0 { format!(" ({percent} %)") } else { String::new() };
    Some(Cell { text: format!("lock table {entries}/{capacity}{percent}"), tone })
}

fn findings(server: &Server) -> Cell {
    count(std::iter::once(server))
}

/// Findings by severity, in words.
fn count<'a>(servers: impl Iterator<Item = &'a Server>) -> Cell {
    let (mut critical, mut warnings) = (0_usize, 0_usize);
    for finding in
        servers.flat_map(|server| server.locks.iter().flatten()).flat_map(|one| &one.findings)
    {
        match finding.severity {
            Severity::Critical => critical += 1,
            Severity::Warning => warnings += 1,
        }
    }
    let many = if warnings == 1 { "warning" } else { "warnings" };
    match (critical, warnings) {
        (0, 0) => plain("no findings"),
        (0, warnings) => Cell { text: format!("{warnings} {many}"), tone: Tone::Warning },
        (critical, 0) => Cell { text: format!("{critical} critical"), tone: Tone::Critical },
        (critical, warnings) => {
            Cell { text: format!("{critical} critical, {warnings} {many}"), tone: Tone::Critical }
        }
    }
}

/// What makes the picture less than it could be.
fn warnings(watched: &Watched) -> Vec<Vec<Cell>> {
    let server = &watched.server;
    let warning = |text: &str| vec![Cell { text: text.to_owned(), tone: Tone::Warning }];
    let mut lines = Vec::new();
    let looked = server.looked_at.as_ref();
    if looked.is_some_and(|looked| looked.privileges_sufficient == Some(false)) {
        lines.push(warning("the state of others is hidden: GRANT pg_read_all_stats TO this role"));
    }
    if server.pooled_connection == Some(true) {
        lines.push(warning("seen through a pooler: connect to the server itself"));
    }
    lines
}

/// The views, which of them is shown, and which of its rows.
fn tabs(app: &App) -> Vec<Cell> {
    let mut cells: Vec<Cell> = ViewKind::ALL
        .into_iter()
        .enumerate()
        .map(|(index, kind)| {
            let title = format!("{} {}", index + 1, kind.title());
            match kind == app.kind() {
                true => plain(&format!("[{title}]")),
                false => Cell { text: title, tone: Tone::Dim },
            }
        })
        .collect();
    if app.is_paused() {
        cells.push(Cell { text: "PAUSED".to_owned(), tone: Tone::Warning });
    }
    if !app.filter().is_empty() && !matches!(app.screen(), Screen::Filter(_)) {
        cells.push(plain(&format!("/{}", app.filter().text())));
    }
    if let Some(index) = app.selected_index()
        && app.rows().len() > 1
    {
        cells
            .push(Cell { text: format!("{} of {}", index + 1, app.rows().len()), tone: Tone::Dim });
    }
    cells
}

/// Why there are no rows.
pub fn nothing(app: &App) -> Vec<Cell> {
    if !app.filter().is_empty() {
        return vec![plain(&format!("no row matches /{}; Esc clears it", app.filter().text()))];
    }
    let what = app.kind().nothing();
    app.watched()
        .iter()
        .map(|watched| match (watched.is_seen(), app.watched().len()) {
            (true, 1) => plain(what),
            (true, _) => plain(&format!("{}: {what}", watched.server.server)),
            (false, _) => plain(&format!(
                "{}: not seen yet: {}",
                watched.server.server,
                watched.server.error.as_deref().unwrap_or("no answer yet")
            )),
        })
        .collect()
}

fn plain(text: &str) -> Cell {
    Cell { text: text.to_owned(), tone: Tone::Plain }
}
