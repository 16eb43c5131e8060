//! What is wrong with a key, on one card: who has it, what was seen, what may be done, whom to call.

use std::cmp::Reverse;
use std::collections::HashSet;

use askama::Template;

use super::{Listed, Most, WIDEST, anchor, filters, place, reference, render};
use crate::finding::Severity;
use crate::printable::fit;
use crate::snapshot::{Finding, Server};
use crate::table::column::{Column, Subject, Tone, title};
use crate::table::list::Row;
use crate::table::tell;

const CARDS: Most = Most { entries: 20, bytes: 22_000 };
/// Of a lock, so many findings.
const FINDINGS: usize = 5;

/// A key, or several that say the same, of which something is to be said.
#[derive(Template)]
#[template(path = "wrong.html", config = "src/page/askama.toml")]
struct WrongTemplate<'a> {
    worst: Tone,
    severity: &'static str,
    id: Option<String>,
    title: String,
    place: String,
    holder: String,
    findings: Listed<&'a Finding>,
    keys: usize,
    remedies: Vec<Vec<Part<'a>>>,
    references: Vec<(&'static str, String)>,
}

/// What is wrong, the worst first, with everything that is said of a key in one place.
pub(super) fn wrong(servers: &[Server], rows: &[Row], anchors: &HashSet<String>) -> Listed<String> {
    let is_wrong =
        |row: &&Row| row.place.lock(servers).is_some_and(|lock| !lock.findings.is_empty());
    let count = rows.iter().filter(is_wrong).count();
    let told = rows.iter().filter(is_wrong);
    Listed::within(CARDS, count, told.filter_map(|row| tell_wrong(row, servers, anchors)))
}

fn tell_wrong(row: &Row, servers: &[Server], anchors: &HashSet<String>) -> Option<String> {
    let subject = Subject::of(&row.place, servers)?;
    let lock = subject.lock;
    let mut findings: Vec<&Finding> = lock.findings.iter().collect();
    findings.sort_by_key(|finding| Reverse(finding.severity));
    let worst = findings.first()?.severity;
    let remedies = remedies(findings.iter().take(FINDINGS).map(|finding| &*finding.remedy));
    let keys = subject.fold.map_or(1, <[usize]>::len);
    let references = [("Owner", &lock.owner), ("Runbook", &lock.runbook)];
    Some(render(&WrongTemplate {
        worst: tone(worst),
        severity: worst.as_str(),
        id: Some(anchor(&row.id)).filter(|id| anchors.contains(id)),
        title: match subject.fold {
            Some(_) => Column::Lock.cell(&subject).text,
            None => fit(&title(lock), WIDEST).into_owned(),
        },
        place: place(&subject, servers),
        holder: held_and_awaited(&subject),
        findings: Listed::of(findings.iter().copied(), FINDINGS),
        keys,
        remedies: remedies.into_iter().map(parts).collect(),
        references: references
            .into_iter()
            .filter_map(|(field, value)| Some((field, reference(value.as_deref()?))))
            .collect(),
    }))
}

/// Each once; what is only the beginning of another is said by that one.
pub(super) fn remedies<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut told: Vec<&str> = Vec::new();
    for remedy in all {
        if told.iter().any(|other| other.starts_with(remedy)) {
            continue;
        }
        match told.iter_mut().find(|other| remedy.starts_with(**other)) {
            Some(shorter) => *shorter = remedy,
            None => told.push(remedy),
        }
    }
    told
}

/// A statement to be run in the database, which one click marks as a whole, or words about it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) text: &'a str,
    pub(super) is_statement: bool,
}

/// Tells statements from the words around them.
pub(super) fn parts(mut text: &str) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    let words = |text| Part { text, is_statement: false };
    while let Some((start, length)) = text
        .char_indices()
        .find_map(|(start, _)| Some((start, statement_length(text.get(start..)?)?)))
    {
        let (before, rest) = text.split_at(start);
        let (statement, rest) = rest.split_at(length);
        parts.extend((!before.is_empty()).then(|| words(before)));
        parts.push(Part { text: statement, is_statement: true });
        text = rest;
    }
    parts.extend((!text.is_empty()).then(|| words(text)));
    parts
}

/// The bytes of the statement that a text begins with: one that ends a session has a number in it, one
/// that ends a prepared transaction a quoted gid, which may hold anything.
fn statement_length(text: &str) -> Option<usize> {
    if ["SELECT pg_terminate_backend(", "SELECT pg_cancel_backend("]
        .iter()
        .any(|call| text.starts_with(call))
    {
        let end = text.find(')')? + 1;
        return Some(end + usize::from(text[end..].starts_with(';')));
    }
    let verb =
        ["COMMIT PREPARED ", "ROLLBACK PREPARED "].iter().find(|verb| text.starts_with(**verb))?;
    let literal = &text[verb.len()..];
    let opening = if literal.starts_with('E') { 2 } else { 1 };
    let mut inside = literal[opening - 1..].strip_prefix('\'')?.chars().peekable();
    let mut length = verb.len() + opening;
    while let Some(c) = inside.next() {
        length += c.len_utf8();
        if c == '\'' {
            // A quote within is written twice.
            match inside.next_if_eq(&'\'') {
                Some(_) => length += 1,
                None => return Some(length),
            }
        }
    }
    None
}

const fn tone(severity: Severity) -> Tone {
    match severity {
        Severity::Critical => Tone::Critical,
        Severity::Warning => Tone::Warning,
    }
}

/// Who has a key and since when, and who would like to.
fn held_and_awaited(subject: &Subject<'_>) -> String {
    let cell = |column: Column| column.cell(subject).text;
    let lock = subject.lock;
    let mut told = Vec::new();
    if !lock.holders.is_empty() {
        let held = cell(Column::Held);
        told.push(format!("held {held} by {}, {}", cell(Column::Application), cell(Column::State)));
    } else if !lock.waiters.is_empty() {
        told.push("held by nobody that was seen".to_owned());
    }
    if !lock.waiters.is_empty() {
        let waiting = tell::count(lock.waiters.len(), "session waits", "sessions wait");
        told.push(format!("{waiting}, the longest {}", cell(Column::Wait)));
    }
    told.join("; ")
}
