//! The Locks and Sessions views as columns: which of them a screen has room for, and how wide.
//!
//! Cells are made for the rows in sight only, however many there are.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;

use super::palette::Palette;
use crate::mode::Mode;
use crate::printable::{fit, visible, width};
use crate::snapshot::Lock;
use crate::table::column::{Cell, Column, Subject, ViewKind, title};
use crate::table::row::What;
use crate::top::app::App;

/// Between two columns.
const GAP: usize = 2;

/// A column on the screen.
struct Shown {
    column: Column,
    title: String,
    columns: usize,
}

/// The headings and the rows in sight.
pub fn render(app: &App, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    let body = usize::from(area.height.saturating_sub(1));
    let rows = app.rows().get(app.offset()..).unwrap_or_default();
    let rows = &rows[..rows.len().min(body)];
    let candidates = candidates(app, usize::from(area.width));
    let cells: Vec<Vec<Cell>> = rows
        .iter()
        .map(|row| match Subject::of(&row.place, app.watched()) {
            Some(subject) => candidates.iter().map(|column| cell(*column, &subject)).collect(),
            None => vec![Cell::default(); candidates.len()],
        })
        .collect();
    let shown = choose(app, &candidates, &cells, usize::from(area.width));
    let mut x = area.x;
    for one in &shown {
        let place = candidates.iter().position(|column| *column == one.column).unwrap_or(0);
        let column = Rect {
            x,
            width: u16::try_from(one.columns)
                .unwrap_or(u16::MAX)
                .min(area.right().saturating_sub(x)),
            ..area
        };
        put(&one.title, one, palette.heading(), Rect { height: 1, ..column }, buffer);
        for (index, (row, cells)) in rows.iter().zip(&cells).enumerate() {
            let Ok(y) = u16::try_from(index + 1) else { break };
            let Some(cell) = cells.get(place) else { continue };
            let mut text = visible(&cell.text).into_owned();
            // What came out of a fold stands below it.
            let is_inside = row.fold.is_some() && !matches!(row.place.what, What::Fold(_));
            if is_inside && matches!(one.column, Column::Lock | Column::Role) {
                text.insert_str(0, "  ");
            }
            let place = Rect { y: area.y + y, height: 1, ..column };
            put(&text, one, palette.tone(cell.tone), place, buffer);
        }
        x = x
            .saturating_add(u16::try_from(one.columns + GAP).unwrap_or(u16::MAX))
            .min(area.right());
    }
    if let Some(selected) = app.selected_index()
        && let Some(index) = selected.checked_sub(app.offset())
        && index < rows.len()
        && let Ok(y) = u16::try_from(index + 1)
    {
        buffer.set_style(Rect { y: area.y + y, height: 1, ..area }, palette.selected());
    }
}

fn put(text: &str, one: &Shown, style: Style, area: Rect, buffer: &mut Buffer) {
    let columns = usize::from(area.width);
    let text = fit(text, columns);
    let blank = if one.column.is_number() { columns.saturating_sub(width(&text)) } else { 0 };
    let Ok(blank) = u16::try_from(blank) else { return };
    buffer.set_stringn(area.x + blank, area.y, &text, columns, style);
}

/// As everywhere, but that a key without a name is there by its number: there may be no room for a
/// column of keys.
fn cell(column: Column, subject: &Subject<'_>) -> Cell {
    let mut cell = column.cell(subject);
    if column == Column::Lock && subject.lock.lock.is_none() && subject.fold.is_none() {
        cell.text = title(subject.lock).into_owned();
    }
    if column == Column::Lock
        && let Some(keys) = subject.fold
    {
        cell.text = format!("{} keys, {}", keys.len(), cell.text);
    }
    cell
}

/// What may be shown, what matters most first. Of one server or database its name is no news.
fn candidates(app: &App, columns: usize) -> Vec<Column> {
    let has_servers = app.watched().len() > 1;
    let locks = app.watched().iter().flat_map(|watched| watched.server.locks.iter().flatten());
    let mut names = locks.map(|lock| &lock.datname);
    let has_databases = names.next().is_some_and(|first| names.any(|name| name != first));
    let wanted: &[Column] = match app.kind() {
        ViewKind::Locks => &[
            Column::Lock,
            Column::Server,
            Column::Application,
            Column::Held,
            Column::Findings,
            Column::Waiters,
            Column::Wait,
            Column::State,
            Column::Key,
            Column::Database,
            Column::Blocks,
            Column::Mode,
            Column::Holders,
            Column::Owner,
        ],
        ViewKind::Sessions => &[
            Column::Role,
            Column::Pid,
            Column::Server,
            Column::Application,
            Column::Lock,
            Column::Held,
            Column::Wait,
            Column::State,
            Column::Findings,
            Column::Root,
            Column::Client,
            Column::Scope,
            Column::Mode,
            Column::Key,
            Column::User,
            Column::Database,
            Column::Blocks,
        ],
        ViewKind::Tree => &[],
    };
    let is_any = |is_so: &dyn Fn(&Lock) -> bool| {
        let mut locks =
            app.watched().iter().flat_map(|watched| watched.server.locks.iter().flatten());
        locks.any(is_so)
    };
    #[expect(clippy::wildcard_enum_match_arm, reason = "these alone depend on what is there")]
    let is_wanted = |column: &Column| match column {
        Column::Server => has_servers,
        Column::Key => columns >= 100,
        // Nearly all are alike, and then a column of them says nothing.
        Column::Holders => is_any(&|lock| lock.holders.len() > 1),
        Column::Mode => is_any(&|lock| {
            let held = lock.holders.iter().map(|holder| &holder.mode);
            let mut modes = held.chain(lock.waiters.iter().map(|waiter| &waiter.mode));
            modes.any(|mode| *mode != Mode::Exclusive)
        }),
        Column::Database => has_databases || columns >= 160,
        Column::Owner => columns >= 160,
        Column::User => columns >= 140,
        _ => true,
    };
    wanted.iter().copied().filter(is_wanted).collect()
}

/// The least and the most columns of the terminal that one is worth.
fn bounds(app: &App, column: Column, columns: usize) -> (usize, usize) {
    // Which server it is costs room that others have to give.
    let is_tight = columns < 100 && app.watched().len() > 1;
    match column {
        Column::Application if is_tight => (10, 40),
        Column::Findings if is_tight => (12, 60),
        Column::Lock => (16, 40),
        // Wide enough for the name before the present one, where there is room.
        Column::Application if columns >= 100 => (18, 40),
        Column::Application => (12, 40),
        Column::Findings => (20, 60),
        Column::State => (7, 19),
        Column::Server => (20, 20),
        Column::Database | Column::User | Column::Owner => (8, 20),
        Column::Client => (9, 24),
        Column::Root => (9, 32),
        Column::Role => (6, 6),
        Column::Mode => (9, 10),
        Column::Scope => (7, 11),
        // A number that is cut is another number.
        Column::Key
        | Column::Held
        | Column::Wait
        | Column::Pid
        | Column::Holders
        | Column::Waiters
        | Column::Blocks => (usize::MAX, usize::MAX),
    }
}

/// Those that fit, in the order of the view. What nobody has anything to say in is left out; what is
/// left over goes to those whose texts are cut.
fn choose(app: &App, candidates: &[Column], cells: &[Vec<Cell>], columns: usize) -> Vec<Shown> {
    struct Choice {
        column: Column,
        title: String,
        taken: usize,
        wanted: usize,
    }
    let mut left = columns + GAP;
    let mut chosen: Vec<Choice> = Vec::new();
    for (place, column) in candidates.iter().copied().enumerate() {
        let sorted = app.sort().column == column && column != Column::Findings;
        let mark = match (sorted, app.sort().is_descending) {
            (false, _) => "",
            (true, true) => " v",
            (true, false) => " ^",
        };
        let title = format!("{}{mark}", column.title());
        let texts = cells.iter().filter_map(|row| row.get(place));
        let content = texts.map(|cell| width(&visible(&cell.text))).max().unwrap_or(0);
        if content == 0 && !sorted && !matches!(column, Column::Lock | Column::Findings) {
            continue;
        }
        let (least, most) = bounds(app, column, columns);
        let wanted = content.max(width(&title));
        let taken = wanted.min(most).min(least.max(width(&title)));
        if taken + GAP > left {
            continue;
        }
        left -= taken + GAP;
        chosen.push(Choice { column, title, taken, wanted });
    }
    // First up to what is usual, then whatever there is.
    for is_generous in [false, true] {
        for choice in &mut chosen {
            let most = if is_generous { usize::MAX } else { bounds(app, choice.column, columns).1 };
            let more = choice.wanted.min(most).saturating_sub(choice.taken).min(left);
            choice.taken += more;
            left -= more;
        }
    }
    let order = app.kind().columns();
    chosen.sort_by_key(|choice| order.iter().position(|column| *column == choice.column));
    let shown = |choice: Choice| Shown {
        column: choice.column,
        title: choice.title,
        columns: choice.taken,
    };
    chosen.into_iter().map(shown).collect()
}
