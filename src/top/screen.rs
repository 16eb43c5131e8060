//! State → screen: what everything looks like, at any size.
//!
//! Pure: it draws the state into ratatui's buffer, and the clock is an argument. From top to bottom
//! there is a header (which servers, how old, what is wrong), the view, what is worst about the
//! selected row with its remedy, and the keys. A pane or a question lies over the view.
//!
//! ```text
//! server, version, role, where it comes from          header
//! polled 0.4s ago in 3ms …; findings
//! LOCK       HELD BY     STATE     HELD  …            view, or what lies over it
//! report     billing-a   idle      ≥ 5m12s
//! stuck: session 123 (billing-a) has been idle …      strip
//! remedy: SELECT pg_terminate_backend(123); …
//! q quit  ? help  Enter detail  / filter …            footer
//! ```

mod dialog;
mod header;
mod palette;
mod strip;
mod table;

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::Widget as _;

use self::palette::Palette;
use super::app::{App, Screen};
use super::detail;
use crate::printable::{fit, visible, width};
use crate::table::column::{Cell, ViewKind};
use crate::table::list::Row;
use crate::table::tree;
use crate::timestamp::Timestamp;

/// What fits on the screen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Rows of the view, or lines of what lies over it.
    pub page: usize,
    /// Of a pane: from which line on it is shown at the furthest.
    pub last_line: usize,
}

/// What stands where on a screen of one size: worked out once, then measured and drawn.
pub struct Plan {
    header: Lines,
    /// The detail or the help, in place of the view and of the strip.
    pane: Option<Lines>,
    strip: Lines,
    area: Rect,
    header_area: Rect,
    body: Rect,
    strip_area: Rect,
    footer: Rect,
}

type Lines = Vec<Vec<Cell>>;

impl Plan {
    /// For an area.
    pub fn of(app: &App, now: Timestamp, area: Rect) -> Self {
        let rows = |lines: &Lines| u16::try_from(lines.len()).unwrap_or(u16::MAX);
        let columns = usize::from(area.width);
        let footer = area.height.min(1);
        let mut left = area.height - footer;
        // The view is what one came for: on a small screen everything else gives way.
        let header = header::lines(app, now, area.width, usize::from(left / 3));
        let header_height = rows(&header).min(left);
        left -= header_height;
        let pane = match app.screen() {
            Screen::Detail(_) => Some(detail::lines(app, columns)),
            Screen::Help(_) => Some(dialog::help(app, columns)),
            Screen::View | Screen::Filter(_) | Screen::Sort(_) | Screen::Confirm(_) => None,
        };
        let strip = match pane {
            Some(_) => Lines::new(),
            None => strip::lines(app, area.width, usize::from(left / 3)),
        };
        let strip_height = rows(&strip);
        let body = left - strip_height;
        let place =
            |y: u16, height: u16| Rect { x: area.x, y: area.y + y, width: area.width, height };
        Self {
            header,
            pane,
            strip,
            area,
            header_area: place(0, header_height),
            body: place(header_height, body),
            strip_area: place(header_height + body, strip_height),
            footer: place(header_height + body + strip_height, footer),
        }
    }

    /// What fits.
    pub fn measure(&self, app: &App) -> Measure {
        let page = usize::from(self.body.height);
        match &self.pane {
            Some(lines) => Measure { page, last_line: lines.len().saturating_sub(page) },
            None => {
                let headings = usize::from(app.kind() != ViewKind::Tree);
                Measure { page: page.saturating_sub(headings), last_line: 0 }
            }
        }
    }

    /// Draws everything.
    pub fn render(&self, app: &App, buffer: &mut Buffer) {
        let palette = Palette::new(app.options().is_colored);
        put_lines(&self.header, &palette, self.header_area, buffer);
        match (&self.pane, app.screen()) {
            (Some(lines), Screen::Detail(from) | Screen::Help(from)) => {
                put_lines(lines.get(*from..).unwrap_or_default(), &palette, self.body, buffer);
            }
            (_, _) => {
                render_view(app, &palette, self.body, buffer);
                put_lines(&self.strip, &palette, self.strip_area, buffer);
            }
        }
        match app.screen() {
            Screen::Sort(index) => dialog::render_sort(app, *index, &palette, self.body, buffer),
            Screen::Confirm(question) => {
                // The question may need all there is.
                let height = self.area.height - self.footer.height;
                let place = Rect { height, ..self.area };
                dialog::render_question(question, &palette, place, buffer);
            }
            Screen::View | Screen::Filter(_) | Screen::Detail(_) | Screen::Help(_) => {}
        }
        put_lines(&[strip::footer(app, self.area.width)], &palette, self.footer, buffer);
    }
}

fn render_view(app: &App, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    if app.rows().is_empty() {
        let lines = wrap_all(&header::nothing(app), usize::from(area.width));
        put_lines(&lines, palette, area, buffer);
        return;
    }
    match app.kind() {
        ViewKind::Locks | ViewKind::Sessions => table::render(app, palette, area, buffer),
        ViewKind::Tree => render_tree(app, palette, area, buffer),
    }
}

fn render_tree(app: &App, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    let several = app.watched().len() > 1;
    for (number, y) in (app.offset()..app.rows().len()).zip(area.top()..area.bottom()) {
        let row = &app.rows()[number];
        let line = tree_line(app, row, several);
        let place = Rect { y, height: 1, ..area };
        put_cells(&line, palette, place, buffer);
        if app.selected_index() == Some(number) {
            buffer.set_style(place, palette.selected());
        }
    }
}

/// A line of the tree with its guides; of several servers a root says which.
fn tree_line(app: &App, row: &Row, several: bool) -> Vec<Cell> {
    let mut cells = tree::line(row, app.watched());
    let Some(branch) = &row.branch else { return cells };
    if let Some(first) = cells.first_mut() {
        first.text.insert_str(0, &branch.guides(app.options().is_ascii));
    }
    if several
        && branch.depth == 0
        && let Some(server) = row.place.server(app.watched())
    {
        cells.push(Cell { text: format!("on {}", server.server), ..Cell::default() });
    }
    cells
}

/// Cells beside each other, cut where the line ends.
fn put_cells(cells: &[Cell], palette: &Palette, area: Rect, buffer: &mut Buffer) {
    let mut left = usize::from(area.width);
    let mut spans: Vec<Span<'_>> = Vec::new();
    for (index, cell) in cells.iter().enumerate() {
        let gap = if index == 0 { 0 } else { 2 };
        if left <= gap {
            break;
        }
        let text = visible(&cell.text);
        let text = fit(&text, left - gap).into_owned();
        left -= gap + width(&text);
        spans.push(Span::raw(" ".repeat(gap)));
        spans.push(Span::styled(text, palette.tone(cell.tone)));
    }
    Line::from(spans).render(area, buffer);
}

/// Lines below each other, each cut where it ends.
fn put_lines(lines: &[Vec<Cell>], palette: &Palette, area: Rect, buffer: &mut Buffer) {
    for (cells, y) in lines.iter().zip(area.top()..area.bottom()) {
        put_cells(cells, palette, Rect { y, height: 1, ..area }, buffer);
    }
}

/// A text in lines of this width, broken between words where it can be.
fn wrap(cell: &Cell, columns: usize) -> Vec<Vec<Cell>> {
    let text = visible(&cell.text);
    let mut lines: Vec<String> = Vec::new();
    let mut line = String::new();
    for word in text.split_inclusive(' ') {
        if !line.is_empty() && width(&line) + width(word.trim_end()) > columns {
            lines.push(std::mem::take(&mut line));
        }
        line.push_str(word);
        // A word that is longer than a line: a query, a key of some extension.
        while width(line.trim_end()) > columns.max(1) {
            let mut taken = 0;
            let end = line
                .char_indices()
                .find(|(_, c)| {
                    taken += unicode_width::UnicodeWidthChar::width(*c).unwrap_or(0);
                    taken > columns.max(1)
                })
                .map_or(line.len(), |(index, _)| index.max(1));
            let end =
                (end..=line.len()).find(|end| line.is_char_boundary(*end)).unwrap_or(line.len());
            let rest = line.split_off(end);
            lines.push(std::mem::replace(&mut line, rest));
        }
    }
    lines.push(line);
    let cell = |line: String| Cell { text: line.trim_end().to_owned(), tone: cell.tone };
    lines.into_iter().map(|line| vec![cell(line)]).collect()
}

/// Several texts, each in its lines.
pub(super) fn wrap_all(cells: &[Cell], columns: usize) -> Vec<Vec<Cell>> {
    cells.iter().flat_map(|cell| wrap(cell, columns)).collect()
}

#[cfg(test)]
mod tests;
