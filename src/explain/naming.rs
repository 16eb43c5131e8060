//! Which names a key may have, and how they are told in one line.
//!
//! The registry decides who names a key; here its answer is asked for every database that an entry
//! knows, since a key without its lock has no database of its own.

use std::sync::Arc;

use serde::Serialize;

use crate::key::{Key, KeyKind};
use crate::registry::{Database, Registry, Resolution};

/// Names told in one line: everybody uses key 1.
const SHOWN_NAMES: usize = 4;

/// One name that a key may have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Naming {
    /// The `lock` label.
    pub name: Arc<str>,
    /// The name with its parameters: `tenant-reindex (tenant 99)`.
    pub display: String,
    /// Who says so: `hashtext("jobs") at locks.yaml:3`.
    pub reason: String,
    /// The databases it is the name in; `None` is any.
    pub databases: Option<Vec<Arc<str>>>,
    /// Whether nobody else takes this key, as far as is known.
    pub is_certain: bool,
}

/// Names for keys in a database, or in any when none is given.
pub trait Names {
    /// Every name that `key` may have, the best first.
    fn explain(&self, database: Option<&str>, key: Key) -> Vec<Naming>;
}

impl Names for Registry {
    fn explain(&self, database: Option<&str>, key: Key) -> Vec<Naming> {
        let resolve = |name| self.resolve("", Database { name, is_utf8: true }, key);
        let anywhere = resolve(None);
        if database.is_some() {
            return namings(&resolve(database), None);
        }
        let mut found = namings(&anywhere, None);
        let mut databases: Vec<&Arc<str>> = self.databases("").collect();
        databases.sort();
        for database in databases {
            let here = resolve(Some(database));
            if here == anywhere {
                continue;
            }
            for naming in namings(&here, Some(database)) {
                let same = found
                    .iter_mut()
                    .find(|known| known.name == naming.name && known.databases.is_some());
                match same.and_then(|known| known.databases.as_mut()) {
                    Some(databases) => databases.push(database.clone()),
                    None => found.push(naming),
                }
            }
        }
        found
    }
}

fn namings(resolution: &Resolution, database: Option<&Arc<str>>) -> Vec<Naming> {
    let databases = database.map(|database| vec![database.clone()]);
    let naming = |name: &Arc<str>, reason: String| {
        let parameters: Vec<String> =
            resolution.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let display = match parameters.as_slice() {
            [] => name.to_string(),
            parameters => format!("{name} ({})", parameters.join(", ")),
        };
        Naming {
            name: name.clone(),
            display,
            reason,
            databases: databases.clone(),
            is_certain: resolution.candidates.is_empty(),
        }
    };
    if resolution.candidates.is_empty() {
        let lock = resolution.lock.iter();
        return lock.map(|lock| naming(lock, "the registry".to_owned())).collect();
    }
    resolution
        .candidates
        .iter()
        .map(|it| naming(&it.name, format!("{} at {}:{}", it.written, it.file, it.line)))
        .collect()
}

/// A key with its kind in front: `bigint 42`, `pair (7,9)`, `class 5: 0/102747`.
pub fn key_with_kind(key: Key) -> String {
    match key.kind() {
        KeyKind::Bigint => format!("bigint {key}"),
        KeyKind::Pair => format!("pair {key}"),
        KeyKind::Other => key.to_string(),
    }
}

/// A key and all that it may be called: `bigint 42: nightly-billing`.
pub fn title(key: Key, namings: &[Naming]) -> String {
    match call(namings) {
        Some(names) => format!("{}: {names}", key_with_kind(key)),
        None => key_with_kind(key),
    }
}

/// All names in one line, the uncertain ones marked; `None` when there is none.
fn call(namings: &[Naming]) -> Option<String> {
    let mut names: Vec<String> = Vec::new();
    for naming in namings {
        let place = match naming.databases.as_deref() {
            None => String::new(),
            Some(databases) => format!(" in {}", databases.join(", ")),
        };
        let doubt = if naming.is_certain { "" } else { "maybe " };
        let name = format!("{doubt}{}{place}", naming.display);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let hidden = names.len().saturating_sub(SHOWN_NAMES);
    names.truncate(SHOWN_NAMES);
    if hidden > 0 {
        names.push(format!("{hidden} more"));
    }
    (!names.is_empty()).then(|| names.join(" | "))
}
