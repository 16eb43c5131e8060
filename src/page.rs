//! The status page at `/`, for the day Grafana is down: a snapshot as HTML.
//!
//! Pure: pictures and the query of an address in, text out; `serve` calls it and `server` sends it. It
//! shows what the terminal view shows, in the same order and the same words, since both take them from
//! `table`. It needs no script: the one it brings takes the page again every few seconds. Nothing on it
//! acts, and whatever others call themselves stays text ([`Shown`]).
//!
//! However many locks there are, the page stays small: lists are cut after a number of entries, and
//! what is folded into a lock is left out of the last ones where there is no room for it.

mod branch;
mod card;
mod row;

use std::collections::HashSet;
use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::LazyLock;

use askama::Template;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use sha2::{Digest as _, Sha256};

use crate::duration::render_duration;
use crate::printable::{fit, visible};
use crate::snapshot::{Gap, Server, Snapshot};
use crate::table::column::{Cell, Column, Sort, Subject, Tone, ViewKind, render_age};
use crate::table::filter::Filter;
use crate::table::list::{self, Row};
use crate::table::row::{RowId, What};
use crate::table::tell;
use crate::timestamp::Timestamp;

/// How much there is of each list on one page: so many entries, and no more than these bytes.
const SERVERS: Most = Most { entries: 50, bytes: 6_000 };
const GAPS: Most = Most { entries: 40, bytes: 6_000 };
/// What is folded into locks is left out of those that would make the page longer than this.
const ROOM: usize = 90_000;
/// A text of others is cut after so many columns where it stands in a row.
const WIDEST: usize = 60;

const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// What may run and load on the page: its own style and script, by their digests, and answers of this
/// server. Nothing of others, and no frame around it.
pub static CONTENT_SECURITY_POLICY: LazyLock<String> = LazyLock::new(|| {
    let digest = |text: &str| BASE64_STANDARD.encode(Sha256::digest(text));
    format!(
        "default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; connect-src 'self'; \
         img-src data:; base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
        digest(STYLE),
        digest(SCRIPT)
    )
});

/// Which part of it is asked for. What is not understood is not there: a page is no place for errors
/// about addresses.
#[derive(Clone, Debug, Default)]
pub struct Query {
    filter: Filter,
    /// Rows before this one are on earlier pages.
    from: usize,
    /// Keys that say the same are not folded.
    flat: bool,
}

impl Query {
    /// From the query of an address.
    pub fn parse(query: Option<&str>) -> Self {
        let mut parsed = Self::default();
        for (name, value) in form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            match &*name {
                "filter" => parsed.filter = Filter::parse(value.trim()),
                "from" => parsed.from = value.parse::<usize>().map_or(0, |row| row.max(1) - 1),
                "flat" => parsed.flat = value == "1",
                _ => {}
            }
        }
        parsed
    }

    fn address(&self) -> String {
        let mut query = form_urlencoded::Serializer::for_suffix(String::from("/?"), 2);
        if !self.filter.is_empty() {
            query.append_pair("filter", self.filter.text());
        }
        if self.flat {
            query.append_pair("flat", "1");
        }
        if self.from > 0 {
            query.append_pair("from", &(self.from + 1).to_string());
        }
        query.finish().trim_end_matches('?').to_owned()
    }
}

/// Where the page is shown, and to whom.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// The path of the metrics.
    pub telemetry_path: &'a str,
    /// Whether this reader is told everything.
    pub details: bool,
    /// Our clock.
    pub now: Timestamp,
}

/// Text of others in HTML: what means something there is escaped, and control characters, and what
/// turns the direction of text, are shown and not sent. The compiler puts it around every text of the
/// templates.
#[derive(Clone, Copy, Debug)]
pub struct Shown;

impl askama::filters::Escaper for Shown {
    fn write_escaped_str<W: fmt::Write>(&self, dest: W, string: &str) -> fmt::Result {
        askama::filters::Html.write_escaped_str(dest, &visible(string))
    }
}

/// Filters of the templates.
mod filters {
    use super::Tone;

    /// The class of a tone.
    #[askama::filter_fn]
    pub fn tone(tone: &Tone, _: &dyn askama::Values) -> askama::Result<&'static str> {
        Ok(match tone {
            Tone::Plain => "",
            Tone::Dim => "dim",
            Tone::Warning => "warning",
            Tone::Critical => "critical",
        })
    }

    /// The class of a finding.
    #[askama::filter_fn]
    pub fn severity(
        severity: &crate::finding::Severity,
        _: &dyn askama::Values,
    ) -> askama::Result<&'static str> {
        Ok(severity.as_str())
    }
}

/// The most there is of a list.
#[derive(Clone, Copy)]
struct Most {
    entries: usize,
    bytes: usize,
}

/// The beginning of a list, and how much of it is not shown.
struct Listed<T> {
    shown: Vec<T>,
    left_out: usize,
}

impl<T> Listed<T> {
    /// Of all there is so many.
    fn of(all: impl ExactSizeIterator<Item = T>, most: usize) -> Self {
        let left_out = all.len().saturating_sub(most);
        Self { shown: all.take(most).collect(), left_out }
    }
}

impl Listed<String> {
    /// Of `count` entries as many as fit, and one in any case.
    fn within(most: Most, count: usize, mut entries: impl Iterator<Item = String>) -> Self {
        let mut shown: Vec<String> = Vec::new();
        let mut length = 0;
        while shown.len() < most.entries
            && let Some(entry) = entries.next()
        {
            length += entry.len();
            if length > most.bytes && !shown.is_empty() {
                break;
            }
            shown.push(entry);
        }
        let left_out = count.saturating_sub(shown.len());
        Self { shown, left_out }
    }
}

#[derive(Template)]
#[template(path = "page.html", config = "src/page/askama.toml")]
struct PageTemplate<'a> {
    title: String,
    summary: Cell,
    now: Timestamp,
    moment: String,
    here: String,
    filter: &'a str,
    flat: bool,
    servers: Listed<String>,
    wrong: Listed<String>,
    nothing_found: &'static str,
    tree: Listed<String>,
    nobody_waits: &'static str,
    rows: Vec<String>,
    no_locks: &'static str,
    place: String,
    previous: Option<String>,
    next: Option<String>,
    folds: Option<(String, &'static str)>,
    gaps: Listed<String>,
    gaps_summary: String,
    details: bool,
    telemetry_path: &'a str,
    version: &'static str,
    style: &'static str,
    script: &'static str,
}

#[derive(Template)]
#[template(path = "server.html", config = "src/page/askama.toml")]
struct ServerTemplate<'a> {
    name: &'a str,
    is_up: bool,
    facts: Vec<Cell>,
}

#[derive(Template)]
#[template(
    source = "{% if is_link %}<a href=\"{{ text }}\" rel=\"noreferrer\">{{ text }}</a>\
              {% else %}{{ text }}{% endif %}",
    ext = "html",
    config = "src/page/askama.toml"
)]
struct ReferenceTemplate<'a> {
    text: &'a str,
    is_link: bool,
}

/// Renders the page.
pub fn render_page(snapshot: &Snapshot, query: &Query, site: Site<'_>) -> String {
    let servers = &snapshot.servers[..];
    let folded =
        list::rows(ViewKind::Locks, servers, &query.filter, Sort::default(), &HashSet::new());
    let flat = query
        .flat
        .then(|| list::flat_rows(ViewKind::Locks, servers, &query.filter, Sort::default()));
    let rows = flat.as_ref().unwrap_or(&folded);
    // An address of the past may lead past the end.
    let from = query.from.min(rows.len().saturating_sub(1));
    let left = rows.get(from..).unwrap_or_default();
    let plain = Listed::within(
        row::ROWS,
        left.len(),
        left.iter().map(|one| row::render_lock(one, servers, "")),
    );
    let on_page = &left[..plain.shown.len()];
    let anchors: HashSet<String> = on_page.iter().map(|row| anchor(&row.id)).collect();
    let summary = summarize(servers);
    let is_blind = servers.iter().any(|server| !server.up);
    let mut worst_first: Vec<&Server> = servers.iter().collect();
    worst_first.sort_by_key(|server| server.up);
    let gaps = gaps(servers);
    let gap_count = gaps.shown.len() + gaps.left_out;
    let page = PageTemplate {
        title: format!("{} · locks", summary.text),
        summary,
        now: site.now,
        moment: tell::render_moment(site.now),
        here: Query { from, ..query.clone() }.address(),
        filter: query.filter.text(),
        flat: query.flat,
        servers: Listed::within(
            SERVERS,
            servers.len(),
            worst_first.into_iter().map(|server| tell_server(server, site.now)),
        ),
        wrong: card::wrong(servers, &folded, &anchors),
        nothing_found: match (query.filter.is_empty(), is_blind) {
            (false, _) => "Nothing that matches the filter.",
            (true, true) => "Nothing was found where it could be looked.",
            (true, false) => "Nothing was found.",
        },
        tree: branch::lines(servers, &query.filter),
        nobody_waits: match (query.filter.is_empty(), is_blind) {
            (false, _) => "Nobody that matches the filter.",
            (true, true) => "Nobody waits where it could be looked.",
            (true, false) => "Nobody waits.",
        },
        rows: Vec::new(),
        no_locks: match (query.filter.is_empty(), is_blind) {
            (false, _) => "No lock matches the filter.",
            (true, true) => "No advisory lock is held or awaited where it could be looked.",
            (true, false) => "No advisory lock is held or awaited.",
        },
        place: match on_page.len() {
            0 => String::new(),
            count => format!("{} to {} of {}", from + 1, from + count, rows.len()),
        },
        previous: (from > 0).then(|| {
            Query { from: from.saturating_sub(row::ROWS.entries), ..query.clone() }.address()
        }),
        next: (from + on_page.len() < rows.len())
            .then(|| Query { from: from + on_page.len(), ..query.clone() }.address()),
        folds: folds(query, rows),
        gaps_summary: format!("{} could not be judged", tell::count(gap_count, "rule", "rules")),
        gaps,
        details: site.details,
        telemetry_path: site.telemetry_path,
        version: env!("CARGO_PKG_VERSION"),
        style: STYLE,
        script: SCRIPT,
    };
    let taken = render(&page).len() + plain.shown.iter().map(String::len).sum::<usize>();
    let rows = row::render_rows(on_page, servers, ROOM.saturating_sub(taken));
    render(&PageTemplate { rows, ..page })
}

/// Rendering to a string fails where a template's own code does, and ours has none that could.
fn render(template: &impl Template) -> String {
    template.render().unwrap_or_default()
}

/// Everything in a few words: they are the page's title too, and stand in a browser's tab.
fn summarize(servers: &[Server]) -> Cell {
    let blind = servers.iter().filter(|server| !server.up).count();
    let found = tell::count_findings(servers.iter());
    match (blind, servers.len()) {
        (0, _) => found,
        (blind, all) if blind == all => {
            let text = if all == 1 {
                "CANNOT SEE".to_owned()
            } else {
                format!("CANNOT SEE any of {all} servers")
            };
            Cell { text, tone: Tone::Critical }
        }
        (blind, all) => Cell {
            text: format!("CANNOT SEE {blind} of {all} servers, {}", found.text),
            tone: Tone::Critical,
        },
    }
}

/// How a server stands.
fn tell_server(server: &Server, now: Timestamp) -> String {
    let mut facts = Vec::new();
    let plain = |text: String| Cell { text, tone: Tone::Plain };
    if let (false, error) = (server.up, &server.error) {
        let reason = error.as_deref().unwrap_or("no answer yet");
        facts.push(Cell { text: format!("CANNOT SEE: {reason}"), tone: Tone::Critical });
    } else {
        facts.push(tell::count_findings(std::iter::once(server)));
        facts.extend(polled(server, now).map(plain));
    }
    facts.extend(tell::version(server));
    facts.extend(server.role.as_deref().map(|role| plain(role.to_owned())));
    facts.extend(tell::lock_table(server.lock_table));
    facts.extend(tell::warnings(server));
    if server.registry_conflicts > 0 {
        let text = tell::count(server.registry_conflicts, "key has", "keys have");
        let text = format!("{text} several names in the registry");
        facts.push(Cell { text, tone: Tone::Warning });
    }
    render(&ServerTemplate { name: &server.server, is_up: server.up, facts })
}

/// How old the picture is, what it took, and how often there is one.
fn polled(server: &Server, now: Timestamp) -> Option<String> {
    // Ages are told on the server's clock, and this one passed on ours.
    let offset = server.clock_offset_seconds?;
    let age = now.unix_seconds() - (server.polled_at?.unix_seconds() - offset);
    let mut text = format!("polled {} ago", render_age(age));
    if let Some(cost) = server.poll.duration_seconds {
        text.push_str(&format!(" in {}ms", (cost * 1000.0).ceil()));
    }
    if let Some(interval) = server.poll.interval_seconds {
        let interval = std::time::Duration::try_from_secs_f64(interval).unwrap_or_default();
        text.push_str(&format!(", every {}", render_duration(interval)));
    }
    Some(text)
}

/// Which key it is, and where.
fn place(subject: &Subject<'_>, servers: &[Server]) -> String {
    let cell = |column: Column| fit(&column.cell(subject).text, WIDEST).into_owned();
    let key = cell(Column::Key);
    let key = if subject.fold.is_some() { key } else { format!("key {key}") };
    match servers.len() > 1 {
        true => format!("{key} in {} on {}", cell(Column::Database), cell(Column::Server)),
        false => format!("{key} in {}", cell(Column::Database)),
    }
}

fn escape(text: &str) -> String {
    render(&ReferenceTemplate { text, is_link: false })
}

/// A link, where it leads to a page: an entry may also name a room or a chapter, and nothing else may
/// be run by a click.
fn reference(text: &str) -> String {
    let is_link = ["http://", "https://"].iter().any(|scheme| text.starts_with(scheme));
    render(&ReferenceTemplate { text, is_link })
}

/// The way between keys in one line and each key for itself, where that makes a difference.
fn folds(query: &Query, rows: &[Row]) -> Option<(String, &'static str)> {
    let has_folds = rows.iter().any(|row| matches!(row.place.what, What::Fold(_)));
    (has_folds || query.flat).then(|| {
        let other = Query { flat: !query.flat, from: 0, filter: query.filter.clone() };
        let words = if query.flat { "Fold keys that say the same" } else { "Show each key" };
        (other.address(), words)
    })
}

/// What could not be judged, and why.
fn gaps(servers: &[Server]) -> Listed<String> {
    let several = servers.len() > 1;
    let of_server = |server| move |gap| (server, gap);
    let all =
        servers.iter().flat_map(|server| server.not_judged.iter().flatten().map(of_server(server)));
    let told = all.clone().map(|(server, gap): (&Server, &Gap)| {
        let name = if several { format!("{}: ", server.server) } else { String::new() };
        let in_part = if gap.in_part { " (in part)" } else { "" };
        let text = format!("{name}{}{in_part}: {}", gap.finding, gap.reason);
        format!("<li>{}</li>", escape(&text))
    });
    Listed::within(GAPS, all.count(), told)
}

/// Finds a row again after the page was taken anew. An identity may hold any text of others, so a
/// digest of it stands in the page.
fn anchor(id: &RowId) -> String {
    let mut hasher = DefaultHasher::new();
    id.hash(&mut hasher);
    format!("lock-{:016x}", hasher.finish())
}

#[cfg(test)]
mod tests;
