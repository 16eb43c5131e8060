//! The grammar of a registry file: `defaults`, `presets`, and the entries under `locks`.
//!
//! Defaults hold per file, so they are put into the entries here and an [`Entry`] is complete.
//! What several entries mean together (ranks, conflicts, one name in many entries, what an entry
//! without a key changes in a preset) is decided in [`registry`](super). Files of values are read by
//! whoever calls.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::document::{Node, Position, Value};
use super::fault::Faults;
use super::fields::Fields;
use super::formula::{parse_flag, parse_text};
use super::glob::Glob;
use super::pattern::{KeyRule, parse_key};
use super::template::{DATABASE, is_word};
use super::{DeclaredMode, DeclaredScope, Limit, Origin, Role, Source, UNREGISTERED, document};
use crate::duration::parse_duration;

/// What one file says.
#[derive(Debug, Default)]
pub(super) struct File {
    pub(super) entries: Vec<Entry>,
    /// Entries without a key: what they say of the preset of that name.
    pub(super) overrides: Vec<Override>,
    /// For keys without a name, where this file says it.
    pub(super) unregistered: Limits,
    pub(super) presets: Option<PresetChoice>,
}

/// Limits as far as they are said.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Limits {
    pub(super) max_hold: Option<Limit>,
    pub(super) max_wait: Option<Limit>,
}

/// One entry under `locks`.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) name: Arc<str>,
    pub(super) rules: Arc<[KeyRule]>,
    /// What placeholders may stand for.
    pub(super) values: Vec<(Arc<str>, Values)>,
    /// `None` for any.
    pub(super) databases: Option<Vec<Arc<str>>>,
    /// `None` for any.
    pub(super) servers: Option<Arc<[Glob]>>,
    /// Servers for which a file says something else of this preset.
    pub(super) except: Vec<Arc<[Glob]>>,
    pub(super) description: Option<Said>,
    pub(super) owner: Option<Said>,
    pub(super) runbook: Option<Said>,
    /// Names of the free parts, in the order of the key.
    pub(super) parameters: Vec<Arc<str>>,
    /// Parameters become part of the label.
    pub(super) labels_value: bool,
    pub(super) policy: Policy,
    pub(super) marker: Marker,
    pub(super) file: Arc<str>,
    /// The file is a preset.
    pub(super) is_preset: bool,
    /// A preset says so first, of which a file changed something.
    pub(super) is_of_preset: bool,
    pub(super) at: Position,
}

/// How a lock should be used.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Policy {
    pub(super) max_hold: Limit,
    pub(super) max_wait: Limit,
    pub(super) max_idle_in_transaction: Option<Limit>,
    pub(super) scope: Option<DeclaredScope>,
    pub(super) mode: Option<DeclaredMode>,
    pub(super) role: Option<Role>,
    pub(super) holders: Option<Arc<[Glob]>>,
    pub(super) must_be_held: bool,
    pub(super) vacant_for: Option<Duration>,
    pub(super) last_held_within: Option<Duration>,
    pub(super) not_again_within: Option<Duration>,
}

/// What shows that a tool is in use in a database.
#[derive(Clone, Debug, Default)]
pub(super) struct Marker {
    /// Its tables, as `schema.table`.
    pub(super) tables: Vec<Arc<str>>,
    /// What it calls itself.
    pub(super) applications: Arc<[Glob]>,
}

/// Where the values of a placeholder come from.
#[derive(Clone, Debug)]
pub(super) enum Values {
    List(Vec<Arc<str>>),
    /// One on each line; the path as it is written.
    File {
        path: PathBuf,
        at: Position,
    },
    /// Asked of a server.
    Query(Arc<ValuesQuery>),
}

/// A query for values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ValuesQuery {
    pub(super) database: Arc<str>,
    pub(super) sql: Arc<str>,
    pub(super) refresh: Duration,
}

/// A text and where it was said.
#[derive(Clone, Debug)]
pub(super) struct Said {
    pub(super) text: Arc<str>,
    pub(super) at: Position,
}

/// An entry without a key.
#[derive(Debug)]
pub(super) struct Override {
    pub(super) name: Arc<str>,
    draft: Draft,
    pub(super) file: Arc<str>,
    pub(super) at: Position,
}

/// Where an [`Override`] holds.
#[derive(Debug)]
pub(super) enum Reach {
    /// Wherever the preset does.
    Everywhere,
    /// On these servers the preset is another one.
    Servers(Arc<[Glob]>),
    /// In databases that it names.
    Databases,
}

/// Which presets are used.
#[derive(Clone, Debug)]
pub(super) struct PresetChoice {
    pub(super) presets: Presets,
    pub(super) at: Position,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Presets {
    All,
    None,
    /// By name, with values in place of their own.
    Some(Vec<PresetUse>),
}

#[derive(Clone, Debug)]
pub(super) struct PresetUse {
    pub(super) name: Arc<str>,
    pub(super) values: Vec<(Arc<str>, Vec<Arc<str>>)>,
    pub(super) at: Position,
}

impl PartialEq for PresetUse {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.values) == (&other.name, &other.values)
    }
}

/// What an entry says beside its key; all of it may be missing.
#[derive(Debug, Default)]
struct Draft {
    databases: Option<Vec<Arc<str>>>,
    servers: Option<Arc<[Glob]>>,
    description: Option<Said>,
    owner: Option<Said>,
    runbook: Option<Said>,
    labels_value: Option<bool>,
    limits: Limits,
    max_idle_in_transaction: Option<Limit>,
    scope: Option<DeclaredScope>,
    mode: Option<DeclaredMode>,
    role: Option<Role>,
    holders: Option<Arc<[Glob]>>,
    must_be_held: Option<bool>,
    vacant_for: Option<Duration>,
    last_held_within: Option<Duration>,
    not_again_within: Option<Duration>,
}

const DEFAULT_MAX_HOLD: Limit = Limit::Of(Duration::from_secs(15 * 60));
const DEFAULT_MAX_WAIT: Limit = Limit::Of(Duration::from_secs(60));

/// Values queries are repeated after this, and no sooner than after the shortest.
const DEFAULT_REFRESH: Duration = Duration::from_secs(10 * 60);
const SHORTEST_REFRESH: Duration = Duration::from_secs(60);

/// A label, a column of a terminal and a line of a log have to bear it.
const MAX_NAME: usize = 200;

/// Servers and globs longer than this are no names.
const MAX_GLOB: usize = 255;

const FILE_FIELDS: [&str; 3] = ["defaults", "presets", "locks"];
const DEFAULT_FIELDS: [&str; 3] = ["max_hold", "max_wait", "unregistered"];
const LIMIT_FIELDS: [&str; 2] = ["max_hold", "max_wait"];
const ENTRY_FIELDS: [&str; 23] = [
    "name",
    "key",
    "keys",
    "values",
    "parameter",
    "label",
    "databases",
    "servers",
    "description",
    "owner",
    "runbook",
    "max_hold",
    "max_wait",
    "max_idle_in_transaction",
    "scope",
    "mode",
    "role",
    "holders",
    "must_be_held",
    "vacant_for",
    "last_held_within",
    "not_again_within",
    "marker",
];

/// Fields that are about a name, whatever its key.
pub(super) const ABOUT_NAMES: [&str; 3] = ["owner", "runbook", "description"];

/// Fields that are about one key in a database that is known.
const EXPECTATIONS: [&str; 3] = ["must_be_held", "last_held_within", "not_again_within"];

/// Reads a file to its end; what is wrong is in `faults`, and then the result is of no use.
pub(super) fn parse_file(source: &Source, is_preset: bool, faults: &mut Faults<'_>) -> File {
    let Some(root) = document::parse_document(source, faults).filter(|root| !root.is_null()) else {
        return File::default();
    };
    let Some(fields) = Fields::read(&root, "a registry file", &FILE_FIELDS, faults) else {
        return File::default();
    };
    let (defaults, unregistered) = parse_defaults(fields.get("defaults"), faults);
    let presets = fields.get("presets").and_then(|node| parse_presets(node, faults));
    let mut file = File { unregistered, presets, ..File::default() };
    let name: Arc<str> = source.name.as_str().into();
    match fields.get("locks") {
        None => {}
        // All entries are commented out.
        Some(locks) if locks.is_null() => {}
        Some(Node { value: Value::Sequence(entries), .. }) => {
            for node in entries {
                parse_entry(node, defaults, &name, is_preset, &mut file, faults);
            }
        }
        Some(other) => {
            faults.add(other.at, format!("locks is a list of entries, found {}", other.kind()));
        }
    }
    file
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

/// `all`, `none`, or which ones.
fn parse_presets(node: &Node, faults: &mut Faults<'_>) -> Option<PresetChoice> {
    let presets = match &node.value {
        Value::Scalar { text, .. } if text == "all" => Presets::All,
        Value::Scalar { text, .. } if text == "none" => Presets::None,
        Value::Mapping(pairs) => {
            let mut uses: Vec<PresetUse> = Vec::with_capacity(pairs.len());
            for (name, values) in pairs {
                let Some(text) = scalar(name) else {
                    faults.add(name.at, format!("a preset is a name, found {}", name.kind()));
                    continue;
                };
                if uses.iter().any(|known| *known.name == *text) {
                    faults.add(name.at, format!("{text} is given twice: keep one"));
                    continue;
                }
                let values = parse_preset_values(values, faults);
                uses.push(PresetUse { name: text.into(), values, at: name.at });
            }
            // Files that choose the same say the same, in whatever order.
            uses.sort_by(|a, b| a.name.cmp(&b.name));
            Presets::Some(uses)
        }
        Value::Scalar { .. } | Value::Sequence(_) => {
            faults.add(
                node.at,
                "presets is all, none, or the ones to use: { rails: {}, pg-boss: { schema: [jobs] } }",
            );
            return None;
        }
    };
    Some(PresetChoice { presets, at: node.at })
}

fn parse_preset_values(node: &Node, faults: &mut Faults<'_>) -> Vec<(Arc<str>, Vec<Arc<str>>)> {
    match &node.value {
        Value::Mapping(pairs) => {
            let mut lists: Vec<(Arc<str>, Vec<Arc<str>>)> = Vec::with_capacity(pairs.len());
            for (name, list) in pairs {
                match scalar(name) {
                    None => faults.add(name.at, "a placeholder is a word of letters, digits and _"),
                    Some(word) if lists.iter().any(|(known, _)| **known == *word) => {
                        faults.add(name.at, format!("{word} is given twice: keep one"));
                    }
                    Some(word) if !matches!(list.value, Value::Sequence(_)) => faults.add(
                        list.at,
                        format!(
                            "values of {word} for a preset are a list, found {}: write [a, b]",
                            list.kind()
                        ),
                    ),
                    Some(word) => {
                        let values = parse_value_list(word, list, faults);
                        lists.extend(values.map(|values| (word.into(), values)));
                    }
                }
            }
            lists.sort();
            lists
        }
        Value::Scalar { .. } if node.is_null() => Vec::new(),
        Value::Scalar { .. } | Value::Sequence(_) => {
            faults.add(
                node.at,
                format!(
                    "values of a preset are a mapping, found {}: write {{}} for its own ones",
                    node.kind()
                ),
            );
            Vec::new()
        }
    }
}

fn parse_entry(
    node: &Node,
    defaults: Limits,
    source: &Arc<str>,
    is_preset: bool,
    file: &mut File,
    faults: &mut Faults<'_>,
) {
    let Some(fields) = Fields::read(node, "an entry", &ENTRY_FIELDS, faults) else { return };
    let has_key = fields.get("key").is_some() || fields.get("keys").is_some();
    // Every field is read before any is missed, so that all faults are told at once.
    let name = parse_name(&fields, node.at, faults);
    let rules = if has_key { parse_keys(&fields, faults) } else { None };
    let draft = Draft::parse(&fields, faults);
    let values = match fields.get("values") {
        Some(node) => parse_values(node, faults),
        None => Some(Vec::new()),
    };
    let parameters = match fields.get("parameter") {
        Some(node) => parse_parameters(node, faults),
        None => Vec::new(),
    };
    let marker = fields.get("marker").map(|node| parse_marker(node, faults)).unwrap_or_default();
    if let Some(node) = fields.get("marker").filter(|_| !is_preset && has_key) {
        faults.add(
            node.at,
            "marker is for presets: an entry of a file names its key without evidence; remove it, \
             or say in which databases the key means this",
        );
    }
    if !has_key {
        if fields.is_incomplete() {
            return;
        }
        for field in ["values", "parameter", "marker"] {
            if let Some(node) = fields.get(field) {
                faults.add(
                    node.at,
                    format!("{field} belongs to a key, and this entry has none: add key:"),
                );
            }
        }
        if let Some(name) = name {
            file.overrides.push(Override { name, draft, file: source.clone(), at: node.at });
        }
        return;
    }
    let (Some(rules), Some(values)) = (rules, values) else { return };
    check_placeholders(&fields, &rules, &values, faults);
    check_parameters(&fields, &rules, &values, &parameters, faults);
    check_expectations(&fields, &rules, &values, faults);
    let Some(name) = name else { return };
    let entry = Entry {
        name,
        rules: rules.into(),
        values,
        databases: None,
        servers: None,
        except: Vec::new(),
        description: None,
        owner: None,
        runbook: None,
        parameters,
        labels_value: false,
        policy: Policy {
            max_hold: defaults.max_hold.unwrap_or(DEFAULT_MAX_HOLD),
            max_wait: defaults.max_wait.unwrap_or(DEFAULT_MAX_WAIT),
            max_idle_in_transaction: None,
            scope: None,
            mode: None,
            role: None,
            holders: None,
            must_be_held: false,
            vacant_for: None,
            last_held_within: None,
            not_again_within: None,
        },
        marker,
        file: source.clone(),
        is_preset,
        is_of_preset: is_preset,
        at: node.at,
    };
    file.entries.push(draft.apply(entry));
}

impl Draft {
    fn parse(fields: &Fields<'_>, faults: &mut Faults<'_>) -> Self {
        let databases = fields.get("databases").and_then(|node| parse_databases(node, faults));
        let servers = fields.get("servers").and_then(|node| parse_globs("servers", node, faults));
        let holders = fields.get("holders").and_then(|node| parse_globs("holders", node, faults));
        let mut said = |name| fields.get(name).and_then(|node| parse_said(name, node, faults));
        let (description, owner) = (said("description"), said("owner"));
        let runbook = fields.get("runbook").and_then(|node| parse_runbook(node, faults));
        let limits = parse_limits(fields, faults);
        let max_idle_in_transaction = fields
            .get("max_idle_in_transaction")
            .and_then(|node| parse_limit("max_idle_in_transaction", node, faults));
        let must_be_held =
            fields.get("must_be_held").and_then(|node| parse_flag("must_be_held", node, faults));
        let mut pause = |name| fields.get(name).and_then(|node| parse_pause(name, node, faults));
        let (vacant_for, last_held_within, not_again_within) =
            (pause("vacant_for"), pause("last_held_within"), pause("not_again_within"));
        if let Some(node) = fields.get("vacant_for")
            && must_be_held != Some(true)
        {
            faults.add(
                node.at,
                "vacant_for is the grace of must_be_held: add must_be_held: true, or remove it",
            );
        }
        Self {
            databases,
            servers,
            description,
            owner,
            runbook,
            labels_value: parse_word_of(
                "label",
                fields,
                &[("value", true), ("name", false)],
                faults,
            ),
            limits,
            max_idle_in_transaction,
            scope: parse_word_of(
                "scope",
                fields,
                &[("session", DeclaredScope::Session), ("transaction", DeclaredScope::Transaction)],
                faults,
            ),
            mode: parse_word_of(
                "mode",
                fields,
                &[("exclusive", DeclaredMode::Exclusive), ("share", DeclaredMode::Share)],
                faults,
            ),
            role: parse_word_of(
                "role",
                fields,
                &[("primary", Role::Primary), ("standby", Role::Standby), ("any", Role::Any)],
                faults,
            ),
            holders,
            must_be_held,
            vacant_for,
            last_held_within,
            not_again_within,
        }
    }

    /// The entry with what is said here in place of what it said.
    fn apply(&self, entry: Entry) -> Entry {
        let Policy { max_hold, max_wait, .. } = entry.policy;
        let policy = entry.policy;
        Entry {
            databases: self.databases.clone().or(entry.databases),
            servers: self.servers.clone().or(entry.servers),
            description: self.description.clone().or(entry.description),
            owner: self.owner.clone().or(entry.owner),
            runbook: self.runbook.clone().or(entry.runbook),
            labels_value: self.labels_value.unwrap_or(entry.labels_value),
            policy: Policy {
                max_hold: self.limits.max_hold.unwrap_or(max_hold),
                max_wait: self.limits.max_wait.unwrap_or(max_wait),
                max_idle_in_transaction: self
                    .max_idle_in_transaction
                    .or(policy.max_idle_in_transaction),
                scope: self.scope.or(policy.scope),
                mode: self.mode.or(policy.mode),
                role: self.role.or(policy.role),
                holders: self.holders.clone().or(policy.holders),
                must_be_held: self.must_be_held.unwrap_or(policy.must_be_held),
                vacant_for: self.vacant_for.or(policy.vacant_for),
                last_held_within: self.last_held_within.or(policy.last_held_within),
                not_again_within: self.not_again_within.or(policy.not_again_within),
            },
            ..entry
        }
    }

    fn has_expectation(&self) -> bool {
        self.must_be_held == Some(true)
            || self.last_held_within.is_some()
            || self.not_again_within.is_some()
    }
}

impl Override {
    /// The preset's entry as this file wants it. Said of databases, it is an entry of the file for
    /// these, which needs no evidence, and the preset stays what it is elsewhere.
    pub(super) fn apply(&self, preset: &Entry) -> Entry {
        let entry = self.draft.apply(preset.clone());
        match self.reach() {
            Reach::Databases => Entry {
                is_preset: false,
                marker: Marker::default(),
                file: self.file.clone(),
                at: self.at,
                ..entry
            },
            Reach::Servers(_) | Reach::Everywhere => entry,
        }
    }

    pub(super) fn reach(&self) -> Reach {
        match (&self.draft.databases, &self.draft.servers) {
            (Some(_), _) => Reach::Databases,
            (None, Some(servers)) => Reach::Servers(servers.clone()),
            (None, None) => Reach::Everywhere,
        }
    }

    /// What it says of its name.
    pub(super) fn about_name(&self) -> [Option<&Said>; 3] {
        let Draft { owner, runbook, description, .. } = &self.draft;
        [owner.as_ref(), runbook.as_ref(), description.as_ref()]
    }

    /// What is wrong with saying this of `preset`.
    pub(super) fn fault(&self, preset: &Entry) -> Option<&'static str> {
        if !self.draft.has_expectation() {
            return None;
        }
        if self.draft.databases.is_none() {
            return Some("this needs to know where the key is expected: add databases: [name]");
        }
        let is_exact = preset.rules.iter().all(KeyRule::is_one_key) && preset.values.is_empty();
        (!is_exact).then_some("this is about one key, and the preset stands for many: remove it")
    }
}

impl Entry {
    /// What it says of its name, in the order of [`ABOUT_NAMES`].
    pub(super) fn about_name(&self) -> [Option<&Said>; 3] {
        [self.owner.as_ref(), self.runbook.as_ref(), self.description.as_ref()]
    }

    pub(super) fn holds_on(&self, server: &str) -> bool {
        let lists = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(server));
        self.servers.as_ref().is_none_or(|globs| lists(globs))
            && !self.except.iter().any(|globs| lists(globs))
    }

    /// Where it says so.
    pub(super) fn origin(&self, at: Position) -> Origin {
        if self.is_preset {
            Origin::Preset(self.file.clone())
        } else {
            Origin::File { file: self.file.clone(), line: at.line, column: at.column }
        }
    }

    /// What the placeholders in one of its keys may stand for.
    pub(super) fn values_of(&self, rule: &KeyRule) -> impl Iterator<Item = (&Arc<str>, &Values)> {
        let templates = rule.templates();
        let is_used = move |name: &Arc<str>| {
            templates.iter().any(|template| template.placeholders().any(|used| used == name))
        };
        let used: Vec<_> = self.values.iter().filter(|(name, _)| is_used(name)).collect();
        used.into_iter().map(|(name, values)| (name, values))
    }

    /// Values in one of its keys that are asked of a server.
    pub(super) fn queries_of(&self, rule: &KeyRule) -> impl Iterator<Item = &Arc<ValuesQuery>> {
        self.values_of(rule).filter_map(|(_, values)| match values {
            Values::Query(query) => Some(query),
            Values::List(_) | Values::File { .. } => None,
        })
    }

    /// Values that are asked of a server.
    pub(super) fn queries(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<ValuesQuery>)> {
        self.values.iter().filter_map(|(name, values)| match values {
            Values::Query(query) => Some((name, query)),
            Values::List(_) | Values::File { .. } => None,
        })
    }
}

fn check_placeholders(
    fields: &Fields<'_>,
    rules: &[KeyRule],
    values: &[(Arc<str>, Values)],
    faults: &mut Faults<'_>,
) {
    let mut used: BTreeSet<&str> = BTreeSet::new();
    for template in rules.iter().flat_map(KeyRule::templates) {
        for name in template.placeholders() {
            used.insert(name);
            let is_known = &**name == DATABASE || values.iter().any(|(known, _)| known == name);
            if !is_known {
                faults.add(
                    template.at,
                    format!(
                        "placeholder {{{name}}} has no values: add values: {{ {name}: [...] }}, \
                         or write {{{{{name}}}}} if the braces belong to the text"
                    ),
                );
            }
        }
    }
    if let Some(node) = fields.get("values") {
        for (name, _) in values {
            if !used.contains(&**name) {
                faults.add(
                    node.at,
                    format!(
                        "no key has the placeholder {{{name}}}: put it in, or remove its values"
                    ),
                );
            }
        }
    }
}

fn check_parameters(
    fields: &Fields<'_>,
    rules: &[KeyRule],
    values: &[(Arc<str>, Values)],
    parameters: &[Arc<str>],
    faults: &mut Faults<'_>,
) {
    let free = rules.iter().map(KeyRule::free_parts).max().unwrap_or(0);
    if let Some(node) = fields.get("parameter")
        && !parameters.is_empty()
    {
        if free == 0 {
            faults.add(
                node.at,
                "parameter names the free half of a pair, and no key here has one: remove it, \
                 or write \"*\" for that half",
            );
        } else if parameters.len() != free {
            faults.add(
                node.at,
                format!(
                    "the key leaves {free} parts free, and parameter names {}: name each",
                    parameters.len()
                ),
            );
        }
        for name in parameters {
            if values.iter().any(|(known, _)| known == name) {
                faults.add(node.at, format!("{name} is a placeholder too: choose another word"));
            }
        }
    }
    if let Some(node) = fields.get("label")
        && free == 0
        && values.is_empty()
    {
        faults.add(
            node.at,
            "label: value puts the values of placeholders or free parts into the label, and no \
             key here has any: remove it",
        );
    }
}

fn check_expectations(
    fields: &Fields<'_>,
    rules: &[KeyRule],
    values: &[(Arc<str>, Values)],
    faults: &mut Faults<'_>,
) {
    for field in EXPECTATIONS {
        let Some(node) = fields.get(field) else { continue };
        if field == "must_be_held" && is_false(node) {
            continue;
        }
        if fields.get("databases").is_none_or(is_any) {
            faults.add(
                node.at,
                format!("{field} needs to know where the key is expected: add databases: [name]"),
            );
        }
        if !rules.iter().all(KeyRule::is_one_key) || !values.is_empty() {
            faults.add(
                node.at,
                format!(
                    "{field} is about one key: remove it, or give the key without a free half, \
                     a range or values"
                ),
            );
        }
    }
}

fn is_false(node: &Node) -> bool {
    scalar(node) == Some("false")
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
        _ if text.contains(is_direction) => {
            format!("{text:?} contains a character that turns the direction of text: remove it")
        }
        _ if text.chars().count() > MAX_NAME => {
            format!("a name of more than {MAX_NAME} characters is a description: shorten it")
        }
        _ => return Some(text.into()),
    };
    faults.add(node.at, message);
    None
}

/// Makes a name look like another one wherever text of both directions is shown.
fn is_direction(letter: char) -> bool {
    matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn parse_keys(fields: &Fields<'_>, faults: &mut Faults<'_>) -> Option<Vec<KeyRule>> {
    match (fields.get("key"), fields.get("keys")) {
        (Some(key), None) => Some(vec![parse_key(key, faults)?]),
        (None, Some(Node { value: Value::Sequence(keys), .. })) if !keys.is_empty() => {
            let rules: Vec<_> = keys.iter().map(|key| parse_key(key, faults)).collect();
            rules.into_iter().collect()
        }
        (None, Some(other)) => {
            faults.add(other.at, "keys is a list of at least one key: for one alone write key");
            None
        }
        (Some(_), Some(keys)) => {
            faults.add(keys.at, "key and keys exclude each other: put all into keys");
            None
        }
        (None, None) => None,
    }
}

/// What placeholders stand for.
fn parse_values(node: &Node, faults: &mut Faults<'_>) -> Option<Vec<(Arc<str>, Values)>> {
    let Value::Mapping(pairs) = &node.value else {
        faults.add(
            node.at,
            format!(
                "values is a mapping from placeholders to lists, found {}: write \
                 {{ customer: [a, b] }}",
                node.kind()
            ),
        );
        return None;
    };
    let mut values: Vec<(Arc<str>, Values)> = Vec::with_capacity(pairs.len());
    let mut is_sound = true;
    for (name, source) in pairs {
        let word = scalar(name).filter(|word| is_word(word));
        let Some(word) = word else {
            faults.add(name.at, "a placeholder is a word of letters, digits and _");
            is_sound = false;
            continue;
        };
        if word == DATABASE {
            faults.add(
                name.at,
                "{database} is the lock's own database and takes no values: choose another word",
            );
            is_sound = false;
        } else if values.iter().any(|(known, _)| **known == *word) {
            faults.add(name.at, format!("{word} is given twice: keep one"));
            is_sound = false;
        } else {
            match parse_value_source(word, source, faults) {
                Some(source) => values.push((word.into(), source)),
                None => is_sound = false,
            }
        }
    }
    is_sound.then_some(values)
}

fn parse_value_source(word: &str, node: &Node, faults: &mut Faults<'_>) -> Option<Values> {
    let Value::Mapping(_) = &node.value else {
        return parse_value_list(word, node, faults).map(Values::List);
    };
    let fields = Fields::read(
        node,
        "a source of values",
        &["file", "query", "database", "refresh"],
        faults,
    )?;
    match fields.only_one_of(&["file", "query"], "file or query", faults)? {
        ("file", path) => {
            fields.refuse_beside("file", &["database", "refresh"], faults);
            let text = parse_text("file", path, faults)?;
            Some(Values::File { path: text.into(), at: path.at })
        }
        (_, query) => {
            let sql = parse_text("query", query, faults)?;
            // The rest is the server's to judge, and it is asked in a read-only transaction.
            if !opens_a_query(&sql) {
                faults.add(
                    query.at,
                    "a query is one SELECT, VALUES, TABLE or WITH that gives one column of text",
                );
            }
            let database = match fields.get("database") {
                Some(node) => parse_text("database", node, faults),
                None => {
                    faults.add(
                        node.at,
                        "a query needs the database it runs in: add database: and its name",
                    );
                    None
                }
            };
            let refresh = match fields.get("refresh") {
                Some(node) => parse_pause("refresh", node, faults)
                    .filter(|refresh| *refresh >= SHORTEST_REFRESH)
                    .or_else(|| {
                        faults.add(node.at, "refresh is at least 1m: the server pays for it");
                        None
                    }),
                None => Some(DEFAULT_REFRESH),
            };
            Some(Values::Query(Arc::new(ValuesQuery {
                database: database?.into(),
                sql: sql.into(),
                refresh: refresh?,
            })))
        }
    }
}

/// Whether it may begin so; what is behind a comment or a parenthesis is not looked at.
fn opens_a_query(sql: &str) -> bool {
    let sql = sql.trim_start();
    let word = sql.split(|c: char| !c.is_ascii_alphabetic()).next().unwrap_or_default();
    ["SELECT", "VALUES", "TABLE", "WITH"].iter().any(|known| word.eq_ignore_ascii_case(known))
        || ["(", "--", "/*"].iter().any(|opening| sql.starts_with(opening))
}

fn parse_value_list(word: &str, node: &Node, faults: &mut Faults<'_>) -> Option<Vec<Arc<str>>> {
    let Value::Sequence(items) = &node.value else {
        faults.add(
            node.at,
            format!(
                "values of {word} are a list, a file or a query, found {}: write [a, b], \
                 {{ file: path }} or {{ query: sql, database: name }}",
                node.kind()
            ),
        );
        return None;
    };
    if items.is_empty() {
        faults.add(node.at, format!("the list of values of {word} is empty: add one"));
        return None;
    }
    let mut seen = BTreeSet::new();
    let mut values = Vec::with_capacity(items.len());
    for item in items {
        let text = parse_text("a list of values", item, faults)?;
        if seen.insert(text.clone()) {
            values.push(text.into());
        }
    }
    Some(values)
}

fn parse_marker(node: &Node, faults: &mut Faults<'_>) -> Marker {
    let fields = Fields::read(node, "a marker", &["tables", "applications"], faults);
    let Some(fields) = fields else { return Marker::default() };
    let tables = fields.get("tables").and_then(|node| parse_list("tables", node, faults));
    let tables = tables.unwrap_or_default();
    for (at, table) in &tables {
        if !table.contains('.') {
            faults.add(*at, format!("{table:?} has no schema: write schema.table"));
        }
    }
    let applications =
        fields.get("applications").and_then(|node| parse_globs("applications", node, faults));
    Marker {
        tables: tables.into_iter().map(|(_, table)| table.into()).collect(),
        applications: applications.unwrap_or_default(),
    }
}

/// A word of a few, by its meaning.
fn parse_word_of<T: Copy>(
    field: &str,
    fields: &Fields<'_>,
    words: &[(&str, T)],
    faults: &mut Faults<'_>,
) -> Option<T> {
    let node = fields.get(field)?;
    let known = || {
        let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        words.join(" or ")
    };
    let Some(text) = scalar(node) else {
        faults.add(node.at, format!("{field} is {}, found {}", known(), node.kind()));
        return None;
    };
    let meaning = words.iter().find(|(word, _)| *word == text).map(|(_, meaning)| *meaning);
    if meaning.is_none() {
        faults.add(node.at, format!("unknown {field} {text:?}: write {}", known()));
    }
    meaning
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

/// Patterns for names; `None` for any.
fn parse_globs(field: &str, node: &Node, faults: &mut Faults<'_>) -> Option<Arc<[Glob]>> {
    let names = parse_list(field, node, faults)?;
    for (at, name) in &names {
        if name.len() > MAX_GLOB {
            faults.add(*at, format!("no name in {field} has more than {MAX_GLOB} bytes"));
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

/// What the free parts of a key are called.
fn parse_parameters(node: &Node, faults: &mut Faults<'_>) -> Vec<Arc<str>> {
    let nodes = match &node.value {
        Value::Sequence(items) if !items.is_empty() => items.as_slice(),
        Value::Sequence(_) | Value::Scalar { .. } | Value::Mapping(_) => std::slice::from_ref(node),
    };
    let mut words: Vec<Arc<str>> = Vec::with_capacity(nodes.len());
    for node in nodes {
        match scalar(node).filter(|text| is_word(text)) {
            Some(word) if words.iter().any(|known| **known == *word) => {
                faults
                    .add(node.at, format!("{word} is given twice: name each part by another word"));
            }
            Some(word) => words.push(word.into()),
            None => {
                faults.add(
                    node.at,
                    "parameter is a word of letters, digits and _ that says what the free half is, \
                     as in tenant",
                );
                return Vec::new();
            }
        }
    }
    words
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

/// A duration that is not nothing.
fn parse_pause(field: &str, node: &Node, faults: &mut Faults<'_>) -> Option<Duration> {
    let message = match scalar(node).map(parse_duration) {
        Some(Ok(Duration::ZERO)) => format!("{field} must be longer than 0"),
        Some(Ok(duration)) => return Some(duration),
        Some(Err(error)) => error.to_string(),
        None => format!("{field} is a duration, found {}", node.kind()),
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
        let file = parse_file(&source, false, &mut faults);
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
    fn values_for_a_preset_are_a_list_and_nothing_else() {
        for (values, kind) in [("{ file: a.txt }", "a mapping"), ("jobs", "a text")] {
            let text = format!("presets: {{ pg-boss: {{ schema: {values} }} }}");
            assert_eq!(
                parse(&text).unwrap_err(),
                [format!(
                    "1:31: values of schema for a preset are a list, found {kind}: write [a, b]"
                )]
            );
        }
    }

    #[test]
    fn a_query_that_cannot_read_is_refused_before_a_server_is_asked() {
        let outcome = |sql: &str| {
            parse(&format!(
                "locks:\n- {{ name: a, key: {{ hashtext: '{{v}}' }}, \
                 values: {{ v: {{ query: \"{sql}\", database: app }} }} }}\n"
            ))
        };
        for sql in
            ["select a from b", "(SELECT 'a')", "-- why\\nTABLE b", "WITH\\nx AS (VALUES (1))"]
        {
            assert!(outcome(sql).is_ok(), "{sql}");
        }
        for sql in ["DELETE FROM b", "COPY b TO STDOUT", "SELECTED", ""] {
            let faults = outcome(sql).unwrap_err();
            assert!(
                faults[0].contains("a query is one SELECT, VALUES, TABLE or WITH"),
                "{faults:?}"
            );
        }
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
        assert_eq!(entry.rules.len(), 2);
        let databases: Vec<&str> = entry.databases.iter().flatten().map(|name| &**name).collect();
        assert_eq!(databases, ["app", "billing"]);
        assert_eq!(entry.servers.as_deref(), Some(&[Glob::new("orders-*")][..]));
        let text = |said: &Option<Said>| said.as_ref().map(|said| said.text.to_string()).unwrap();
        assert_eq!(text(&entry.description), "Nightly\nrecalculation");
        assert_eq!(text(&entry.owner), "growth");
        assert_eq!(text(&entry.runbook), "HTTPS://wiki.example.com/recalc");
        assert_eq!((entry.policy.max_hold, entry.policy.max_wait), (minutes(30), Limit::Unlimited));
        assert_eq!(entry.policy.scope, Some(DeclaredScope::Session));
        assert_eq!(entry.policy.last_held_within, Some(Duration::from_secs(25 * 3600)));
    }

    #[test]
    fn defaults_hold_for_the_entries_of_their_file_wherever_they_stand() {
        let file = parse(
            "locks: [{ name: a, key: 1 }, { name: b, key: 2, max_wait: 5m }]\n\
             defaults: { max_hold: 20m, max_wait: 2m, unregistered: { max_hold: 3h } }\n",
        )
        .unwrap();
        let limits: Vec<_> =
            file.entries.iter().map(|e| (e.policy.max_hold, e.policy.max_wait)).collect();
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
                "1:1: a registry file is a mapping with the fields defaults, presets, locks, found a text",
            ),
            (
                "- a",
                "1:1: a registry file is a mapping with the fields defaults, presets, locks, found a list",
            ),
            ("lock: []", "1:1: unknown field \"lock\" in a registry file: did you mean locks?"),
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
                "locks:\n- key: 1\n",
                "2:3: this entry has no name: add name: and what people call the lock",
            ),
            (
                "locks:\n- jobs\n",
                "2:3: an entry is a mapping with name, key and other fields, found a text",
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
            ("ower: x", "2:22: unknown field \"ower\" in an entry: did you mean owner?"),
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
                "2:58: last_held_within must be longer than 0",
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
        assert_eq!(file.entries[0].parameters, [Arc::from("tenant")]);
        assert_eq!(
            parse(&entry("parameter: tenant id")).unwrap_err(),
            [
                "2:50: parameter is a word of letters, digits and _ that says what the free half is, as in tenant"
            ]
        );
        assert_eq!(
            parse(&entry("databases: [app], last_held_within: 25h")).unwrap_err(),
            [
                "2:75: last_held_within is about one key: remove it, or give the key without a free half, a range or values"
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
            (
                "\"a\\u202eb\"",
                "\"a\\u{202e}b\" contains a character that turns the direction of text: remove it",
            ),
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
