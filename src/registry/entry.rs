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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<File, Vec<String>> {
        let source = Source { name: "f".into(), text: text.into() };
        let mut faults = Faults::new(&source);
        let file = parse_file(&source, &mut faults);
        let faults = faults.finish();
        if faults.is_empty() {
            return Ok(file);
        }
        Err(faults.iter().map(|f| format!("{}:{}: {}", f.line, f.column, f.message)).collect())
    }

    fn minutes(minutes: u64) -> Limit {
        Limit::Of(Duration::from_secs(minutes * 60))
    }

    #[test]
    fn an_entry_is_read_field_by_field() {
        let file = parse(
            "locks:\n\
             - name: recalc\n\
             \x20 keys: [1, { hashtext: jobs }]\n\
             \x20 databases: [app, billing, app]\n\
             \x20 servers: ['orders-*']\n\
             \x20 description: |\n\
             \x20   Nightly\n\
             \x20   recalculation\n\
             \x20 owner: growth\n\
             \x20 runbook: HTTPS://wiki.example.com/recalc\n\
             \x20 max_hold: 30m\n\
             \x20 max_wait: unlimited\n\
             \x20 scope: session\n\
             \x20 last_held_within: 25h\n",
        )
        .unwrap();
        let [entry] = file.entries.as_slice() else { panic!() };
        assert_eq!(&*entry.name, "recalc");
        assert_eq!(entry.keys.len(), 2);
        let databases: Vec<&str> = entry.databases.iter().flatten().map(|name| &**name).collect();
        assert_eq!(databases, ["app", "billing"]);
        assert_eq!(entry.servers.as_deref(), Some(&[Glob::new("orders-*")][..]));
        let text = |said: &Option<Said>| said.as_ref().map(|said| said.text.to_string()).unwrap();
        assert_eq!(text(&entry.description), "Nightly\nrecalculation");
        assert_eq!(text(&entry.owner), "growth");
        assert_eq!(text(&entry.runbook), "HTTPS://wiki.example.com/recalc");
        assert_eq!((entry.max_hold, entry.max_wait), (minutes(30), Limit::Unlimited));
        assert_eq!(entry.scope, Some(DeclaredScope::Session));
        assert_eq!(entry.last_held_within, Some(Duration::from_secs(25 * 3600)));
    }

    #[test]
    fn defaults_hold_for_the_entries_of_their_file_wherever_they_stand() {
        let file = parse(
            "locks: [{ name: a, key: 1 }, { name: b, key: 2, max_wait: 5m }]\n\
             defaults: { max_hold: 20m, max_wait: 2m, unregistered: { max_hold: 3h } }\n",
        )
        .unwrap();
        let limits: Vec<_> = file.entries.iter().map(|e| (e.max_hold, e.max_wait)).collect();
        assert_eq!(limits, [(minutes(20), minutes(2)), (minutes(20), minutes(5))]);
        assert_eq!(file.unregistered.max_hold, Some(minutes(180)));
        assert_eq!(file.unregistered.max_wait, Some(minutes(2)));
    }

    #[test]
    fn a_file_without_entries_is_fine() {
        for text in ["", "# soon\n", "~", "locks:\n", "locks: []", "defaults:\nlocks:\n", "{}"] {
            assert!(parse(text).unwrap().entries.is_empty(), "{text:?}");
        }
    }

    #[test]
    fn any_in_words_is_the_same_as_nothing() {
        let file = parse("locks: [{ name: a, key: 1, databases: any, servers: any }]").unwrap();
        assert!(file.entries[0].databases.is_none() && file.entries[0].servers.is_none());
    }

    #[test]
    fn a_broken_file_is_refused_with_place_and_mend() {
        let cases = [
            (
                "hello",
                "1:1: a registry file is a mapping with the fields defaults, locks, found a text",
            ),
            (
                "- a",
                "1:1: a registry file is a mapping with the fields defaults, locks, found a list",
            ),
            (
                "lock: []",
                "1:1: unknown field \"lock\" in a registry file: the known ones are defaults, locks",
            ),
            ("locks: { a: 1 }", "1:8: locks is a list of entries, found a mapping"),
            (
                "defaults: 5m",
                "1:11: defaults is a mapping with the fields max_hold, max_wait, unregistered, found a text",
            ),
            (
                "defaults: { unregistered: { hold: 1h } }",
                "1:29: unknown field \"hold\" in unregistered: the known ones are max_hold, max_wait",
            ),
            (
                "defaults:\n  max_hold: 15\n",
                "2:13: \"15\" has no unit: write 15s for seconds, or another of ms, s, m, h, d, w, y; \
                 or unlimited",
            ),
            (
                "locks:\n- name: a\n",
                "2:3: this entry has no key: add key: and the number or hash that is locked",
            ),
            (
                "locks:\n- key: 1\n",
                "2:3: this entry has no name: add name: and what people call the lock",
            ),
            (
                "locks:\n- jobs\n",
                "2:3: an entry is a mapping with the fields name, key, keys, parameter, databases, \
                 servers, description, owner, runbook, max_hold, max_wait, scope, last_held_within, \
                 found a text",
            ),
        ];
        for (text, message) in cases {
            assert_eq!(parse(text).unwrap_err(), [message], "{text:?}");
        }
    }

    #[test]
    fn a_broken_entry_is_refused_with_place_and_mend() {
        // Each stands in the second line, after `- { name: a, key: 1, ` of 21 characters.
        let cases = [
            (
                "ower: x",
                "2:22: unknown field \"ower\" in an entry: the known ones are name, key, keys, \
                 parameter, databases, servers, description, owner, runbook, max_hold, max_wait, \
                 scope, last_held_within",
            ),
            ("name: b", "2:22: name is given twice, first on line 2: keep one"),
            ("keys: [2]", "2:28: key and keys exclude each other: put all into keys"),
            ("databases: app", "2:33: databases is a list: write [app]"),
            (
                "databases: []",
                "2:33: databases is an empty list, which is nowhere: leave it out for any",
            ),
            ("databases: [app, ~]", "2:39: databases is a list of names, found nothing in it"),
            ("databases: {}", "2:33: databases is a list of names, found a mapping"),
            (
                "databases: ['app_*']",
                "2:34: \"app_*\" is a pattern, and databases are named in full: list them, \
                 or leave databases out for any",
            ),
            ("servers:", "2:29: servers is a list of names, found nothing"),
            ("owner: [x]", "2:29: owner is a text, found a list: write it, or leave owner out"),
            ("owner:", "2:27: owner is a text, found nothing: write it, or leave owner out"),
            (
                "description: \"a\\x1b\"",
                "2:35: description contains a control character: remove it",
            ),
            (
                "runbook: \"javascript:alert(1)\"",
                "2:31: runbook \"javascript:alert(1)\" is no web address: \
                 write one that begins with https:// or http://",
            ),
            (
                "runbook: wiki/recalc",
                "2:31: runbook \"wiki/recalc\" is no web address: \
                 write one that begins with https:// or http://",
            ),
            (
                "max_hold: forever",
                "2:32: \"forever\" is not a duration: write numbers with units, largest first, \
                 as in 500ms, 15m, 1h30m, 1d; or unlimited",
            ),
            ("max_wait:", "2:30: max_wait is a duration or unlimited, found nothing"),
            ("scope: statement", "2:29: unknown scope \"statement\": write session or transaction"),
            ("scope: [session]", "2:29: scope is session or transaction, found a list"),
            (
                "parameter: tenant",
                "2:33: parameter names the free half of a pair, and no key here has one: remove it, \
                 or write \"*\" for that half",
            ),
            (
                "last_held_within: 25h",
                "2:40: last_held_within needs to know where the key is expected: add databases: [name]",
            ),
            (
                "databases: [app], last_held_within: 0",
                "2:58: last_held_within must be longer than the pause between two runs, found 0",
            ),
            (
                "databases: [app], last_held_within: []",
                "2:58: last_held_within is a duration, found a list",
            ),
        ];
        for (field, message) in cases {
            let text = format!("locks:\n- {{ name: a, key: 1, {field} }}\n");
            assert_eq!(parse(&text).unwrap_err(), [message], "{field}");
        }
    }

    #[test]
    fn a_half_free_pair_takes_a_parameter_and_no_last_held_within() {
        let entry =
            |field| format!("locks:\n- {{ name: a, key: {{ pair: [7, \"*\"] }}, {field} }}\n");
        let file = parse(&entry("parameter: tenant")).unwrap();
        assert_eq!(file.entries[0].parameter.as_deref(), Some("tenant"));
        assert_eq!(
            parse(&entry("parameter: tenant id")).unwrap_err(),
            [
                "2:50: parameter is a word of letters, digits and _ that says what the free half is, as in tenant"
            ]
        );
        assert_eq!(
            parse(&entry("databases: [app], last_held_within: 25h")).unwrap_err(),
            [
                "2:75: last_held_within is about one key: remove it, or give the key without a free half"
            ]
        );
    }

    #[test]
    fn names_that_labels_need_for_themselves_are_refused() {
        let cases = [
            ("\"\"", "a name cannot be empty"),
            ("' '", "a name cannot be empty"),
            ("~", "a name cannot be empty"),
            (
                "unregistered",
                "\"unregistered\" stands for all keys without a name: choose another name",
            ),
            (
                "other",
                "\"other\" stands for all keys without a series of their own: choose another name",
            ),
            (
                "a | b",
                "\"a | b\" contains \" | \", which joins the names of one key: choose another name",
            ),
            ("\"a\\nb\"", "\"a\\nb\" contains a control character: names are one line of text"),
            ("[a]", "a name is a text, found a list"),
        ];
        for (name, message) in cases {
            let text = format!("locks:\n- name: {name}\n  key: 1\n");
            assert_eq!(parse(&text).unwrap_err(), [format!("2:9: {message}")], "{name}");
        }
        assert_eq!(&*parse("locks: [{ name: 42, key: 42 }]").unwrap().entries[0].name, "42");
    }

    #[test]
    fn keys_is_a_list_of_at_least_one() {
        for keys in ["[]", "7", "~"] {
            assert_eq!(
                parse(&format!("locks:\n- name: a\n  keys: {keys}\n")).unwrap_err(),
                ["3:9: keys is a list of at least one key: for one alone write key"]
            );
        }
    }

    #[test]
    fn all_faults_of_a_file_are_told_at_once() {
        let text = "defaults: { max_hold: 5 }\nlocks:\n- { key: 010, ower: x }\n\
                    - { name: other, keys: [1e3, cron], scope: x }\n";
        let lines: Vec<String> = parse(text).unwrap_err();
        let places: Vec<&str> = lines.iter().map(|l| l.split(": ").next().unwrap()).collect();
        assert_eq!(places, ["1:23", "3:10", "3:15", "4:11", "4:25", "4:30", "4:44"]);
    }
}
