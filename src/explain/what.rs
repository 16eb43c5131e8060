//! What was asked: one argument as a key, as log text, or as the text that a key is made from.
//!
//! Every form in which keys are met is read here: as applications, `pg_locks`, server logs and this
//! program itself write them. SQL is read in `call`. Whatever is none of these is a text to be hashed.

use crate::explain::call::parse_calls;
use crate::explain::log::{TOKEN, Token, parse_token};
use crate::key::Key;

/// One argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A key.
    Key(Asked),
    /// Text that an application may make a key of.
    Text(String),
    /// Log text with advisory locks in it.
    Log(String),
    /// `-`: log text on standard input.
    Input,
}

/// A key as it was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) key: Key,
    /// Where it was given: the OID in a log, 0 for the whole server.
    pub(super) database: Option<u32>,
    /// How the number was read when it is not as it was written.
    pub(super) reading: Option<String>,
}

/// All arguments. Several that make sense only together are one: a shell takes
/// `advisory lock [16384,0,42,1]` apart.
pub(super) fn parse_whats(arguments: &[String], as_text: bool) -> Vec<What> {
    if as_text {
        return arguments.iter().cloned().map(What::Text).collect();
    }
    if arguments.len() > 1
        && !arguments.iter().any(|argument| parse_key(argument).is_some())
        && let Some(asked) = parse_key(&arguments.join(" "))
    {
        return vec![What::Key(asked)];
    }
    if let [words @ .., last] = arguments
        && words.iter().map(String::as_str).eq(["advisory", "lock"])
        && let Some(asked) = parse_key(last)
    {
        return vec![What::Key(asked)];
    }
    arguments.iter().flat_map(|argument| parse_what(argument)).collect()
}

/// One, or a key for each call in a statement.
fn parse_what(argument: &str) -> Vec<What> {
    if argument == "-" {
        return vec![What::Input];
    }
    if let Some(asked) = parse_key(argument) {
        return vec![What::Key(asked)];
    }
    if memchr::memmem::find(argument.as_bytes(), TOKEN).is_some() {
        return vec![What::Log(argument.to_owned())];
    }
    let calls = parse_calls(argument).into_iter().map(|call| {
        let reading = Some(format!("the key of {}", call.text));
        What::Key(Asked { key: call.key, database: None, reading })
    });
    let calls: Vec<What> = calls.collect();
    if calls.is_empty() { vec![What::Text(argument.to_owned())] } else { calls }
}

fn parse_key(argument: &str) -> Option<Asked> {
    let text = argument.trim();
    let plain = |key| Asked { key, database: None, reading: None };
    if let Ok(key) = text.parse() {
        return Some(plain(key));
    }
    parse_number(text)
        .or_else(|| parse_log_form(text))
        .or_else(|| parse_columns(text).map(plain))
        .or_else(|| parse_pair(text))
}

/// What `Key` does not read as a bigint: hexadecimal, and unsigned numbers beyond the largest.
fn parse_number(text: &str) -> Option<Asked> {
    let word = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) if !digits.starts_with('+') => u64::from_str_radix(digits, 16).ok()?,
        Some(_) => return None,
        None => text.parse().ok()?,
    };
    let key = Key::bigint(word.cast_signed());
    let reading = i64::try_from(word).is_err().then(|| {
        format!("{text} is above the largest bigint: read as unsigned, its signed form is {key}")
    });
    Some(Asked { key, database: None, reading })
}

/// `advisory lock [16384,10,4294967294,2]`, or the brackets alone.
fn parse_log_form(text: &str) -> Option<Asked> {
    let words = if text.starts_with('[') { "advisory lock " } else { "" };
    let text =
        format!("{words}{}", text.replace(' ', "").replace("advisorylock", "advisory lock "));
    match parse_token(text.as_bytes()) {
        Token::Lock { len, database, key } if len == text.len() => {
            Some(Asked { key, database: Some(database), reading: None })
        }
        Token::Lock { .. } | Token::Cut | Token::None => None,
    }
}

/// `classid/objid/objsubid`
fn parse_columns(text: &str) -> Option<Key> {
    let mut columns = text.split('/').map(str::trim);
    let (classid, objid, objsubid) = (columns.next()?, columns.next()?, columns.next()?);
    let unsigned = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if columns.next().is_some() || ![classid, objid, objsubid].into_iter().all(unsigned) {
        return None;
    }
    Some(Key::from_columns(classid.parse().ok()?, objid.parse().ok()?, objsubid.parse().ok()?))
}

/// `7,9`, and halves that are written unsigned.
fn parse_pair(text: &str) -> Option<Asked> {
    let inner = text.strip_prefix('(').and_then(|rest| rest.strip_suffix(')')).unwrap_or(text);
    let (first, second) = inner.split_once(',')?;
    let half = |text: &str| -> Option<(i32, bool)> {
        let value: i64 = text.trim().parse().ok()?;
        match i32::try_from(value) {
            Ok(half) => Some((half, false)),
            Err(_) => Some((u32::try_from(value).ok()?.cast_signed(), true)),
        }
    };
    let ((first, first_unsigned), (second, second_unsigned)) = (half(first)?, half(second)?);
    let key = Key::pair(first, second);
    let reading = (first_unsigned || second_unsigned).then(|| {
        format!("a half of {text} is above the largest int4: read as unsigned, the pair is {key}")
    });
    Some(Asked { key, database: None, reading })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whats(arguments: &[&str]) -> Vec<What> {
        let arguments: Vec<String> = arguments.iter().map(|text| (*text).to_owned()).collect();
        parse_whats(&arguments, false)
    }

    fn asked(text: &str) -> Asked {
        match whats(&[text]).as_slice() {
            [What::Key(asked)] => asked.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn every_form_in_which_keys_are_met_is_read() {
        for (text, key) in [
            ("42", Key::bigint(42)),
            ("-1", Key::bigint(-1)),
            ("-9223372036854775808", Key::bigint(i64::MIN)),
            ("0xff", Key::bigint(255)),
            ("(7,9)", Key::pair(7, 9)),
            ("7,9", Key::pair(7, 9)),
            ("7, -9", Key::pair(7, -9)),
            ("18028/1462734915/1", Key::bigint(77_431_133_147_203)),
            ("0/102747/5", Key::from_columns(0, 102_747, 5)),
            ("class 5: 0/102747", Key::from_columns(0, 102_747, 5)),
            ("advisory lock [16384,10,4294967294,2]", Key::pair(10, -2)),
            ("[0,10,4294967294,2]", Key::pair(10, -2)),
        ] {
            assert_eq!(asked(text).key, key, "{text}");
        }
        assert_eq!(asked("advisory lock [16384,0,42,1]").database, Some(16384));
        assert_eq!(asked("[0, 0, 42, 1]").database, Some(0));
    }

    #[test]
    fn unsigned_numbers_are_read_as_their_signed_form_and_say_so() {
        let all_ones = asked("18446744073709551615");
        assert_eq!(all_ones.key, Key::bigint(-1));
        assert!(all_ones.reading.unwrap().contains("its signed form is -1"));
        let pair = asked("(2615192801,1973311789)");
        assert_eq!(pair.key, Key::pair(-1_679_774_495, 1_973_311_789));
        assert!(pair.reading.is_some());
        assert_eq!(asked("9223372036854775807").reading, None);
    }

    #[test]
    fn what_the_shell_took_apart_is_put_together() {
        let lock = whats(&["advisory", "lock", "[16384,0,42,1]"]);
        assert!(matches!(&lock[..], [What::Key(Asked { database: Some(16384), .. })]), "{lock:?}");
        assert_eq!(whats(&["class", "5:", "0/102747"]).len(), 1);
        assert_eq!(whats(&["42", "43"]).len(), 2);
        assert_eq!(whats(&["nightly", "jobs"]).len(), 2);
    }

    #[test]
    fn a_statement_stands_for_the_keys_in_it() {
        assert_eq!(asked("SELECT pg_try_advisory_lock(7, 9)").key, Key::pair(7, 9));
        let reading = asked("SELECT pg_advisory_lock(hashtext('jobs'))").reading.unwrap();
        assert_eq!(reading, "the key of pg_advisory_lock(hashtext('jobs'))");
        assert_eq!(whats(&["pg_advisory_lock(1), pg_advisory_lock(2)"]).len(), 2);
        let unknown = "SELECT pg_advisory_lock($1)";
        assert_eq!(whats(&[unknown]), [What::Text(unknown.to_owned())]);
    }

    #[test]
    fn anything_else_is_a_text() {
        for text in [
            "",
            "nightly",
            "99999999999999999999",
            "1/2",
            "1/2/65536",
            "(4294967296,1)",
            "[1,2,3]",
            "class 65536: 1/2",
            "0x",
        ] {
            assert_eq!(whats(&[text]), [What::Text(text.to_owned())], "{text:?}");
        }
        assert_eq!(parse_whats(&["42".to_owned()], true), [What::Text("42".to_owned())]);
        assert_eq!(whats(&["-"]), [What::Input]);
        assert!(matches!(
            &whats(&["waits for ShareLock on advisory lock [1,0,42,1]; blocked"])[..],
            [What::Log(_)]
        ));
    }

    proptest! {
        #[test]
        fn any_arguments_are_taken(arguments: Vec<String>) {
            let whats = parse_whats(&arguments, false);
            prop_assert!(arguments.is_empty() || !whats.is_empty());
        }

        #[test]
        fn what_a_key_is_written_as_is_read_back(word: u64, class: u16, database: u32) {
            let key = Key::from_word(word, class);
            let columns = format!("{}/{}/{}", key.classid(), key.objid(), key.objsubid());
            prop_assert_eq!(asked(&columns).key, key);
            let log = format!("[{database},{},{},{class}]", key.classid(), key.objid());
            prop_assert_eq!(asked(&log).key, key);
        }
    }
}
