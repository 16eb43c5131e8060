//! What a key means: key and mode → action.
//!
//! One table for each mode, after the habits of htop and pg_activity. Pure: what an action does is
//! `app`'s business. `K` ends a session and `k` goes up, as in pg_activity; `h` is help, as in htop,
//! and not a movement.

#![expect(clippy::wildcard_enum_match_arm, reason = "most keys mean nothing")]

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use crate::table::column::{Direction, ViewKind};

/// What keys are for at the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// A view is shown.
    Browse,
    /// What is to be known of the selected row is shown.
    Detail,
    /// The help is shown.
    Help,
    /// The filter is being typed.
    Filter,
    /// A column is being chosen to sort by.
    Sort,
    /// A question waits for its answer.
    Confirm,
}

/// What somebody wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Leave the program.
    Quit,
    /// Leave what is open: a pane, else the filter, else the program.
    Close,
    /// Open what is selected, or take what was typed.
    Enter,
    /// Show the help.
    Help,
    /// Show a view.
    Show(ViewKind),
    /// Show the next view, or the one before.
    Cycle(Direction),
    /// Go somewhere else in what is shown.
    Move(Motion),
    /// Show the keys that are folded into one line.
    Unfold,
    /// Fold them again.
    Fold,
    /// Type a filter.
    Filter,
    /// Choose a column to sort by.
    Sort,
    /// Sort by the next column, or the one before.
    SortBy(Direction),
    /// Sort the other way round.
    Invert,
    /// Stop looking, or go on.
    Pause,
    /// Look more often.
    Faster,
    /// Look less often.
    Slower,
    /// Look now.
    Refresh,
    /// Put the remedy into the clipboard.
    Copy,
    /// Ask whether to cancel the statement of the selected session.
    Cancel,
    /// Ask whether to end the selected session.
    Terminate,
    /// Answer the question with yes.
    Agree,
    /// Change what is typed.
    Edit(Edit),
    /// Stop the program for the shell.
    Suspend,
    /// Draw everything anew.
    Redraw,
}

/// A movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Motion {
    /// A line.
    Up,
    /// A line.
    Down,
    /// A screen.
    PageUp,
    /// A screen.
    PageDown,
    /// To the first line.
    First,
    /// To the last line.
    Last,
}

/// A change of a text that is being typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edit {
    /// A character.
    Insert(char),
    /// Take the last character away.
    Backspace,
    /// Take the last word away.
    Word,
    /// Take all of it away.
    Clear,
}

/// What a key means; `None` for one that means nothing.
pub fn parse_key(key: KeyEvent, mode: Mode) -> Option<Action> {
    if key.kind == KeyEventKind::Release {
        return None;
    }
    // Nothing is bound to it, and Esc with a key right after it looks the same.
    if key.modifiers.contains(KeyModifiers::ALT) {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return parse_control(key.code, mode);
    }
    match mode {
        Mode::Browse => parse_browse(key.code),
        Mode::Detail => parse_detail(key.code),
        Mode::Help => parse_help(key.code),
        Mode::Filter => parse_filter(key.code),
        Mode::Sort => parse_sort(key.code),
        Mode::Confirm => Some(parse_confirm(key.code)),
    }
}

/// The same wherever one is.
const fn parse_control(code: KeyCode, mode: Mode) -> Option<Action> {
    match (code, mode) {
        (KeyCode::Char('c'), _) => Some(Action::Quit),
        (KeyCode::Char('z'), _) => Some(Action::Suspend),
        (KeyCode::Char('l'), _) => Some(Action::Redraw),
        (KeyCode::Char('u'), Mode::Filter) => Some(Action::Edit(Edit::Clear)),
        (KeyCode::Char('w'), Mode::Filter) => Some(Action::Edit(Edit::Word)),
        (KeyCode::Char('h'), Mode::Filter) => Some(Action::Edit(Edit::Backspace)),
        (KeyCode::Char('f'), _) => Some(Action::Move(Motion::PageDown)),
        (KeyCode::Char('b'), _) => Some(Action::Move(Motion::PageUp)),
        (_, _) => None,
    }
}

fn parse_browse(code: KeyCode) -> Option<Action> {
    parse_act(code).or_else(|| parse_motion(code)).or(match code {
        KeyCode::Char('q') | KeyCode::F(10) => Some(Action::Quit),
        KeyCode::Esc => Some(Action::Close),
        KeyCode::Enter => Some(Action::Enter),
        KeyCode::Right | KeyCode::Char('l') => Some(Action::Unfold),
        KeyCode::Left => Some(Action::Fold),
        KeyCode::Char('/') | KeyCode::F(4) => Some(Action::Filter),
        KeyCode::Char('s') | KeyCode::F(6) => Some(Action::Sort),
        KeyCode::Char('>') => Some(Action::SortBy(Direction::Next)),
        KeyCode::Char('<') => Some(Action::SortBy(Direction::Previous)),
        KeyCode::Char('I') => Some(Action::Invert),
        _ => None,
    })
}

fn parse_detail(code: KeyCode) -> Option<Action> {
    parse_act(code).or_else(|| parse_motion(code)).or(match code {
        KeyCode::Char('q') | KeyCode::Esc | KeyCode::Enter | KeyCode::Left => Some(Action::Close),
        _ => None,
    })
}

fn parse_help(code: KeyCode) -> Option<Action> {
    parse_motion(code).or(match code {
        KeyCode::Char('q' | '?' | 'h') | KeyCode::Esc | KeyCode::Enter | KeyCode::F(1) => {
            Some(Action::Close)
        }
        _ => None,
    })
}

const fn parse_filter(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Char(c) => Some(Action::Edit(Edit::Insert(c))),
        KeyCode::Backspace => Some(Action::Edit(Edit::Backspace)),
        KeyCode::Enter => Some(Action::Enter),
        KeyCode::Esc => Some(Action::Close),
        KeyCode::Up => Some(Action::Move(Motion::Up)),
        KeyCode::Down => Some(Action::Move(Motion::Down)),
        KeyCode::PageUp => Some(Action::Move(Motion::PageUp)),
        KeyCode::PageDown => Some(Action::Move(Motion::PageDown)),
        _ => None,
    }
}

fn parse_sort(code: KeyCode) -> Option<Action> {
    parse_motion(code).or(match code {
        KeyCode::Enter => Some(Action::Enter),
        KeyCode::Char('I') => Some(Action::Invert),
        KeyCode::Char('q' | 's') | KeyCode::Esc | KeyCode::Left | KeyCode::F(6) => {
            Some(Action::Close)
        }
        _ => None,
    })
}

/// Only one key agrees: whoever types something else meant something else.
const fn parse_confirm(code: KeyCode) -> Action {
    match code {
        KeyCode::Char('y') => Action::Agree,
        _ => Action::Close,
    }
}

/// What works wherever rows or one of them are shown.
const fn parse_act(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Char('?' | 'h') | KeyCode::F(1) => Some(Action::Help),
        KeyCode::Char('1') => Some(Action::Show(ViewKind::Locks)),
        KeyCode::Char('2') => Some(Action::Show(ViewKind::Sessions)),
        KeyCode::Char('3') => Some(Action::Show(ViewKind::Tree)),
        KeyCode::Tab => Some(Action::Cycle(Direction::Next)),
        KeyCode::BackTab => Some(Action::Cycle(Direction::Previous)),
        KeyCode::Char(' ' | 'p') => Some(Action::Pause),
        KeyCode::Char('+' | '=') => Some(Action::Slower),
        KeyCode::Char('-') => Some(Action::Faster),
        KeyCode::Char('r') | KeyCode::F(5) => Some(Action::Refresh),
        KeyCode::Char('y') => Some(Action::Copy),
        KeyCode::Char('C') => Some(Action::Cancel),
        KeyCode::Char('K') => Some(Action::Terminate),
        _ => None,
    }
}

const fn parse_motion(code: KeyCode) -> Option<Action> {
    match code {
        KeyCode::Up | KeyCode::Char('k') => Some(Action::Move(Motion::Up)),
        KeyCode::Down | KeyCode::Char('j') => Some(Action::Move(Motion::Down)),
        KeyCode::PageUp => Some(Action::Move(Motion::PageUp)),
        KeyCode::PageDown => Some(Action::Move(Motion::PageDown)),
        KeyCode::Home | KeyCode::Char('g') => Some(Action::Move(Motion::First)),
        KeyCode::End | KeyCode::Char('G') => Some(Action::Move(Motion::Last)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [Mode; 6] =
        [Mode::Browse, Mode::Detail, Mode::Help, Mode::Filter, Mode::Sort, Mode::Confirm];

    fn press(code: KeyCode, mode: Mode) -> Option<Action> {
        parse_key(KeyEvent::new(code, KeyModifiers::NONE), mode)
    }

    fn press_control(c: char, mode: Mode) -> Option<Action> {
        parse_key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL), mode)
    }

    #[test]
    fn the_habits_of_htop_and_pg_activity_work() {
        for (keys, action) in [
            ("q", Action::Quit),
            ("?h", Action::Help),
            ("j", Action::Move(Motion::Down)),
            ("k", Action::Move(Motion::Up)),
            ("g", Action::Move(Motion::First)),
            ("G", Action::Move(Motion::Last)),
            ("/", Action::Filter),
            ("s", Action::Sort),
            (">", Action::SortBy(Direction::Next)),
            ("<", Action::SortBy(Direction::Previous)),
            ("I", Action::Invert),
            (" p", Action::Pause),
            ("+", Action::Slower),
            ("-", Action::Faster),
            ("r", Action::Refresh),
            ("y", Action::Copy),
            ("C", Action::Cancel),
            ("K", Action::Terminate),
            ("1", Action::Show(ViewKind::Locks)),
            ("2", Action::Show(ViewKind::Sessions)),
            ("3", Action::Show(ViewKind::Tree)),
        ] {
            for key in keys.chars() {
                assert_eq!(press(KeyCode::Char(key), Mode::Browse), Some(action), "{key}");
            }
        }
    }

    #[test]
    fn control_c_leaves_and_control_z_stops_wherever_one_is() {
        for mode in MODES {
            assert_eq!(press_control('c', mode), Some(Action::Quit), "{mode:?}");
            assert_eq!(press_control('z', mode), Some(Action::Suspend), "{mode:?}");
        }
    }

    #[test]
    fn escape_closes_what_is_open_wherever_one_is() {
        for mode in MODES {
            assert_eq!(press(KeyCode::Esc, mode), Some(Action::Close), "{mode:?}");
        }
    }

    #[test]
    fn nothing_but_a_y_agrees_and_no_key_that_acts_passes_through_a_question() {
        for c in (' '..='~').chain(['é', 'Y']) {
            let action = press(KeyCode::Char(c), Mode::Confirm);
            let expected = if c == 'y' { Action::Agree } else { Action::Close };
            assert_eq!(action, Some(expected), "{c}");
        }
        assert_eq!(press(KeyCode::Enter, Mode::Confirm), Some(Action::Close));
    }

    #[test]
    fn every_character_can_be_typed_into_a_filter() {
        for c in ('!'..='~').chain([' ', 'é', '鍵']) {
            let action = Some(Action::Edit(Edit::Insert(c)));
            assert_eq!(press(KeyCode::Char(c), Mode::Filter), action, "{c}");
        }
        assert_eq!(press_control('u', Mode::Filter), Some(Action::Edit(Edit::Clear)));
    }

    #[test]
    fn a_key_with_alt_means_nothing() {
        let key = KeyEvent::new(KeyCode::Char('K'), KeyModifiers::ALT | KeyModifiers::SHIFT);
        assert!(MODES.into_iter().all(|mode| parse_key(key, mode).is_none()));
    }

    #[test]
    fn a_key_that_is_let_go_means_nothing() {
        let mut key = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(parse_key(key, Mode::Browse), None);
    }
}
