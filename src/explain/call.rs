//! SQL that takes or releases advisory locks: the keys that are written in it.
//!
//! For statements as `pg_stat_activity` and server logs show them. Only what the text itself says is
//! read: numbers, and the server's own hashes of quoted texts. Parameters, columns and other
//! expressions have their value elsewhere, and such a call has no key here.

use crate::key::Key;
use crate::registry::hash::{hashtext, hashtextextended};

/// A call and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// As it is written: `pg_try_advisory_lock(7, 9)`.
    pub(super) text: String,
    pub(super) key: Key,
}

/// Functions on one key. Longer names come before those that they begin with.
const FUNCTIONS: [&str; 10] = [
    "pg_try_advisory_xact_lock_shared",
    "pg_try_advisory_xact_lock",
    "pg_try_advisory_lock_shared",
    "pg_try_advisory_lock",
    "pg_advisory_xact_lock_shared",
    "pg_advisory_xact_lock",
    "pg_advisory_unlock_shared",
    "pg_advisory_unlock",
    "pg_advisory_lock_shared",
    "pg_advisory_lock",
];

/// Every call in the text whose key can be told, in order.
pub(super) fn parse_calls(text: &str) -> Vec<Call> {
    let lower = text.to_ascii_lowercase();
    let mut calls = Vec::new();
    let mut at = 0;
    while let Some(found) = lower[at..].find("pg_") {
        let start = at + found;
        at = start + "pg_".len();
        // Somebody's own function does something else.
        if lower[..start].ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let Some(function) = FUNCTIONS.iter().find(|name| lower[start..].starts_with(**name))
        else {
            continue;
        };
        let Some(arguments) = text[start + function.len()..].trim_start().strip_prefix('(') else {
            continue;
        };
        let Some((arguments, rest)) = split_arguments(arguments) else { continue };
        let Some(key) = key_of(&arguments) else { continue };
        at = text.len() - rest.len();
        calls.push(Call { text: text[start..at].to_owned(), key });
    }
    calls
}

fn key_of(arguments: &[&str]) -> Option<Key> {
    let half = |argument| i32::try_from(parse_value(argument)?).ok();
    match arguments {
        [one] => Some(Key::bigint(parse_value(one)?)),
        [first, second] => Some(Key::pair(half(first)?, half(second)?)),
        _ => None,
    }
}

/// The arguments up to the closing parenthesis, and what follows it.
fn split_arguments(text: &str) -> Option<(Vec<&str>, &str)> {
    let (mut depth, mut is_quoted, mut start) = (0_usize, false, 0);
    let mut arguments = Vec::new();
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'\'' => is_quoted = !is_quoted,
            _ if is_quoted => {}
            b'(' => depth += 1,
            b')' if depth > 0 => depth -= 1,
            b',' | b')' if depth == 0 => {
                arguments.push(text[start..at].trim());
                start = at + 1;
                if byte == b')' {
                    return Some((arguments, &text[start..]));
                }
            }
            _ => {}
        }
    }
    None
}

/// A number, plain, quoted or cast, or a hash that the server would compute of a quoted text.
fn parse_value(text: &str) -> Option<i64> {
    let text = match text.rsplit_once("::") {
        Some((value, cast)) if is_integer_type(cast) => value.trim(),
        Some(_) | None => text,
    };
    // As a cast needs them around a negative number.
    let bare = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(text);
    if let Some(number) = parse_number(parse_quoted(bare).as_deref().unwrap_or(bare)) {
        return Some(number);
    }
    let (function, arguments) = text.split_once('(')?;
    let (arguments, "") = split_arguments(arguments)? else { return None };
    match (function.to_ascii_lowercase().as_str(), arguments.as_slice()) {
        ("hashtext", [text]) => Some(hashtext(parse_text(text)?.as_bytes()).into()),
        ("hashtextextended", [text, seed]) => {
            Some(hashtextextended(parse_text(text)?.as_bytes(), parse_number(seed)?))
        }
        _ => None,
    }
}

fn parse_number(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    if !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    text.parse().ok()
}

/// A literal with or without `::text`.
fn parse_text(text: &str) -> Option<String> {
    let literal = match text.rsplit_once("::") {
        Some((value, cast)) if cast.trim().eq_ignore_ascii_case("text") => value.trim(),
        Some(_) | None => text,
    };
    parse_quoted(literal)
}

/// What stands between two quotes, where a doubled one stands for itself.
fn parse_quoted(text: &str) -> Option<String> {
    let inner = text.strip_prefix('\'')?.strip_suffix('\'')?;
    let single = inner.replace("''", "");
    (!single.contains('\'')).then(|| inner.replace("''", "'"))
}

fn is_integer_type(name: &str) -> bool {
    ["bigint", "int8", "integer", "int", "int4"]
        .iter()
        .any(|known| name.trim().eq_ignore_ascii_case(known))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn keys(text: &str) -> Vec<Key> {
        parse_calls(text).into_iter().map(|call| call.key).collect()
    }

    #[test]
    fn what_a_statement_locks_is_read() {
        for (text, key) in [
            ("SELECT pg_advisory_lock(42);", Key::bigint(42)),
            ("select pg_try_advisory_xact_lock_shared( 7 , -9 )", Key::pair(7, -9)),
            ("PG_ADVISORY_UNLOCK(-1)", Key::bigint(-1)),
            ("SELECT pg_catalog.pg_advisory_lock ((-5)::bigint)", Key::bigint(-5)),
            ("SELECT pg_advisory_lock('-9223372036854775808'::int8)", Key::bigint(i64::MIN)),
            // As the server computes them.
            ("SELECT pg_advisory_lock(hashtext('jobs'))", Key::bigint(-1_679_774_495)),
            (
                "SELECT pg_advisory_xact_lock(hashtextextended('jobs'::text, 0))",
                Key::bigint(7_259_640_204_928_003_297),
            ),
            (
                "SELECT pg_advisory_lock(hashtext('jobs')::int, hashtext('job:nightly'))",
                Key::pair(-1_679_774_495, 1_973_311_789),
            ),
        ] {
            assert_eq!(keys(text), [key], "{text}");
        }
        let two = "SELECT pg_try_advisory_lock(1) OR pg_try_advisory_lock(2)";
        assert_eq!(keys(two), [Key::bigint(1), Key::bigint(2)]);
        assert_eq!(parse_calls(two)[1].text, "pg_try_advisory_lock(2)");
    }

    #[test]
    fn what_has_its_value_elsewhere_has_no_key() {
        for text in [
            "SELECT pg_advisory_lock($1)",
            "SELECT pg_advisory_lock(id) FROM jobs",
            "SELECT pg_advisory_lock(1 + 1)",
            "SELECT pg_advisory_lock(hashtext('a' || 'b'))",
            "SELECT pg_advisory_lock(hashtext(name))",
            "SELECT pg_advisory_lock(5000000000, 1)",
            "SELECT pg_advisory_lock(99999999999999999999)",
            "SELECT pg_advisory_lock(1, 2, 3)",
            "SELECT pg_advisory_lock(",
            "SELECT pg_advisory_lock('",
            "SELECT pg_advisory_unlock_all()",
            "SELECT my_pg_advisory_lock(1)",
            "pg_advisory_locks(1)",
        ] {
            assert_eq!(keys(text), [], "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read(text: String, inside: String) {
            parse_calls(&text);
            parse_calls(&format!("pg_advisory_lock({inside})"));
        }

        #[test]
        fn every_number_is_read_back(key: i64, first: i32, second: i32) {
            prop_assert_eq!(keys(&format!("pg_advisory_lock({key})")), [Key::bigint(key)]);
            let pair = format!("pg_advisory_lock({first}, {second})");
            prop_assert_eq!(keys(&pair), [Key::pair(first, second)]);
        }
    }
}
