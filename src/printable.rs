//! Texts of others on a terminal: whatever programs call themselves, it stays one line of text in the
//! columns that it was given.
//!
//! Pure. Control characters, what turns the direction of text, and what is not seen are written as
//! escapes; width is counted in columns, as terminals do.

use std::borrow::Cow;

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The same text with everything in it to be seen.
pub fn visible(text: &str) -> Cow<'_, str> {
    if text.chars().all(is_plain) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if is_plain(c) {
            line.push(c);
        } else {
            line.extend(c.escape_default());
        }
    }
    Cow::Owned(line)
}

/// The columns that a visible text takes.
pub fn width(text: &str) -> usize {
    text.width()
}

/// A visible text in so many columns at most; what is cut off is marked.
pub fn fit(text: &str, columns: usize) -> Cow<'_, str> {
    if width(text) <= columns {
        return Cow::Borrowed(text);
    }
    let mut kept = String::new();
    let mut left = columns.saturating_sub(1);
    for c in text.chars() {
        let taken = c.width().unwrap_or(0);
        if taken > left {
            break;
        }
        left -= taken;
        kept.push(c);
    }
    if columns > 0 {
        kept.push('…');
    }
    Cow::Owned(kept)
}

fn is_plain(c: char) -> bool {
    !c.is_control() && !turns_text(c)
}

/// Breaks lines, or the direction of what follows, or is not seen, though it is no control character.
const fn turns_text(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_or_turns_text_is_written_as_an_escape() {
        for (text, shown) in [
            ("billing", "billing"),
            ("größe 鍵", "größe 鍵"),
            ("a\x1b[2Jb", "a\\u{1b}[2Jb"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u{202e}gnillib", "\\u{202e}gnillib"),
            ("a\u{200b}b", "a\\u{200b}b"),
            ("\u{9b}31m", "\\u{9b}31m"),
        ] {
            assert_eq!(visible(text), shown);
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_between_characters_and_marked() {
        for (text, columns, shown) in [
            ("billing", 7, "billing"),
            ("billing", 4, "bil…"),
            ("billing", 1, "…"),
            ("billing", 0, ""),
            ("鍵鍵鍵", 6, "鍵鍵鍵"),
            ("鍵鍵鍵", 5, "鍵鍵…"),
            ("鍵鍵鍵", 4, "鍵…"),
        ] {
            assert_eq!(fit(text, columns), shown, "{columns}");
            assert!(width(&fit(text, columns)) <= columns);
        }
    }
}
