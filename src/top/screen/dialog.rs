//! What lies over the view: the help, the choice of a column, a question.

use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::widgets::{Block, Clear, Widget as _};

use super::palette::Palette;
use super::strip::cut;
use super::{put_lines, wrap_all};
use crate::printable::width;
use crate::table::column::{Cell, Tone};
use crate::top::action::Question;
use crate::top::app::App;

/// Keys and what they do.
const KEYS: [(&str, &str); 13] = [
    ("1 2 3, Tab", "Locks, Sessions, Tree"),
    ("arrows, j k", "move; PgUp PgDn, g G: a page, the ends"),
    ("Enter", "everything about the row; unfold many keys"),
    ("→ l, ←", "unfold, fold the keys of a line"),
    ("/", "filter: words, app: pid: lock: key: db: state: finding:, !word"),
    ("s, < >, I", "sort: choose, by the column beside, the other way round"),
    ("y", "copy the remedy into the terminal's clipboard (OSC 52)"),
    ("Space, p", "pause: the server is not asked, the picture stays"),
    ("+ -", "look less often, more often"),
    ("r", "look now"),
    ("C, K", "cancel the statement, end the session (--allow-kill)"),
    ("q, Esc", "leave; Esc closes what is open first"),
    ("Ctrl-Z, Ctrl-L", "stop for the shell, draw anew"),
];

/// Signs and what they mean.
const SIGNS: [(&str, &str); 8] = [
    ("12s", "its beginning is known"),
    ("≥ 12s", "seen held at every poll for 12s; it may be more"),
    ("?", "not known"),
    ("a (was b)", "called b when first seen with the lock, a now: pooled?"),
    ("!stuck", "critical; without the sign a warning"),
    ("unregistered", "the registry has no name for the key"),
    ("queued behind", "waits for one who waits too, ahead in the queue"),
    ("in a circle", "waits for one who waits for it"),
];

/// So wide, keys and signs are beside each other.
const BESIDE: usize = 150;

/// All lines of the help.
pub fn help(app: &App, columns: usize) -> Vec<Vec<Cell>> {
    let plain = |text: String| Cell { text, tone: Tone::Plain };
    let acting = if app.options().may_act {
        "Sessions may be cancelled and ended, after a question that names them."
    } else {
        "Nobody can be cancelled or ended from here: that takes --allow-kill."
    };
    let entry = |(key, text): &(&str, &str)| format!("{key:<15} {text}");
    let keys = KEYS.iter().map(entry);
    let signs = SIGNS.iter().map(entry);
    let mut cells =
        vec![plain("locks top: who holds which lock, who waits, who is at the root".into())];
    cells.push(plain(String::new()));
    if columns < BESIDE {
        cells.extend(keys.map(plain));
        cells.push(plain(String::new()));
        cells.extend(signs.map(plain));
    } else {
        let left = keys.clone().map(|text| width(&text)).max().unwrap_or(0) + 2;
        let signs = signs.map(Some).chain(std::iter::repeat(None));
        cells.extend(keys.zip(signs).map(|(key, sign)| match sign {
            Some(sign) => plain(format!("{key}{}{sign}", " ".repeat(left - width(&key)))),
            None => plain(key),
        }));
    }
    cells.push(plain(String::new()));
    cells.push(plain(acting.to_owned()));
    cells.push(plain("Flags, scripts and exit codes: locks top --help, locks man".to_owned()));
    wrap_all(&cells, columns)
}

/// The columns to sort by, the chosen one marked.
pub fn render_sort(app: &App, chosen: usize, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    let columns = app.kind().columns();
    let cells: Vec<Cell> = columns
        .iter()
        .enumerate()
        .map(|(index, column)| {
            let mark = if index == chosen { "> " } else { "  " };
            Cell { text: format!("{mark}{}", column.name()), tone: Tone::Plain }
        })
        .collect();
    // On a small screen the chosen one stays in sight.
    let inside = usize::from(area.height.saturating_sub(2)).max(1);
    let from = (chosen + 1).saturating_sub(inside);
    let lines: Vec<Vec<Cell>> = cells.into_iter().skip(from).map(|cell| vec![cell]).collect();
    render_box("Sort by", &lines, 20, palette, area, buffer);
}

/// A question with what has to be known, and how it is answered.
pub fn render_question(question: &Question, palette: &Palette, area: Rect, buffer: &mut Buffer) {
    const COLUMNS: u16 = 76;
    let inside = usize::from(area.width.min(COLUMNS).saturating_sub(2));
    let title = Cell { text: question.title(), tone: Tone::Critical };
    let mut lines = wrap_all(&[title], inside);
    let answer = Cell { text: "y does it, any other key does not".to_owned(), tone: Tone::Plain };
    let answer = wrap_all(&[answer], inside);
    let told = question.lines().iter();
    let told: Vec<Cell> =
        told.map(|(tone, text)| Cell { text: text.clone(), tone: *tone }).collect();
    // The question and how to answer it come before what has to be known.
    let room = usize::from(area.height).saturating_sub(2 + lines.len() + answer.len());
    lines.extend(cut(wrap_all(&told, inside), room));
    lines.extend(answer);
    render_box("", &lines, COLUMNS, palette, area, buffer);
}

/// Lines in a box in the middle.
fn render_box(
    title: &str,
    lines: &[Vec<Cell>],
    columns: u16,
    palette: &Palette,
    area: Rect,
    buffer: &mut Buffer,
) {
    let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).saturating_add(2).min(area.height);
    let columns = columns.min(area.width);
    let place = Rect {
        x: area.x + (area.width - columns) / 2,
        y: area.y + (area.height - height) / 2,
        width: columns,
        height,
    };
    let frame = Block::bordered().title(title.to_owned());
    let inside = frame.inner(place);
    Clear.render(place, buffer);
    frame.render(place, buffer);
    put_lines(lines, palette, inside, buffer);
}
