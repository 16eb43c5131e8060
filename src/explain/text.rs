//! The keys that applications make of a text, in every way that is known.
//!
//! The ways are data in the registry's own language (`ways.yaml`). Each is filled in, read by the
//! registry like any user's file, and printed as it was read: what is shown can be pasted, and
//! names in the user's registry the key that is shown beside it.

use std::fmt;
use std::io::{self, Write};

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::key::holding_sql;
use super::naming::{Names, Naming, key_with_kind, title};
use crate::key::Key;
use crate::registry::{Registry, Source};

/// What stands for the text in a way.
const PLACEHOLDER: &str = "{text}";
/// What stands for the database; such a way is left out when none is given.
const DATABASE: &str = "{database}";

/// A text and the keys it may stand for.
#[derive(Debug, Serialize)]
pub(super) struct TextReport {
    text: String,
    keys: Vec<MadeKey>,
    held_by: String,
}

/// One way to make a key of a text.
#[derive(Debug, Serialize)]
struct MadeKey {
    way: String,
    used_by: String,
    /// As a registry file writes it.
    written: String,
    /// `None` for a pair with a free half.
    key: Option<Key>,
    /// The pair with its free half, as `(7,*)`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pattern: Option<String>,
    names: Vec<Naming>,
}

impl TextReport {
    pub(super) fn new(text: &str, names: &dyn Names, database: Option<&str>) -> Self {
        let mut keys: Vec<MadeKey> = ways()
            .iter()
            .filter_map(|way| {
                let written = way.key.filled(text);
                if written.contains(DATABASE) && database.is_none() {
                    return None;
                }
                let (key, pattern) = evaluate(&written, database)?;
                let names = key.map(|key| names.explain(database, key)).unwrap_or_default();
                let (way, used_by) = (way.name.clone(), way.description.clone());
                Some(MadeKey { way, used_by, written, key, pattern, names })
            })
            .collect();
        // What has a name is what was meant.
        keys.sort_by_key(|made| made.names.is_empty());
        let exact: Vec<Key> = keys.iter().filter_map(|made| made.key).collect();
        let held_by = holding_sql(&exact, None);
        Self { text: text.to_owned(), keys, held_by }
    }

    pub(super) fn render(&self, output: &mut dyn Write) -> io::Result<()> {
        if self.keys.iter().all(|made| made.names.is_empty()) {
            let ways = self.keys.len();
            writeln!(
                output,
                "{:?}: no name is known for any of {ways} keys made of it",
                self.text
            )?;
        }
        for made in self.keys.iter().filter(|made| !made.names.is_empty()) {
            let key = made.key.map(|key| title(key, &made.names)).unwrap_or_default();
            writeln!(output, "{:?} by {}: {key}", self.text, made.way)?;
        }
        for made in &self.keys {
            writeln!(output)?;
            match (made.key, &made.pattern) {
                (Some(key), _) => writeln!(
                    output,
                    "  {}   in pg_locks {}/{}/{}",
                    key_with_kind(key),
                    key.classid(),
                    key.objid(),
                    key.objsubid()
                )?,
                (None, pattern) => {
                    writeln!(output, "  pair {}", pattern.as_deref().unwrap_or_default())?;
                }
            }
            writeln!(output, "    key: {}", made.written)?;
            writeln!(output, "    {}: {}", made.way, made.used_by)?;
        }
        writeln!(output, "\n  who holds any of them and who waits:")?;
        for line in self.held_by.lines() {
            writeln!(output, "    {line}")?;
        }
        Ok(())
    }
}

/// The key that a registry file means by `key: …`, or the pattern of a pair with a free half.
fn evaluate(written: &str, database: Option<&str>) -> Option<(Option<Key>, Option<String>)> {
    // Keys of entries that name a database are known before any lock is seen.
    let database = quoted(database.unwrap_or("any"));
    let text = format!("locks:\n  - {{ name: way, databases: [{database}], key: {written} }}\n");
    let registry = Registry::parse(&[Source { name: "ways.yaml".to_owned(), text }]).ok()?;
    let armed = registry.armed("", |_| true).into_iter().next()?;
    let pattern = armed.resolution.pattern.map(|pattern| pattern.to_string());
    Some((armed.key, pattern.filter(|_| armed.key.is_none())))
}

#[derive(Debug, Deserialize)]
struct Ways {
    locks: Vec<Way>,
}

#[derive(Debug, Deserialize)]
struct Way {
    name: String,
    description: String,
    key: Flow,
}

fn ways() -> Vec<Way> {
    let ways: Ways = serde_saphyr::from_str(include_str!("ways.yaml"))
        .expect("the test `every_way_is_read` reads this file");
    ways.locks
}

/// A piece of YAML that keeps the order in which it was written.
#[derive(Debug)]
enum Flow {
    Number(i64),
    Flag(bool),
    Text(String),
    List(Vec<Flow>),
    Fields(Vec<(String, Flow)>),
}

impl Flow {
    /// As YAML on one line, with the text in its place.
    fn filled(&self, text: &str) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Flag(flag) => flag.to_string(),
            Self::Text(template) => {
                let braces = text.replace('{', "{{").replace('}', "}}");
                quoted(&template.replace(PLACEHOLDER, &braces))
            }
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(|item| item.filled(text)).collect();
                format!("[{}]", items.join(", "))
            }
            Self::Fields(fields) => {
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}: {}", value.filled(text)))
                    .collect();
                format!("{{ {} }}", fields.join(", "))
            }
        }
    }
}

/// A text in the double quotes of YAML, on one line.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Also what YAML takes for the end of a line, and what it does not allow.
            c if c.is_control()
                || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}') =>
            {
                quoted.push_str(&format!("\\U{:08X}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

impl<'de> Deserialize<'de> for Flow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FlowVisitor;

        impl<'de> Visitor<'de> for FlowVisitor {
            type Value = Flow;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a part of a key")
            }

            fn visit_bool<E>(self, flag: bool) -> Result<Flow, E> {
                Ok(Flow::Flag(flag))
            }

            fn visit_i64<E>(self, number: i64) -> Result<Flow, E> {
                Ok(Flow::Number(number))
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Flow, E> {
                i64::try_from(number).map(Flow::Number).map_err(E::custom)
            }

            fn visit_str<E>(self, text: &str) -> Result<Flow, E> {
                Ok(Flow::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Flow, A::Error> {
                let mut list = Vec::new();
                while let Some(item) = items.next_element()? {
                    list.push(item);
                }
                Ok(Flow::List(list))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Flow, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = pairs.next_entry()? {
                    fields.push(field);
                }
                Ok(Flow::Fields(fields))
            }
        }

        deserializer.deserialize_any(FlowVisitor)
    }
}
