//! Patterns for names: `*` stands for any text, `?` for one character, all else for itself.
//!
//! Entries use them to say on which servers they apply. Two entries can only contradict each other
//! where some name matches both, so it is also told whether two patterns overlap.

use std::fmt::{self, Write as _};

/// A pattern that matches whole names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glob {
    tokens: Vec<Token>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Token {
    AnyText,
    AnyOne,
    One(char),
}

impl Glob {
    /// The pattern that a text stands for; every text is one.
    pub fn new(pattern: &str) -> Self {
        let token = |c| match c {
            '*' => Token::AnyText,
            '?' => Token::AnyOne,
            other => Token::One(other),
        };
        let mut tokens: Vec<Token> = pattern.chars().map(token).collect();
        tokens.dedup_by(|next, token| *next == Token::AnyText && *token == Token::AnyText);
        Self { tokens }
    }

    /// Whether it stands for the whole name.
    pub fn matches(&self, name: &str) -> bool {
        let (mut tokens, mut rest) = (self.tokens.as_slice(), name.chars());
        // Where to go on when the last star takes one character more.
        let mut retry: Option<(&[Token], std::str::Chars<'_>)> = None;
        loop {
            let mut after = rest.clone();
            match (tokens.split_first(), after.next()) {
                (None, None) => return true,
                (Some((Token::AnyText, others)), _) => {
                    retry = Some((others, rest.clone()));
                    tokens = others;
                }
                (Some((Token::AnyOne, others)), Some(_)) => (tokens, rest) = (others, after),
                (Some((Token::One(token), others)), Some(c)) if *token == c => {
                    (tokens, rest) = (others, after);
                }
                (None | Some((Token::AnyOne | Token::One(_), _)), _) => {
                    let Some((others, taken)) = &mut retry else { return false };
                    if taken.next().is_none() {
                        return false;
                    }
                    (tokens, rest) = (*others, taken.clone());
                }
            }
        }
    }

    /// Whether there is a name that both match.
    pub(super) fn overlaps(&self, other: &Glob) -> bool {
        // Most patterns are plain names, or differ before their first star.
        let plain =
            |(a, b): &(&Token, &Token)| matches!(a, Token::One(_)) && matches!(b, Token::One(_));
        let mut beginnings = self.tokens.iter().zip(&other.tokens).take_while(plain);
        if beginnings.any(|(a, b)| a != b) {
            return false;
        }
        // `reachable[j]`: some text is matched by the tokens of `self` so far and by the first `j`
        // tokens of `other`.
        let mut reachable = vec![false; other.tokens.len() + 1];
        reachable[0] = true;
        extend_by_any_text(&mut reachable, &other.tokens);
        for token in &self.tokens {
            let mut next = vec![false; reachable.len()];
            for (j, _) in reachable.iter().enumerate().filter(|(_, reachable)| **reachable) {
                match (token, other.tokens.get(j)) {
                    (Token::AnyText, _) => next[j..].fill(true),
                    (_, Some(Token::AnyText)) => next[j] = true,
                    (Token::AnyOne, Some(_)) | (_, Some(Token::AnyOne)) => next[j + 1] = true,
                    (Token::One(a), Some(Token::One(b))) if a == b => next[j + 1] = true,
                    (Token::One(_), Some(Token::One(_))) | (_, None) => {}
                }
            }
            extend_by_any_text(&mut next, &other.tokens);
            reachable = next;
        }
        reachable.last() == Some(&true)
    }
}

/// As it was written, runs of stars as one.
impl fmt::Display for Glob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens.iter().try_for_each(|token| {
            f.write_char(match token {
                Token::AnyText => '*',
                Token::AnyOne => '?',
                Token::One(letter) => *letter,
            })
        })
    }
}

/// A star may stand for nothing.
fn extend_by_any_text(reachable: &mut [bool], tokens: &[Token]) {
    for (j, token) in tokens.iter().enumerate() {
        if *token == Token::AnyText && reachable[j] {
            reachable[j + 1] = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_pattern_matches_whole_names() {
        let cases = [
            ("orders-*", "orders-primary", true),
            ("orders-*", "orders-", true),
            ("orders-*", "my-orders-1", false),
            ("*-eu", "orders-eu", true),
            ("*-eu", "orders-eu-2", false),
            ("db-?", "db-1", true),
            ("db-?", "db-12", false),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*", "", true),
            ("", "x", false),
            ("db.1", "db-1", false),
        ];
        for (pattern, name, matched) in cases {
            assert_eq!(Glob::new(pattern).matches(name), matched, "{pattern} {name}");
        }
    }

    #[test]
    fn patterns_overlap_where_one_name_matches_both() {
        let cases = [
            ("orders-*", "*-eu", true),
            ("orders-*", "billing-*", false),
            ("a*", "*b", true),
            ("a?", "a", false),
            ("a?", "?b", true),
            ("a*c", "ab*", true),
            ("a", "a", true),
            ("*", "", true),
            ("a*b", "c*b", false),
            ("?*", "", false),
        ];
        for (a, b, overlap) in cases {
            assert_eq!(Glob::new(a).overlaps(&Glob::new(b)), overlap, "{a} {b}");
            assert_eq!(Glob::new(b).overlaps(&Glob::new(a)), overlap, "{b} {a}");
        }
    }

    proptest! {
        #[test]
        fn a_name_is_a_pattern_without_stars(pattern in "[ab?*]{0,6}", name in "[ab]{0,6}") {
            let pattern = Glob::new(&pattern);
            prop_assert_eq!(pattern.matches(&name), pattern.overlaps(&Glob::new(&name)));
        }

        #[test]
        fn patterns_that_match_one_name_overlap(
            a in "[ab?*]{0,6}", b in "[ab?*]{0,6}", name in "[ab]{0,6}",
        ) {
            let (a, b) = (Glob::new(&a), Glob::new(&b));
            if a.matches(&name) && b.matches(&name) {
                prop_assert!(a.overlaps(&b));
                prop_assert!(b.overlaps(&a));
            }
        }
    }
}
