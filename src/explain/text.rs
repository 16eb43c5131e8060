//! The keys that applications make of a text, in every way that is known.
//!
//! The ways are data in the registry's own language (`ways.yaml`). Each is filled in, read by the
//! registry like any user's file, and printed as it was read: what is shown can be pasted, and
//! names in the user's registry the key that is shown beside it.

use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Serialize};

use super::key::{holding_sql, render_names};
use super::naming::{as_fields, key_with_kind, title};
use crate::key::Key;
use crate::registry::{Explainer, Naming, Registry, Source};

/// What stands for the text in a way.
const PLACEHOLDER: &str = "{text}";
/// What stands for the database; such a way is left out when none is given.
const DATABASE: &str = "{database}";

/// A text and the keys that may be made of it.
#[derive(Debug, Serialize)]
pub(super) struct TextReport {
    text: String,
    keys: Vec<MadeKey>,
    held_by: String,
}

/// A key and every way that leads to it.
#[derive(Debug, Serialize)]
struct MadeKey {
    #[serde(flatten)]
    made: Made,
    #[serde(serialize_with = "as_fields")]
    names: Vec<Naming>,
    ways: Vec<MadeBy>,
}

/// What a way leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Made {
    Key(Key),
    /// A pair with a free half, as `(7,*)`.
    Pattern(String),
}

/// One way to make a key of a text.
#[derive(Debug, Serialize)]
struct MadeBy {
    way: String,
    used_by: String,
    /// As a registry file writes it.
    written: String,
}

impl TextReport {
    pub(super) fn new(text: &str, explainer: &Explainer, database: Option<&str>) -> Self {
        let mut keys: Vec<MadeKey> = Vec::new();
        for Way { name, description, key } in ways() {
            let written = key.filled(text);
            if written.contains(DATABASE) && database.is_none() {
                continue;
            }
            let Some(made) = evaluate(&written, database) else { continue };
            let by = MadeBy { way: name, used_by: description, written };
            match keys.iter_mut().find(|known| known.made == made) {
                Some(known) => known.ways.push(by),
                None => {
                    let names = names_of_text(&made, explainer);
                    keys.push(MadeKey { made, names, ways: vec![by] });
                }
            }
        }
        // What has a name is what was meant.
        keys.sort_by_key(|key| key.names.is_empty());
        let exact: Vec<Key> = keys.iter().filter_map(|key| key.made.key()).collect();
        let held_by = holding_sql(&exact, None);
        Self { text: text.to_owned(), keys, held_by }
    }

    pub(super) fn render(&self, output: &mut dyn Write) -> io::Result<()> {
        let text = &self.text;
        if self.keys.iter().all(|key| key.names.is_empty()) {
            let number = self.keys.len();
            writeln!(output, "{text:?}: no name is known for any of {number} keys made of it")?;
        }
        if let Some(note) = note(text) {
            writeln!(output, "  note: {note}")?;
        }
        for MadeKey { made, names, .. } in self.keys.iter().filter(|key| !key.names.is_empty()) {
            if let Made::Key(key) = made {
                writeln!(output, "{text:?} makes {}", title(*key, names))?;
                render_names(names, output)?;
            }
        }
        if !text.is_ascii() {
            writeln!(output, "  note: hashtext and hashtextextended as in a database in UTF8")?;
        }
        writeln!(output)?;
        for MadeKey { made, ways, .. } in &self.keys {
            for MadeBy { used_by, written, .. } in ways {
                writeln!(output, "  {made:54} {used_by}")?;
                writeln!(output, "    key: {written}")?;
            }
        }
        writeln!(output, "\n  who holds any of them and who waits:")?;
        for line in self.held_by.lines() {
            writeln!(output, "    {line}")?;
        }
        Ok(())
    }
}

/// What looks like something else and was taken for a text.
fn note(text: &str) -> Option<&'static str> {
    let digits = text.trim().trim_start_matches('-');
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    if is_number && text.trim().parse::<i64>().is_err() && text.trim().parse::<u64>().is_err() {
        return Some("no key is as large a number, so it is taken for a text");
    }
    let is_call = text.to_ascii_lowercase().contains("advisory_") && text.contains('(');
    is_call.then_some(
        "the key is not written in this statement, so all of it is taken for a text; look for the \
         value of its parameters",
    )
}

impl Made {
    fn key(&self) -> Option<Key> {
        match self {
            Self::Key(key) => Some(*key),
            Self::Pattern(_) => None,
        }
    }
}

/// `bigint 42 = 0/42/1`, and `pair (7,*)`
impl fmt::Display for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key(key) => f.pad(&format!(
                "{} = {}/{}/{}",
                key_with_kind(*key),
                key.classid(),
                key.objid(),
                key.objsubid()
            )),
            Self::Pattern(pattern) => f.pad(&format!("pair {pattern}")),
        }
    }
}

/// Names that are not for any text made a key in this way. A tool that is recognized by the form of
/// its keys is recognized whatever the text was, which says nothing of the text.
fn names_of_text(made: &Made, explainer: &Explainer) -> Vec<Naming> {
    let mut names = made.key().map(|key| explainer.names(key)).unwrap_or_default();
    names.retain(|naming| !naming.is_preset || naming.display == *naming.name);
    names
}

/// The key that a registry file means by `key: …`, or the pattern of a pair with a free half.
fn evaluate(written: &str, database: Option<&str>) -> Option<Made> {
    let text = format!("presets: none\nlocks:\n  - {{ name: way, key: {written} }}\n");
    let source = Source { name: "ways.yaml".to_owned(), text };
    let registry = Arc::new(Registry::parse(&[source]).ok()?);
    // A database of any name: the server hashes other than ASCII text in the encoding of one.
    let label = registry.keys(Some(database.unwrap_or("any"))).into_iter().next()?.key?;
    Some(label.parse().map_or_else(|_| Made::Pattern(label.to_string()), Made::Key))
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
            // Words of the language, not of the user.
            Self::Text(word) if word.bytes().all(|byte| byte.is_ascii_lowercase()) => word.clone(),
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
            '\0' => quoted.push_str("\\0"),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn what_looks_like_a_key_and_is_none_is_told_to_be_taken_for_a_text() {
        for text in ["99999999999999999999", "-9223372036854775809"] {
            assert!(note(text).unwrap().starts_with("no key is as large"), "{text}");
        }
        let call = "SELECT pg_advisory_lock($1)";
        assert!(note(call).unwrap().contains("the value of its parameters"));
        for text in ["jobs", "", "-", "42", "18446744073709551615", "advisory_lock"] {
            assert_eq!(note(text), None, "{text}");
        }
    }

    /// What the tools themselves compute, or what was taken as a lock by their formula.
    const KEYS: [(&str, &str, &str); 26] = [
        ("hashtextextended", "cron:recalc-reward-points", "6110350855857795459"),
        ("hashtext", "alembic", "-441799288"),
        ("hashtext, second half free", "jobs", "(-1679774495,*)"),
        ("md5", "good_jobs-3f0d0c6e-7b0a-4a58-9a3e-0e5b0f4c2a11", "422608320970316224"),
        ("sha1, little-endian", "some very long name", "1765484347666752899"),
        ("sha224", "mydb.pgboss.pgboss", "8820760855626851337"),
        ("sha224 of database and schema", "pgboss", "8820760855626851337"),
        ("crc32 of schema, table and database", "schema_migrations", "2103762914"),
        ("sha256", "good_jobs-3f0d0c6e-7b0a-4a58-9a3e-0e5b0f4c2a11", "-4879616444660495535"),
        ("sha256, little-endian", "my_lock", "-7326441835665241985"),
        ("crc32", "pdf-creation", "572123647"),
        ("crc32, signed", "task_manager_lock", "1226251610"),
        ("crc32 and 0", "my_lock", "(1202238042,0)"),
        ("crc32 times 2053462845", "mydb", "586353752304064290"),
        ("crc32 times 1486364155", "grafana", "4004004031"),
        ("crc32 times 1026731422", "mydb", "293176876009260204"),
        ("crc64-ecma", "goose", "5887940537704921958"),
        ("fnv-1, 32 bits", "atlas_migrate_execute", "2686470616"),
        ("fnv-1, first half", "example-namespace", "(-1833924545,*)"),
        ("fnv-1, 64 bits", "example-lock", "-6145566089972788093"),
        ("Flyway", "\"public\".\"flyway_schema_history\"", "77433833903597"),
        ("HKDF-SHA256", "my first Postgres advisory lock!", "-5560419505042474287"),
        ("DJB2 with xor", "create-project:6f1c2d3e", "1695283356"),
        ("seven bits a character", "jobs", "(-708896969,-1)"),
        ("seven bits a character", "my-lock", "(-605720883,-118112257)"),
        ("hashCode", "hello", "99162322"),
    ];

    fn label(made: &Made) -> String {
        match made {
            Made::Key(key) => key.to_string(),
            Made::Pattern(pattern) => pattern.clone(),
        }
    }

    #[test]
    fn ways_lead_to_the_keys_that_the_tools_take() {
        let ways = ways();
        for (name, text, expected) in KEYS {
            let way = ways.iter().find(|way| way.name == name).unwrap();
            let written = way.key.filled(text);
            let made = evaluate(&written, Some("mydb")).unwrap_or_else(|| panic!("{written}"));
            assert_eq!(label(&made), expected, "{written}");
        }
    }

    #[test]
    fn every_way_is_read() {
        let ways = ways();
        for way in &ways {
            assert!(evaluate(&way.key.filled("jobs"), None).is_some(), "{way:?}");
        }
        let names: BTreeSet<_> = ways.iter().map(|way| &way.name).collect();
        assert_eq!(names.len(), ways.len());
    }

    #[test]
    fn what_is_printed_means_the_text_it_was_made_of() {
        let key = &ways()[0].key;
        for text in [
            "",
            "a \"b\" \\ {c} {{d}} # 'e': *f",
            "é 漢 🔒",
            "\t\n\r\u{85}\u{2028}\u{feff}\u{7f}\u{1}",
            "{text}",
        ] {
            let expected = crate::registry::hash::hashtextextended(text.as_bytes(), 0);
            let written = key.filled(text);
            assert!(!written.contains('\n'), "{written}");
            assert_eq!(
                evaluate(&written, None),
                Some(Made::Key(Key::bigint(expected))),
                "{text:?}"
            );
        }
    }
}
