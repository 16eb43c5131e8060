//! The grammar of a registry file: `defaults` and the entries under `locks`.
//!
//! Defaults hold per file, so they are put into the entries here and an [`Entry`] is complete.
//! What several entries mean together (ranks, conflicts, one name in many entries) is decided in
//! [`registry`](super).

use std::sync::Arc;
use std::time::Duration;

use super::document::{Node, Position, Value};
use super::fault::Faults;
use super::fields::Fields;
use super::glob::Glob;
use super::pattern::{KeyPattern, Keys, parse_key};
use super::{DeclaredScope, Limit, Source, UNREGISTERED, document};
use crate::duration::parse_duration;

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) entries: Vec<Entry>,
    /// For keys without a name, where this file says it.
    pub(super) unregistered: Limits,
}

/// Limits as far as they are said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) max_hold: Option<Limit>,
    pub(super) max_wait: Option<Limit>,
}

/// One entry under `locks`.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) keys: Vec<Arc<KeyPattern>>,
    /// `None` for any.
    pub(super) databases: Option<Vec<Arc<str>>>,
    /// `None` for any.
    pub(super) servers: Option<Vec<Glob>>,
    pub(super) description: Option<Said>,
    pub(super) owner: Option<Said>,
    pub(super) runbook: Option<Said>,
    pub(super) parameter: Option<Arc<str>>,
    pub(super) max_hold: Limit,
    pub(super) max_wait: Limit,
    pub(super) scope: Option<DeclaredScope>,
    pub(super) last_held_within: Option<Duration>,
    pub(super) file: Arc<str>,
    pub(super) at: Position,
}

/// A text and where it was said.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) text: Arc<str>,
    pub(super) at: Position,
}

const DEFAULT_MAX_HOLD: Limit = Limit::Of(Duration::from_secs(15 * 60));
const DEFAULT_MAX_WAIT: Limit = Limit::Of(Duration::from_secs(60));

/// Servers and globs longer than this are no names.
const MAX_GLOB: usize = 255;

const FILE_FIELDS: [&str; 2] = ["defaults", "locks"];
const DEFAULT_FIELDS: [&str; 3] = ["max_hold", "max_wait", "unregistered"];
const LIMIT_FIELDS: [&str; 2] = ["max_hold", "max_wait"];
const ENTRY_FIELDS: [&str; 13] = [
    "name",
    "key",
    "keys",
    "parameter",
    "databases",
    "servers",
    "description",
    "owner",
    "runbook",
    "max_hold",
    "max_wait",
    "scope",
    "last_held_within",
];

/// Reads a file to its end; what is wrong is in `faults`, and then the result is of no use.
pub(super) fn parse_file(source: &Source, faults: &mut Faults<'_>) -> File {
    let Some(root) = document::parse_document(source, faults).filter(|root| !root.is_null()) else {
        return File::default();
    };
    let Some(fields) = Fields::read(&root, "a registry file", &FILE_FIELDS, faults) else {
        return File::default();
    };
    let (defaults, unregistered) = parse_defaults(fields.get("defaults"), faults);
    let name: Arc<str> = source.name.as_str().into();
    let entries = match fields.get("locks") {
        None => Vec::new(),
        // All entries are commented out.
        Some(locks) if locks.is_null() => Vec::new(),
        Some(Node { value: Value::Sequence(entries), .. }) => {
            entries.iter().filter_map(|node| parse_entry(node, defaults, &name, faults)).collect()
        }
        Some(other) => {
            faults.add(other.at, format!("locks is a list of entries, found {}", other.kind()));
            Vec::new()
        }
    };
    File { entries, unregistered }
}

/// For entries, and for keys without a name.
fn parse_defaults(node: Option<&Node>, faults: &mut Faults<'_>) -> (Limits, Limits) {
    let Some(node) = node.filter(|node| !node.is_null()) else { return Default::default() };
    let Some(fields) = Fields::read(node, "defaults", &DEFAULT_FIELDS, faults) else {
        return Default::default();
    };
    let named = parse_limits(&fields, faults);
    let unregistered = match fields.get("unregistered") {
        Some(node) => Fields::read(node, "unregistered", &LIMIT_FIELDS, faults)
            .map(|fields| parse_limits(&fields, faults))
            .unwrap_or_default(),
        None => Limits::default(),
    };
    let unregistered =
        Limits { max_wait: unregistered.max_wait.or(named.max_wait), ..unregistered };
    (named, unregistered)
}

fn parse_limits(fields: &Fields<'_>, faults: &mut Faults<'_>) -> Limits {
    let mut limit = |name| fields.get(name).and_then(|node| parse_limit(name, node, faults));
    Limits { max_hold: limit("max_hold"), max_wait: limit("max_wait") }
}

fn parse_entry(
    node: &Node,
    defaults: Limits,
    file: &Arc<str>,
    faults: &mut Faults<'_>,
) -> Option<Entry> {
    let fields = Fields::read(node, "an entry", &ENTRY_FIELDS, faults)?;
    // Every field is read before any is missed, so that all faults are told at once.
    let name = parse_name(&fields, node.at, faults);
    let keys = parse_keys(&fields, node.at, faults);
    let databases = fields.get("databases").and_then(|node| parse_databases(node, faults));
    let servers = fields.get("servers").and_then(|node| parse_servers(node, faults));
    let mut said = |name| fields.get(name).and_then(|node| parse_said(name, node, faults));
    let (description, owner) = (said("description"), said("owner"));
    let runbook = fields.get("runbook").and_then(|node| parse_runbook(node, faults));
    let parameter = fields.get("parameter").and_then(|node| parse_parameter(node, faults));
    let limits = parse_limits(&fields, faults);
    let scope = fields.get("scope").and_then(|node| parse_scope(node, faults));
    let last_held_within =
        fields.get("last_held_within").and_then(|node| parse_last_held_within(node, faults));

    let keys = keys?;
    let one_key = |pattern: &Arc<KeyPattern>| matches!(pattern.keys, Keys::One(_));
    if let Some(node) = fields.get("last_held_within") {
        if fields.get("databases").is_none_or(is_any) {
            faults.add(
                node.at,
                "last_held_within needs to know where the key is expected: add databases: [name]",
            );
        }
        if !keys.iter().all(one_key) {
            faults.add(
                node.at,
                "last_held_within is about one key: remove it, or give the key without a free half",
            );
        }
    }
    if let Some(node) = fields.get("parameter")
        && keys.iter().all(one_key)
    {
        faults.add(
            node.at,
            "parameter names the free half of a pair, and no key here has one: remove it, \
             or write \"*\" for that half",
        );
    }
    Some(Entry {
        name: name?,
        keys,
        databases,
        servers,
        description,
        owner,
        runbook,
        parameter,
        max_hold: limits.max_hold.or(defaults.max_hold).unwrap_or(DEFAULT_MAX_HOLD),
        max_wait: limits.max_wait.or(defaults.max_wait).unwrap_or(DEFAULT_MAX_WAIT),
        scope,
        last_held_within,
        file: file.clone(),
        at: node.at,
    })
}

fn parse_name(fields: &Fields<'_>, at: Position, faults: &mut Faults<'_>) -> Option<Arc<str>> {
    let Some(node) = fields.get("name") else {
        if !fields.is_incomplete() {
            faults.add(at, "this entry has no name: add name: and what people call the lock");
        }
        return None;
    };
    let text = scalar(node).unwrap_or_default();
    let message = match text {
        _ if scalar(node).is_none() && !node.is_null() => {
            format!("a name is a text, found {}", node.kind())
        }
        _ if text.trim().is_empty() => "a name cannot be empty".to_owned(),
        UNREGISTERED => {
            "\"unregistered\" stands for all keys without a name: choose another name".to_owned()
        }
        "other" => {
            "\"other\" stands for all keys without a series of their own: choose another name"
                .to_owned()
        }
        _ if text.contains(" | ") => {
            format!(
                "{text:?} contains \" | \", which joins the names of one key: choose another name"
            )
        }
        _ if text.contains(char::is_control) => {
            format!("{text:?} contains a control character: names are one line of text")
        }
        _ => return Some(text.into()),
    };
    faults.add(node.at, message);
    None
}

fn parse_keys(
    fields: &Fields<'_>,
    at: Position,
    faults: &mut Faults<'_>,
) -> Option<Vec<Arc<KeyPattern>>> {
    match (fields.get("key"), fields.get("keys")) {
        (Some(key), None) => Some(vec![Arc::new(parse_key(key, faults)?)]),
        (None, Some(Node { value: Value::Sequence(keys), .. })) if !keys.is_empty() => {
            let patterns: Vec<_> = keys.iter().map(|key| parse_key(key, faults)).collect();
            patterns.into_iter().map(|pattern| pattern.map(Arc::new)).collect()
        }
        (None, Some(other)) => {
            faults.add(other.at, "keys is a list of at least one key: for one alone write key");
            None
        }
        (Some(_), Some(keys)) => {
            faults.add(keys.at, "key and keys exclude each other: put all into keys");
            None
        }
        (None, None) => {
            if !fields.is_incomplete() {
                faults.add(
                    at,
                    "this entry has no key: add key: and the number or hash that is locked",
                );
            }
            None
        }
    }
}

/// `None` for any.
fn parse_databases(node: &Node, faults: &mut Faults<'_>) -> Option<Vec<Arc<str>>> {
    let names = parse_list("databases", node, faults)?;
    for (at, name) in &names {
        if name.contains('*') {
            faults.add(
                *at,
                format!(
                    "{name:?} is a pattern, and databases are named in full: list them, \
                     or leave databases out for any"
                ),
            );
        }
    }
    let mut names: Vec<Arc<str>> = names.into_iter().map(|(_, name)| name.into()).collect();
    names.sort_unstable();
    names.dedup();
    Some(names)
}

/// `None` for any.
fn parse_servers(node: &Node, faults: &mut Faults<'_>) -> Option<Vec<Glob>> {
    let names = parse_list("servers", node, faults)?;
    for (at, name) in &names {
        if name.len() > MAX_GLOB {
            faults.add(*at, format!("no server has a name of more than {MAX_GLOB} bytes"));
        }
    }
    Some(names.into_iter().map(|(_, name)| Glob::new(name)).collect())
}

/// A list of names; `None` for the word `any`, and for faults.
fn parse_list<'a>(
    field: &str,
    node: &'a Node,
    faults: &mut Faults<'_>,
) -> Option<Vec<(Position, &'a str)>> {
    match &node.value {
        Value::Scalar { .. } if is_any(node) => None,
        Value::Sequence(items) if !items.is_empty() => {
            let mut names = Vec::with_capacity(items.len());
            for item in items {
                match scalar(item) {
                    Some(name) if !name.is_empty() => names.push((item.at, name)),
                    _ => faults.add(
                        item.at,
                        format!("{field} is a list of names, found {} in it", item.kind()),
                    ),
                }
            }
            Some(names)
        }
        Value::Sequence(_) => {
            faults.add(
                node.at,
                format!("{field} is an empty list, which is nowhere: leave it out for any"),
            );
            None
        }
        Value::Scalar { text, .. } if !node.is_null() => {
            faults.add(node.at, format!("{field} is a list: write [{text}]"));
            None
        }
        Value::Scalar { .. } | Value::Mapping(_) => {
            faults.add(node.at, format!("{field} is a list of names, found {}", node.kind()));
            None
        }
    }
}

fn parse_said(field: &str, node: &Node, faults: &mut Faults<'_>) -> Option<Said> {
    let Some(text) = scalar(node) else {
        faults.add(
            node.at,
            format!("{field} is a text, found {}: write it, or leave {field} out", node.kind()),
        );
        return None;
    };
    if text.contains(|c: char| c.is_control() && c != '\n' && c != '\t') {
        faults.add(node.at, format!("{field} contains a control character: remove it"));
        return None;
    }
    Some(Said { text: text.trim().into(), at: node.at })
}

/// Only what a browser opens harmlessly: the address becomes a link on the status page.
fn parse_runbook(node: &Node, faults: &mut Faults<'_>) -> Option<Said> {
    let said = parse_said("runbook", node, faults)?;
    let (scheme, rest) = said.text.split_once("://").unwrap_or_default();
    let web = scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https");
    if !web || rest.is_empty() || rest.starts_with('/') || rest.contains(char::is_whitespace) {
        faults.add(
            node.at,
            format!(
                "runbook {:?} is no web address: write one that begins with https:// or http://",
                said.text
            ),
        );
        return None;
    }
    Some(said)
}

fn parse_parameter(node: &Node, faults: &mut Faults<'_>) -> Option<Arc<str>> {
    let word = scalar(node).filter(|text| {
        text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    });
    if word.is_none() {
        faults.add(
            node.at,
            "parameter is a word of letters, digits and _ that says what the free half is, as in tenant",
        );
    }
    word.map(Arc::from)
}

fn parse_scope(node: &Node, faults: &mut Faults<'_>) -> Option<DeclaredScope> {
    match scalar(node) {
        Some("session") => Some(DeclaredScope::Session),
        Some("transaction") => Some(DeclaredScope::Transaction),
        Some(other) => {
            faults.add(node.at, format!("unknown scope {other:?}: write session or transaction"));
            None
        }
        None => {
            faults.add(node.at, format!("scope is session or transaction, found {}", node.kind()));
            None
        }
    }
}

fn parse_limit(field: &str, node: &Node, faults: &mut Faults<'_>) -> Option<Limit> {
    match scalar(node) {
        Some("unlimited") => Some(Limit::Unlimited),
        Some(text) => match parse_duration(text) {
            Ok(duration) => Some(Limit::Of(duration)),
            Err(error) => {
                faults.add(node.at, format!("{error}; or unlimited"));
                None
            }
        },
        None => {
            faults
                .add(node.at, format!("{field} is a duration or unlimited, found {}", node.kind()));
            None
        }
    }
}

fn parse_last_held_within(node: &Node, faults: &mut Faults<'_>) -> Option<Duration> {
    let message = match scalar(node).map(parse_duration) {
        Some(Ok(Duration::ZERO)) => {
            "last_held_within must be longer than the pause between two runs, found 0".to_owned()
        }
        Some(Ok(duration)) => return Some(duration),
        Some(Err(error)) => error.to_string(),
        None => format!("last_held_within is a duration, found {}", node.kind()),
    };
    faults.add(node.at, message);
    None
}

/// The word that says the same as leaving `databases` or `servers` out.
fn is_any(node: &Node) -> bool {
    scalar(node) == Some("any")
}

/// The text of a scalar that is not null.
fn scalar(node: &Node) -> Option<&str> {
    match &node.value {
        Value::Scalar { text, .. } if !node.is_null() => Some(text),
        Value::Scalar { .. } | Value::Sequence(_) | Value::Mapping(_) => None,
    }
}
