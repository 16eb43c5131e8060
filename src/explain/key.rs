//! What a key is: its names, its columns in `pg_locks`, how it is taken, who holds it.
//!
//! Numbers are never turned into texts that nobody registered: another reading of a key (its bytes
//! in the other order, its low half alone) is told only where it has a name, since then somebody
//! may have computed one and meant the other.

use std::collections::BTreeSet;
use std::io::{self, Write};

use serde::Serialize;

use super::naming::{as_fields, key_with_kind, title};
use super::what::Asked;
use crate::key::{Key, KeyKind};
use crate::registry::{Explainer, Naming};

/// The twin in the other key space is told when it is written in no more characters than this.
const SHORT_TWIN: usize = 14;

const SAME_COLUMNS: &str = "whose columns differ in objsubid only";

/// All that is known of a key.
#[derive(Debug, Serialize)]
pub(super) struct KeyReport {
    key: Key,
    /// Whose OID was given with the key, 0 for the whole server.
    #[serde(skip_serializing_if = "Option::is_none")]
    database_oid: Option<u32>,
    /// How the number was read, when not as it was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    reading: Option<String>,
    #[serde(serialize_with = "as_fields")]
    names: Vec<Naming>,
    /// `None` for keys that no SQL function takes.
    taken_by: Option<String>,
    held_by: String,
    other_readings: Vec<Reading>,
    /// The bytes of the key, when all of them are printable.
    #[serde(skip_serializing_if = "Option::is_none")]
    ascii: Option<String>,
}

/// Another key that may have been meant.
#[derive(Debug, Serialize)]
struct Reading {
    key: Key,
    relation: &'static str,
    #[serde(serialize_with = "as_fields")]
    names: Vec<Naming>,
}

impl Reading {
    /// Other bytes fit some form of some tool by chance; a certain name is no chance.
    fn is_worth_telling(&self) -> bool {
        let is_twin = self.relation == SAME_COLUMNS;
        let is_certain = |naming: &Naming| naming.doubt.is_none();
        self.names.iter().any(|naming| is_twin || is_certain(naming))
            || is_twin && self.key.to_string().len() <= SHORT_TWIN
    }
}

impl KeyReport {
    pub(super) fn new(asked: Asked, explainer: &Explainer) -> Self {
        let Asked { key, database: database_oid, reading } = asked;
        let other_readings = other_readings(key)
            .into_iter()
            .map(|(key, relation)| Reading { key, relation, names: explainer.names(key) })
            .filter(Reading::is_worth_telling)
            .collect();
        Self {
            key,
            database_oid,
            reading,
            names: explainer.names(key),
            taken_by: taking_sql(key),
            held_by: holding_sql(&[key], database_oid),
            other_readings,
            ascii: ascii(key),
        }
    }

    pub(super) fn render(&self, output: &mut dyn Write) -> io::Result<()> {
        let key = self.key;
        match self.names.as_slice() {
            [] => writeln!(output, "{}: no name is known for it", key_with_kind(key))?,
            names => writeln!(output, "{}", title(key, names))?,
        }
        render_names(&self.names, output)?;
        if let Some(reading) = &self.reading {
            writeln!(output, "  note: {reading}")?;
        }
        writeln!(output)?;
        let (classid, objid, objsubid) = (key.classid(), key.objid(), key.objsubid());
        writeln!(
            output,
            "  in pg_locks  classid {classid}, objid {objid}, objsubid {objsubid}{}",
            match self.database_oid {
                None => String::new(),
                Some(0) => ", database 0 (server-wide)".to_owned(),
                Some(oid) => format!(", database {oid}"),
            }
        )?;
        match &self.taken_by {
            Some(sql) => writeln!(output, "  taken by     {sql}")?,
            None => writeln!(
                output,
                "  taken by     an extension, in C: objsubid {objsubid} is its own; no SQL takes it"
            )?,
        }
        if let Some(ascii) = &self.ascii {
            writeln!(output, "  as ASCII     {ascii:?}")?;
        }
        for Reading { key, relation, names } in &self.other_readings {
            writeln!(output, "  is not       {}, {relation}", title(*key, names))?;
        }
        writeln!(output, "\n  who holds it and who waits:")?;
        for line in self.held_by.lines() {
            writeln!(output, "    {line}")?;
        }
        if self.names.is_empty() {
            writeln!(output, "\n  to name it, add to the locks of a registry file:")?;
            writeln!(output, "    - {{ name: what-it-locks, key: {} }}", registry_key(key))?;
        }
        Ok(())
    }
}

/// Who gives the names, why they may be another's, and what a person does with them.
pub(super) fn render_names(names: &[Naming], output: &mut dyn Write) -> io::Result<()> {
    for naming in names {
        let doubt = if naming.doubt.is_some() { " (uncertain)" } else { "" };
        writeln!(output, "  {}: {}{doubt}", naming.name, naming.reason)?;
        if let Some(description) = &naming.description {
            writeln!(output, "    {description}")?;
        }
        if let Some(owner) = &naming.owner {
            writeln!(output, "    owner: {owner}")?;
        }
        if let Some(runbook) = &naming.runbook {
            writeln!(output, "    runbook: {runbook}")?;
        }
    }
    let doubts: BTreeSet<_> = names.iter().filter_map(|naming| naming.doubt).collect();
    for doubt in doubts {
        writeln!(output, "  uncertain: {doubt}")?;
    }
    Ok(())
}

/// Keys that are taken for this one by mistake, and what they have in common with it.
fn other_readings(key: Key) -> Vec<(Key, &'static str)> {
    let (classid, objid) = (key.classid(), key.objid());
    let mut readings = Vec::new();
    match key.kind() {
        KeyKind::Bigint => {
            readings.push((Key::from_columns(classid, objid, 2), SAME_COLUMNS));
            let swapped = ((u64::from(classid) << 32) | u64::from(objid)).swap_bytes();
            readings.push((Key::from_word(swapped, 1), "the same bytes in the other order"));
            let is_negative = objid >> 31 == 1;
            match classid {
                0 if is_negative => readings.push((
                    Key::from_columns(u32::MAX, objid, 1),
                    "the same 32 bits taken as a signed number",
                )),
                u32::MAX if is_negative => readings.push((
                    Key::from_columns(0, objid, 1),
                    "the same 32 bits taken as an unsigned number",
                )),
                _ => {}
            }
        }
        KeyKind::Pair => {
            readings.push((Key::from_columns(classid, objid, 1), SAME_COLUMNS));
            readings.push((
                Key::from_columns(classid.swap_bytes(), objid.swap_bytes(), 2),
                "the same bytes in the other order",
            ));
        }
        KeyKind::Other => {}
    }
    readings.retain(|(other, _)| *other != key);
    readings.sort_by_key(|(other, _)| *other);
    readings.dedup_by_key(|(other, _)| *other);
    readings
}

/// The statement that takes it. The smallest numbers need quotes: a minus in front of a literal is
/// an operator, and the literal alone does not fit.
pub(super) fn taking_sql(key: Key) -> Option<String> {
    let half = |value: i32| match value {
        i32::MIN => format!("'{value}'::int"),
        value => value.to_string(),
    };
    if let Some(value) = key.as_bigint() {
        let argument = match value {
            i64::MIN => format!("'{value}'::bigint"),
            value => value.to_string(),
        };
        return Some(format!("SELECT pg_advisory_lock({argument});"));
    }
    let (first, second) = key.as_pair()?;
    Some(format!("SELECT pg_advisory_lock({}, {});", half(first), half(second)))
}

/// The statement that finds who holds any of these keys and who waits for them. It joins on the
/// left, since a prepared transaction holds locks without a session.
pub(super) fn holding_sql(keys: &[Key], database_oid: Option<u32>) -> String {
    let database = database_oid.map_or(String::new(), |oid| format!(" AND l.database = {oid}"));
    let columns = |key: &Key| format!("({}, {}, {})", key.classid(), key.objid(), key.objsubid());
    let (which, keys) = match keys {
        [key] => ("", format!("= {}", columns(key))),
        keys => {
            let keys: Vec<String> = keys.iter().map(columns).collect();
            (", l.classid, l.objid, l.objsubid", format!("IN (\n    {})", keys.join(",\n    ")))
        }
    };
    format!(
        "SELECT d.datname, l.granted, l.mode, l.pid, a.application_name, a.client_addr, a.state,\n  \
           now() - a.state_change AS in_state, a.query{which}\n\
         FROM pg_locks l LEFT JOIN pg_stat_activity a USING (pid)\n  \
           LEFT JOIN pg_database d ON d.oid = l.database\n\
         WHERE l.locktype = 'advisory'{database}\n  \
           AND (l.classid, l.objid, l.objsubid) {keys}\n\
         ORDER BY l.database, l.granted DESC, a.state_change;"
    )
}

/// The key as a registry file writes it.
fn registry_key(key: Key) -> String {
    if let Some(value) = key.as_bigint() {
        return value.to_string();
    }
    match key.as_pair() {
        Some((first, second)) => format!("{{ pair: [{first}, {second}] }}"),
        None => format!(
            "{{ class: {}, classid: {}, objid: {} }}",
            key.objsubid(),
            key.classid(),
            key.objid()
        ),
    }
}

/// The bytes of a key as text, from the highest; only when there are four at least, and no others.
fn ascii(key: Key) -> Option<String> {
    let word = (u64::from(key.classid()) << 32) | u64::from(key.objid());
    let bytes: Vec<u8> = word.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    let is_text = bytes.len() >= 4 && bytes.iter().all(|byte| matches!(byte, b' '..=b'~'));
    if !is_text {
        return None;
    }
    String::from_utf8(bytes).ok()
}
