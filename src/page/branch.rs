//! Who waits for whom, as nested lists: that is how a screen reader tells a tree.

use askama::Template;

use super::{Listed, Most, WIDEST, escape, filters, render};
use crate::printable::fit;
use crate::snapshot::Server;
use crate::table::column::Cell;
use crate::table::filter::Filter;
use crate::table::tree;

const LINES: Most = Most { entries: 60, bytes: 10_000 };

#[derive(Template)]
#[template(
    source = "{{ before|safe }}<li>{% for cell in cells %}<span class=\"{{ cell.tone|tone }}\">\
              {{ cell.text }}</span>{% endfor %}",
    ext = "html",
    config = "src/page/askama.toml"
)]
struct LineTemplate {
    before: String,
    cells: Vec<Cell>,
}

/// The tree, as nested lists.
pub(super) fn lines(servers: &[Server], filter: &Filter) -> Listed<String> {
    let rows = tree::rows(servers, filter);
    // The server of the line before, and how far in it stands.
    let mut last: Option<(usize, usize)> = None;
    let mut ends = Vec::new();
    let lines = rows.iter().map(|row| {
        let server = row.place.server;
        let depth = row.branch.as_ref().map_or(0, tree::Branch::shown_depth);
        let before = match last {
            Some((other, above)) if other == server && depth > above => "<ul>".to_owned(),
            Some((other, above)) if other == server => {
                format!("</li>{}", "</ul></li>".repeat(above.saturating_sub(depth)))
            }
            _ => {
                let name = row.place.server(servers).map_or("", |server| &server.server);
                let heading = match servers.len() > 1 {
                    true => format!("<h3>{}</h3>", escape(name)),
                    false => String::new(),
                };
                format!("{}{heading}<ul>", close(last))
            }
        };
        last = Some((server, depth));
        ends.push(last);
        let mut cells = tree::line(row, servers);
        for cell in &mut cells {
            cell.text = fit(&cell.text, 3 * WIDEST).into_owned();
        }
        render(&LineTemplate { before, cells })
    });
    let mut listed = Listed::within(LINES, rows.len(), lines);
    let end = listed.shown.len().checked_sub(1).and_then(|end| *ends.get(end)?);
    listed.shown.extend(end.map(|end| close(Some(end))));
    listed
}

/// Ends the lists that are open after a line.
fn close(last: Option<(usize, usize)>) -> String {
    last.map_or_else(String::new, |(_, depth)| "</li></ul>".repeat(depth + 1))
}
