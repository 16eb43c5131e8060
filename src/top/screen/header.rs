//! The first lines: which servers, where the pictures come from and how old they are, what is wrong
//! on the whole, and which view is shown.

use crate::duration::render_duration;
use crate::printable::width;
use crate::snapshot::Server;
use crate::table::column::{Cell, Tone, ViewKind, render_age};
use crate::table::tell;
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
        state.push(tell::count_findings(std::iter::once(&**server)));
        state.extend(tell::lock_table(server.lock_table));
    }
    let mut lines = vec![first, state];
    lines.extend(tell::warnings(server).into_iter().map(|warning| vec![warning]));
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
    summary.push(tell::count_findings(all.iter().map(|watched| &*watched.server)));
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
            line.push(tell::count_findings(std::iter::once(&**server)));
        }
        line.extend(age(watched, now));
        line.extend(facts(server));
        if watched.is_seen() {
            line.extend(tell::lock_table(server.lock_table));
        }
        line.extend(tell::warnings(server));
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
    tell::version(server).into_iter().chain(server.role.as_deref().map(plain)).collect()
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
