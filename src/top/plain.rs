//! Rows of cells → a table for pipes: aligned, nothing cut off, no escapes.
//!
//! Pure. Whatever texts of others hold, a row stays one line, and its columns stay where they are.

use crate::printable::{visible, width};

/// A column of a plain table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Heading {
    /// What stands above it.
    pub title: String,
    /// Its cells end at the same column.
    pub is_number: bool,
}

/// The table as text; without its headings where a script knows them.
pub fn render(headings: &[Heading], rows: &[Vec<String>], has_headings: bool) -> String {
    let titles: Vec<String> = headings.iter().map(|heading| heading.title.clone()).collect();
    let all: Vec<Vec<String>> = has_headings
        .then_some(&titles)
        .into_iter()
        .chain(rows)
        .map(|cells| cells.iter().map(|cell| visible(cell).into_owned()).collect())
        .collect();
    let widths: Vec<usize> = (0..headings.len())
        .map(|column| {
            all.iter().filter_map(|cells| cells.get(column)).map(|cell| width(cell)).max()
        })
        .map(Option::unwrap_or_default)
        .collect();
    let mut text = String::new();
    for cells in &all {
        let mut line = String::new();
        for ((cell, heading), columns) in cells.iter().zip(headings).zip(&widths) {
            let blank = " ".repeat(columns.saturating_sub(width(cell)));
            if heading.is_number {
                line.push_str(&blank);
                line.push_str(cell);
            } else {
                line.push_str(cell);
                line.push_str(&blank);
            }
            line.push_str("  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headings() -> [Heading; 3] {
        [("LOCK", false), ("HELD", true), ("HELD BY", false)]
            .map(|(title, is_number)| Heading { title: title.to_owned(), is_number })
    }

    fn row(cells: [&str; 3]) -> Vec<String> {
        cells.map(str::to_owned).to_vec()
    }

    #[test]
    fn columns_stand_under_each_other_and_nothing_is_cut_off() {
        let rows = [row(["report", "5m12s", "billing"]), row(["鍵", "1.2s", ""])];
        let table = "LOCK     HELD  HELD BY\nreport  5m12s  billing\n鍵       1.2s\n";
        assert_eq!(render(&headings(), &rows, true), table);
        let long = "x".repeat(300);
        assert!(render(&headings(), &[row([&long, "", ""])], true).contains(&long));
    }

    #[test]
    fn a_script_that_knows_the_headings_gets_rows_alone() {
        assert_eq!(render(&headings(), &[row(["a", "1s", "b"])], false), "a  1s  b\n");
        assert_eq!(render(&headings(), &[], false), "");
    }

    #[test]
    fn texts_of_others_stay_in_their_line_and_move_no_cursor() {
        let table = render(&headings(), &[row(["a\nb", "", "\x1b[31mred"])], false);
        assert_eq!(table, "a\\nb    \\u{1b}[31mred\n");
    }
}
