//! Drafts of entries → the text of a registry file.
//!
//! What stands in a comment or in quotes comes from applications, which may call themselves
//! anything: nothing here leaves a line or a quotation that it did not open.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use super::group::Pattern;
use super::guess::{Dictionary, Guess};
use super::{Draft, LeftOut, Party, Sighting, Sightings};
use crate::key::Key;
use crate::timestamp::Timestamp;

/// Comments are broken here.
const WIDTH: usize = 98;

/// Of a long list, a comment shows so many.
const LISTED: usize = 5;

/// Longer names of applications are cut in names of locks.
const MAX_STEM: usize = 40;

/// Numbers of up to six digits read well as part of a name.
const SHORT: std::ops::Range<i64> = 0..1_000_000;

/// Programs that pack two ids into one number mostly have ids below this.
const SMALL_ID: i64 = 1_000_000;

/// Constants that people think of are smaller.
const HASH_LIKE: u64 = 100_000_000;

pub(super) fn render(
    sightings: &Sightings,
    drafts: &[Draft],
    left_out: &LeftOut,
    dictionary: &Dictionary,
) -> String {
    let mut text = String::new();
    write_head(&mut text, sightings, drafts, dictionary);
    if sightings.places.is_empty() {
        return text;
    }
    text.push_str("locks:\n");
    let mut drafts: Vec<&Draft> = drafts.iter().collect();
    drafts.sort_by_key(|draft| (&draft.databases, &draft.application, draft.pattern));
    let mut names = Names::new(&sightings.names);
    for draft in drafts {
        let name = names.choose(draft);
        write_entry(&mut text, draft, &name, sightings, dictionary);
    }
    for ((place, application), keys) in left_out {
        text.push('\n');
        write_comment(
            &mut text,
            "  # ",
            &format!(
                "no entry for {} keys of {} in {} of {}: {}. So many are ids or hashes of something \
                 that changes: name them by a range, or by a template with values, or not at all",
                keys.len(),
                clean(application),
                place.database.as_deref().map_or("an unknown database".to_owned(), clean),
                clean(&place.server),
                list(keys.iter().map(ToString::to_string)),
            ),
        );
    }
    text
}

fn write_head(text: &mut String, sightings: &Sightings, drafts: &[Draft], dictionary: &Dictionary) {
    let unnamed: usize = sightings.places.values().map(BTreeMap::len).sum();
    let servers = list(sightings.servers.iter().map(|server| clean(server)));
    let until = sightings.last.map(|last| format!(" until {}", moment(last))).unwrap_or_default();
    let looks = count(sightings.looks, "look", "looks");
    let named = match sightings.named.len() {
        0 => String::new(),
        1 => " 1 other key has a name.".to_owned(),
        keys => format!(" {keys} other keys have names."),
    };
    if sightings.places.is_empty() {
        write_comment(
            text,
            "# ",
            &format!(
                "Nothing to suggest: no key without a name was held or awaited on {servers} in \
                 {looks}{until}.{named}"
            ),
        );
        return;
    }
    write_comment(
        text,
        "# ",
        &format!(
            "Suggested by locks registry suggest: {} for {} without a name, held or awaited on \
             {servers} in {looks}{until}.{named}",
            count(drafts.len(), "entry", "entries"),
            count(unnamed, "key", "keys"),
        ),
    );
    write_comment(
        text,
        "# ",
        "Names are placeholders, made of application names: rename them. What says more than was \
         seen is marked \"guess:\". Use this as a registry file of its own, or put its entries \
         under locks: in another.",
    );
    let is_hash = |draft: &Draft| match draft.pattern {
        Pattern::One(key) => {
            key.as_bigint().is_some_and(|number| number.unsigned_abs() > HASH_LIKE)
                && guess_one(key, dictionary).is_empty()
        }
        Pattern::PairsFrom(_) | Pattern::PairsTo(_) | Pattern::Packed(_) | Pattern::Range(..) => {
            false
        }
    };
    if drafts.iter().any(is_hash) {
        write_comment(
            text,
            "# ",
            "Large numbers are mostly hashes of texts in the source of the application that holds \
             them: locks explain TEXT says which keys a text makes.",
        );
    }
}

fn write_entry(
    text: &mut String,
    draft: &Draft,
    name: &str,
    sightings: &Sightings,
    dictionary: &Dictionary,
) {
    text.push('\n');
    for line in seen(&draft.sighting) {
        write_comment(text, "  # ", &line);
    }
    let candidates = &draft.sighting.candidates;
    for candidate in candidates.iter().take(LISTED) {
        write_comment(text, "  # ", &format!("candidate: {}", clean(candidate)));
    }
    if candidates.len() > LISTED {
        let _ = writeln!(text, "  # candidates: {} more", candidates.len() - LISTED);
    }
    for guess in guesses(draft, dictionary) {
        write_comment(text, "  # ", &format!("guess: {guess}"));
    }
    let databases: Option<Vec<String>> =
        draft.databases.iter().map(|name| name.as_deref().map(quote)).collect();
    if databases.is_none() {
        text.push_str(
            "  # in any database: the name of its own is not known, or no entry can name it\n",
        );
    }
    let _ = writeln!(text, "  - name: {name}");
    let _ = writeln!(text, "    key: {}", render_key(draft.pattern, dictionary));
    if matches!(draft.pattern, Pattern::PairsFrom(_) | Pattern::PairsTo(_) | Pattern::Packed(_)) {
        text.push_str("    parameter: number\n");
    }
    if let Some(databases) = databases {
        let _ = writeln!(text, "    databases: [{}]", databases.join(", "));
    }
    // One that was seen on every server is named on every server.
    if draft.servers != sightings.all_servers {
        let servers: Vec<String> = draft.servers.iter().map(|name| quote(name)).collect();
        let _ = writeln!(text, "    servers: [{}]", servers.join(", "));
    }
}

/// Who was seen with it.
fn seen(sighting: &Sighting) -> Vec<String> {
    let mut lines = Vec::new();
    let sides =
        [("held by", "seen since", &sighting.holders), ("awaited by", "since", &sighting.waiters)];
    for (verb, since, parties) in sides {
        if !parties.is_empty() {
            let parties = parties.iter().map(|(name, party)| render_party(name, party, since));
            lines.push(format!("{verb} {}", list_with("; ", parties)));
        }
    }
    lines
}

fn render_party(name: &str, party: &Party, since_word: &str) -> String {
    let mut text = clean(name);
    if !party.before.is_empty() {
        let before = list(party.before.iter().map(|name| clean(name)));
        let _ = write!(text, " (before: {before})");
    }
    for scope in &party.scopes {
        let _ = write!(text, ", {scope} level");
    }
    // Of several sessions each may have had it for a moment only.
    let first = match party.sessions.len() {
        0 | 1 => "",
        sessions => {
            let _ = write!(text, ", {sessions} sessions");
            "the first "
        }
    };
    if let Some(since) = party.since {
        let _ = write!(text, ", {first}{since_word} {}", moment(since));
    }
    text
}

fn guesses(draft: &Draft, dictionary: &Dictionary) -> Vec<String> {
    let seen = count(draft.keys.len(), "key", "keys");
    let numbers = |number: fn(Key) -> Option<i64>| {
        let numbers: BTreeSet<i64> = draft.keys.iter().filter_map(|key| number(*key)).collect();
        list(numbers.iter().map(ToString::to_string))
    };
    match draft.pattern {
        Pattern::One(key) => guess_one(key, dictionary),
        Pattern::PairsFrom(half) => {
            let second = numbers(|key| key.as_pair().map(|(_, second)| second.into()));
            let mut guesses = vec![format!(
                "one lock for each second half; {seen} of ({half}, …) were seen: {second}"
            )];
            guesses.extend(dictionary.guess_half(half).map(|guess| describe(&guess, half)));
            guesses
        }
        Pattern::PairsTo(half) => {
            let first = numbers(|key| key.as_pair().map(|(first, _)| first.into()));
            let mut guesses = vec![format!(
                "one lock for each first half; {seen} of (…, {half}) were seen: {first}"
            )];
            guesses.extend(dictionary.guess_half(half).map(|guess| describe(&guess, half)));
            guesses
        }
        Pattern::Packed(high) => {
            let low = numbers(|key| key.as_bigint().map(|_| key.objid().into()));
            vec![format!(
                "two numbers packed into one bigint; {seen} with {high} as high half were seen: \
                 {low}"
            )]
        }
        Pattern::Range(first, last) => vec![format!(
            "one lock for each row; {seen} from {first} to {last} were seen: widen the range to \
             all that there may be"
        )],
    }
}

/// What is guessed of one key by itself.
pub(super) fn guess_one(key: Key, dictionary: &Dictionary) -> Vec<String> {
    if let Some(guess) = dictionary.guess_key(key) {
        return vec![describe(&guess, key)];
    }
    if let Some((first, second)) = key.as_pair() {
        return [first, second]
            .into_iter()
            .filter_map(|half| Some(describe(&dictionary.guess_half(half)?, half)))
            .collect();
    }
    let Some(number) = key.as_bigint() else { return Vec::new() };
    let bytes = number.to_be_bytes();
    if bytes.iter().all(u8::is_ascii_graphic) {
        return vec![format!("the eight ASCII bytes {}", clean(&String::from_utf8_lossy(&bytes)))];
    }
    let (high, low) = (i64::from(key.classid().cast_signed()), i64::from(key.objid()));
    if (1..SMALL_ID).contains(&high) && low < SMALL_ID {
        return vec![format!(
            "{high} and {low}, packed into one bigint; if so, key: {{ packed: [{high}, \"*\"] }} \
             is one lock for every number with {high}"
        )];
    }
    Vec::new()
}

fn describe(guess: &Guess, number: impl std::fmt::Display) -> String {
    format!("{number} is made of the text {}", quote(&guess.text))
}

fn render_key(pattern: Pattern, dictionary: &Dictionary) -> String {
    let half = |half: i32| {
        dictionary.guess_half(half).map_or_else(|| half.to_string(), |guess| guess.written)
    };
    match pattern {
        Pattern::One(key) => match (dictionary.guess_key(key), key.as_bigint(), key.as_pair()) {
            (Some(guess), ..) => guess.written,
            (None, Some(number), _) => number.to_string(),
            (None, None, Some((first, second))) => {
                format!("{{ pair: [{}, {}] }}", half(first), half(second))
            }
            (None, None, None) => format!(
                "{{ class: {}, classid: {}, objid: {} }}",
                key.objsubid(),
                key.classid(),
                key.objid()
            ),
        },
        Pattern::PairsFrom(first) => format!("{{ pair: [{}, \"*\"] }}", half(first)),
        Pattern::PairsTo(second) => format!("{{ pair: [\"*\", {}] }}", half(second)),
        Pattern::Packed(high) => format!("{{ packed: [{high}, \"*\"] }}"),
        Pattern::Range(first, last) => format!("{{ range: [{first}, {last}] }}"),
    }
}

/// Names that are taken, those of the registry included.
struct Names(BTreeSet<Arc<str>>);

impl Names {
    fn new(taken: &BTreeSet<Arc<str>>) -> Self {
        Self(taken.clone())
    }

    /// One that nobody has, and that reads well: `billing-42`, `worker-7`, `worker-range`.
    fn choose(&mut self, draft: &Draft) -> String {
        let stem = stem(&draft.application);
        let short = |number: i64| SHORT.contains(&number).then(|| number.to_string());
        let wish = match draft.pattern {
            Pattern::One(key) => match (key.as_bigint(), key.as_pair()) {
                (Some(number), _) => short(number),
                (None, Some((first, second))) => short(first.into())
                    .zip(short(second.into()))
                    .map(|(first, second)| format!("{first}-{second}")),
                (None, None) => Some(format!("class-{}", key.objsubid())),
            },
            Pattern::PairsFrom(half) | Pattern::PairsTo(half) | Pattern::Packed(half) => {
                short(half.into())
            }
            Pattern::Range(..) => Some("range".to_owned()),
        };
        let wish = wish.map(|wish| format!("{stem}-{wish}"));
        let numbered = (1_u32..).map(|number| match &wish {
            Some(wish) => format!("{wish}-{}", number.saturating_add(1)),
            None => format!("{stem}-{number}"),
        });
        let mut names = wish.clone().into_iter().chain(numbered);
        let name = names.find(|name| !self.0.contains(name.as_str())).unwrap_or(stem);
        self.0.insert(name.as_str().into());
        name
    }
}

/// The part of a name that an application gives: letters, digits and dashes.
fn stem(application: &str) -> String {
    let mut stem = String::new();
    for c in application.chars() {
        if c.is_ascii_alphanumeric() {
            stem.push(c.to_ascii_lowercase());
        } else if !stem.is_empty() && !stem.ends_with('-') {
            stem.push('-');
        }
        if stem.len() >= MAX_STEM {
            break;
        }
    }
    let stem = stem.trim_end_matches('-');
    // A text that begins with a letter is a text to every reader of YAML.
    match stem.chars().next() {
        None => "key".to_owned(),
        Some(first) if first.is_ascii_digit() => format!("key-{stem}"),
        Some(_) => stem.to_owned(),
    }
}

/// A text of one line in which every character can be seen.
fn clean(text: &str) -> String {
    let mut cleaned = String::new();
    for c in text.chars() {
        if matches!(c, '"' | '\'' | '\\') {
            cleaned.push(c);
        } else {
            cleaned.extend(c.escape_debug());
        }
    }
    cleaned
}

/// A YAML text: bare where no reader could take it for anything else.
fn quote(text: &str) -> String {
    const OTHERWISE: [&str; 10] =
        ["any", "false", "n", "no", "null", "off", "on", "true", "y", "yes"];
    let is_bare = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && !OTHERWISE.iter().any(|word| text.eq_ignore_ascii_case(word));
    if is_bare { text.to_owned() } else { format!("\"{}\"", escape(text)) }
}

/// For double quotes in YAML.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '"' | '\\' => escaped.extend(['\\', c]),
            ' '..='~' => escaped.push(c),
            // Letters of the world are left alone; what cannot be seen is not.
            c if c.is_alphanumeric() => escaped.push(c),
            c => {
                let _ = write!(escaped, "\\U{:08x}", u32::from(c));
            }
        }
    }
    escaped
}

fn write_comment(text: &mut String, prefix: &str, comment: &str) {
    let mut line = String::from(prefix);
    let mut is_empty = true;
    for word in comment.split(' ') {
        if !is_empty && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(text, "{}", line.trim_end());
            line = format!("{prefix}  ");
            is_empty = true;
        }
        if !is_empty {
            line.push(' ');
        }
        line.push_str(word);
        is_empty = false;
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

fn list(items: impl ExactSizeIterator<Item = String>) -> String {
    list_with(", ", items)
}

fn list_with(separator: &str, items: impl ExactSizeIterator<Item = String>) -> String {
    let rest = items.len().saturating_sub(LISTED);
    let shown: Vec<String> = items.take(LISTED).collect();
    let shown = shown.join(separator);
    if rest == 0 { shown } else { format!("{shown} and {rest} more") }
}

fn count(number: impl Into<Count>, one: &str, more: &str) -> String {
    let Count(number) = number.into();
    format!("{number} {}", if number == 1 { one } else { more })
}

struct Count(u64);

impl From<u32> for Count {
    fn from(number: u32) -> Self {
        Self(number.into())
    }
}

impl From<usize> for Count {
    fn from(number: usize) -> Self {
        Self(number as u64)
    }
}

/// To the second: nobody reads more.
fn moment(time: Timestamp) -> String {
    let text = time.to_string();
    match text.split_once('.') {
        Some((seconds, _)) => format!("{seconds}Z"),
        None => text,
    }
}
