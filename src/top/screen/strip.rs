//! The last lines: what is worst about the selected row and what may be done about it, without a key
//! pressed; then which keys there are, or what a key did.

use super::wrap_all;
use crate::printable::width;
use crate::snapshot::Holder;
use crate::table::column::{Cell, Subject, Tone, application, render_held, title};
use crate::table::row::What;
use crate::table::tell;
use crate::top::app::{App, Screen};

/// So many lines at most.
const MOST: usize = 5;

/// What is worst about the selected row, or else who holds it; in so many lines at most.
pub fn lines(app: &App, columns: u16, most: usize) -> Vec<Vec<Cell>> {
    let Some(row) = app.selected() else { return Vec::new() };
    let (most, columns) = (most.min(MOST), usize::from(columns));
    let Some(finding) = app.remedy() else {
        let subject = Subject::of(&row.place, app.watched());
        return cut(
            wrap_all(&subject.as_ref().map(calm).into_iter().collect::<Vec<_>>(), columns),
            most,
        );
    };
    let [seen, remedy] = tell::finding(finding).map(|cell| wrap_all(&[cell], columns));
    // What is safe to do is not what gives way.
    let of_remedy = remedy.len().min(most.saturating_sub(seen.len()).max(most.div_ceil(2)));
    let mut lines = cut(seen, most - of_remedy);
    lines.extend(cut(remedy, of_remedy));
    lines
}

/// The first lines, with a sign that there are more: Enter shows all of them.
pub fn cut(mut lines: Vec<Vec<Cell>>, most: usize) -> Vec<Vec<Cell>> {
    if lines.len() > most {
        // The last of them goes on past its end, where it is cut and marked.
        let rest = lines.split_off(most.saturating_sub(1));
        let mut cells = rest.into_iter().flatten();
        if most > 0
            && let Some(mut last) = cells.next()
        {
            for cell in cells {
                last.text.push(' ');
                last.text.push_str(&cell.text);
            }
            lines.push(vec![last]);
        }
    }
    lines
}

/// Nothing is wrong, as far as that can be told.
fn calm(subject: &Subject<'_>) -> Cell {
    let lock = subject.lock;
    let text = match (&lock.holders[..], subject.fold) {
        (_, Some(keys)) => {
            let holder = lock.holders.first();
            let name = holder.and_then(|holder| holder.session.application_name.as_deref());
            format!("{} keys, each held by {}; Enter shows them", keys.len(), application(name))
        }
        ([], None) => format!("nobody holds {}", title(lock)),
        ([holder], None) => format!(
            "{} is held by {} for {}; nothing is said of it",
            title(lock),
            match holder.pid {
                Some(pid) => format!(
                    "session {} ({})",
                    pid.0,
                    application(holder.session.application_name.as_deref())
                ),
                None => render_prepared(holder),
            },
            render_held(holder),
        ),
        (holders, None) => {
            format!("{} is held by {} sessions; nothing is said of it", title(lock), holders.len())
        }
    };
    Cell { text, tone: Tone::Dim }
}

fn render_prepared(holder: &Holder) -> String {
    match holder.prepared.as_ref().and_then(|prepared| prepared.gid.as_deref()) {
        Some(gid) => format!("the prepared transaction {gid}"),
        None => "a prepared transaction".to_owned(),
    }
}

/// What a key did, what is being typed, or which keys there are.
pub fn footer(app: &App, columns: u16) -> Vec<Cell> {
    if let Some(notice) = app.notice() {
        let tone = if notice.is_error { Tone::Critical } else { Tone::Plain };
        return vec![Cell { text: notice.text.clone(), tone }];
    }
    let act = app.options().may_act;
    let is_fold = app.selected().is_some_and(|row| matches!(row.place.what, What::Fold(_)));
    let keys: &[&str] = match app.screen() {
        Screen::Filter(_) => {
            let typed = Cell { text: format!("/{}_", app.filter().text()), tone: Tone::Plain };
            return vec![
                typed,
                Cell { text: "Enter keeps it, Esc takes it back".to_owned(), tone: Tone::Dim },
            ];
        }
        Screen::View if is_fold => {
            &["Enter unfold", "q quit", "? help", "/ filter", "s sort", "Tab view", "y copy remedy"]
        }
        Screen::View if act => &[
            "Enter detail",
            "C cancel",
            "K end",
            "q quit",
            "? help",
            "/ filter",
            "Tab view",
            "y copy remedy",
            "s sort",
            "Space pause",
        ],
        Screen::View => &[
            "Enter detail",
            "q quit",
            "? help",
            "/ filter",
            "Tab view",
            "y copy remedy",
            "s sort",
            "Space pause",
            "+/- interval",
            "r refresh",
        ],
        Screen::Detail(_) if act => {
            &["Esc back", "C cancel", "K end", "y copy remedy", "arrows scroll", "? help"]
        }
        Screen::Detail(_) => &["Esc back", "y copy remedy", "arrows scroll", "? help"],
        Screen::Help(_) => &["Esc back", "arrows scroll"],
        Screen::Sort(_) => &["Enter sort", "arrows choose", "I turn round", "Esc back"],
        Screen::Confirm(_) => &["y does it", "any other key does not"],
    };
    let mut left = usize::from(columns);
    let fits = |key: &&&str| {
        let needed = width(key) + 2;
        let fits = needed <= left + 2;
        left = left.saturating_sub(needed);
        fits
    };
    let shown = keys.iter().take_while(fits);
    shown.map(|key| Cell { text: (*key).to_owned(), tone: Tone::Dim }).collect()
}
