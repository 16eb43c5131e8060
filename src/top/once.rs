//! A view for pipes and tickets: every row, nothing cut off, no escapes.
//!
//! Pure. A person gets what is wrong and what to do about it below the table; a script that asks for
//! columns, or for no headings, gets rows alone.

use std::collections::HashSet;
use std::fmt::Write as _;

use super::plain::{self, Heading};
use super::source::Watched;
use crate::printable::visible;
use crate::snapshot::{Finding, Lock};
use crate::table::column::{Column, Sort, Subject, ViewKind, title};
use crate::table::filter::Filter;
use crate::table::list::{self, Row};
use crate::table::tree;

/// What is printed, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which view.
    pub kind: ViewKind,
    /// In which order.
    pub sort: Sort,
    /// Which rows.
    pub filter: Filter,
    /// Which columns; none for those that somebody would want to read.
    pub columns: Vec<Column>,
    /// With headings, and with what is wrong below.
    pub has_header: bool,
}

/// The view as text.
pub fn render(options: &Options, all: &[Watched]) -> String {
    let Options { kind, sort, filter, columns, has_header } = options;
    // Folds are for eyes.
    let rows = list::flat_rows(*kind, all, filter, *sort);
    let mut text = match kind {
        ViewKind::Tree => render_tree(&rows, all),
        ViewKind::Locks | ViewKind::Sessions => {
            let columns = if columns.is_empty() { usual(*kind, all) } else { columns.clone() };
            render_table(&rows, all, &columns, *has_header)
        }
    };
    if *has_header && columns.is_empty() {
        if rows.is_empty() {
            render_nothing(&mut text, options, all);
        }
        render_findings(&mut text, &rows, all);
    }
    text
}

fn usual(kind: ViewKind, all: &[Watched]) -> Vec<Column> {
    let is_left_out = |column: &Column| {
        (*column == Column::Server && all.len() < 2)
            || [Column::Owner, Column::User, Column::Client].contains(column)
    };
    let is_usual = |column: &Column| !is_left_out(column);
    kind.columns().iter().copied().filter(is_usual).collect()
}

fn render_table(rows: &[Row], all: &[Watched], columns: &[Column], has_header: bool) -> String {
    let headings: Vec<Heading> = columns
        .iter()
        .map(|column| Heading { title: column.title(), is_number: column.is_number() })
        .collect();
    let cells: Vec<Vec<String>> = rows
        .iter()
        .filter_map(|row| Subject::of(&row.place, all))
        .map(|subject| columns.iter().map(|column| column.cell(&subject).text).collect())
        .collect();
    plain::render(&headings, &cells, has_header)
}

fn render_tree(rows: &[Row], all: &[Watched]) -> String {
    let mut text = String::new();
    for row in rows {
        let guides = row.branch.as_ref().map(|branch| branch.guides(false)).unwrap_or_default();
        let cells = tree::line(row, all);
        let cells: Vec<String> =
            cells.iter().map(|cell| visible(&cell.text).into_owned()).collect();
        let _ = writeln!(text, "{guides}{}", cells.join("  "));
    }
    text
}

/// That there are no rows, of the servers that were seen: of the others nobody knows.
fn render_nothing(text: &mut String, options: &Options, all: &[Watched]) {
    let gap = if text.is_empty() { "" } else { "\n" };
    if !options.filter.is_empty() {
        let _ = writeln!(text, "{gap}no row matches {}", visible(options.filter.text()));
        return;
    }
    let what = match options.kind {
        ViewKind::Tree => "nobody waits",
        kind @ (ViewKind::Locks | ViewKind::Sessions) => kind.nothing(),
    };
    let mut seen = all.iter().filter(|watched| watched.is_seen()).peekable();
    if seen.peek().is_some() {
        text.push_str(gap);
    }
    for watched in seen {
        let _ = writeln!(text, "{what} on {}", visible(&watched.server.server));
    }
}

/// What is wrong with the keys that are shown, the worst first, each with its remedy.
fn render_findings(text: &mut String, rows: &[Row], all: &[Watched]) {
    let mut seen = HashSet::new();
    let mut told: Vec<(&str, &Lock, &Finding)> = Vec::new();
    for row in rows {
        let Some(lock) = row.place.lock(all) else { continue };
        let Some(server) = row.place.server(all) else { continue };
        if seen.insert((row.place.server, &lock.datname, lock.key)) {
            let server = &*server.server;
            told.extend(lock.findings.iter().map(|finding| (server, lock, finding)));
        }
    }
    told.sort_by_key(|(_, _, finding)| std::cmp::Reverse(finding.severity));
    for (server, lock, finding) in told {
        let severity = finding.severity.as_str().to_uppercase();
        let place = format!(
            "{severity} {}: {}, key {} in {} on {server}",
            finding.finding,
            title(lock),
            lock.key,
            lock.datname
        );
        for (indent, line) in
            [("\n", &place), ("  ", &finding.text), ("  remedy: ", &finding.remedy)]
        {
            let _ = writeln!(text, "{indent}{}", visible(line));
        }
    }
}

#[cfg(test)]
mod tests;
