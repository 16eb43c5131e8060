//! What tests of names have in common: registries from a text, and who names a key in them.

use super::*;
use crate::inspected::Answers;
use crate::key::Key;

/// A database by its name and encoding.
pub(super) type Database<'a> = Option<(&'a str, &'a str)>;

pub(super) const APP: Database<'_> = Some(("app", "UTF8"));
pub(super) const SERVER_WIDE: Database<'_> = None;

pub(super) fn source(name: &str, text: &str) -> Source {
    Source { name: name.into(), text: text.into() }
}

pub(super) fn registry(text: &str) -> Registry {
    Registry::parse(&[source("locks.yaml", text)]).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn refusal(text: &str) -> String {
    Registry::parse(&[source("f", text)]).unwrap_err().to_string()
}

pub(super) fn resolver(registry: &Registry, server: &str, databases: &[(&str, &str)]) -> Resolver {
    resolver_told(registry, server, databases, Answers::default())
}

pub(super) fn resolver_told(
    registry: &Registry,
    server: &str,
    databases: &[(&str, &str)],
    answers: Answers,
) -> Resolver {
    let told = Circumstances {
        databases: databases.iter().map(|(name, it)| ((*name).into(), (*it).into())).collect(),
        answers: Arc::new(answers),
        ..Circumstances::default()
    };
    Resolver::new(Arc::new(registry.clone()), server.into(), &told)
}

pub(super) fn resolve(
    registry: &Registry,
    server: &str,
    database: Database<'_>,
    key: Key,
) -> Resolution {
    let resolver = resolver(registry, server, database.as_slice());
    resolver.resolve(database.map(|(name, _)| name), key, Signs::default())
}

pub(super) fn label(registry: &Registry, database: Database<'_>, key: Key) -> String {
    resolve(registry, "db-1", database, key).label().to_owned()
}

pub(super) fn conflicts(registry: &Registry) -> Vec<String> {
    registry.conflicts().iter().map(Conflict::to_string).collect()
}

/// The key that an entry with `crc32` makes of a text.
pub(super) fn crc32(text: &str) -> Key {
    Key::bigint(crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC).checksum(text.as_bytes()).into())
}

pub(super) fn minutes(minutes: u64) -> Limit {
    Limit::Of(Duration::from_secs(minutes * 60))
}
