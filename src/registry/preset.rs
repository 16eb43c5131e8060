//! Presets: the keys of well-known tools, as registry files that are part of the binary.
//!
//! They are written in the same language as everybody's files and read by the same parser. What is
//! special about them (they speak last, and only with evidence for small numbers) is decided in
//! [`resolver`](super::resolver). Here it is decided which of them are used, and what files change
//! in them.

use std::sync::{Arc, LazyLock};

use super::Source;
use super::entry::{Entry, File, PresetUse, Presets, Reach, Values, parse_file};
use super::fault::Faults;

macro_rules! presets {
    ($($name:literal),* $(,)?) => {
        &[$(($name, include_str!(concat!("presets/", $name, ".yaml")))),*]
    };
}

/// By name; each is a file under `presets/`.
pub(super) const PRESETS: &[(&str, &str)] = presets![
    "airflow",
    "alembic",
    "atlas",
    "authentik",
    "awx",
    "boundary",
    "citus",
    "coder",
    "concourse",
    "electric",
    "evolve",
    "flyway",
    "golang-migrate",
    "goose",
    "grafana",
    "graph-node",
    "graphile-migrate",
    "immich",
    "infisical",
    "kysely",
    "lemmy",
    "liquibase-sessionlock",
    "madelson",
    "marten",
    "n8n",
    "netbox",
    "node-pg-migrate",
    "pg-auto-failover",
    "pg-boss",
    "pg-partman",
    "pg-repack",
    "pgbackrest",
    "postgres-migrations",
    "prisma",
    "pulp",
    "rails",
    "railseventstore",
    "sourcegraph",
    "spicedb",
    "sqitch",
    "sqlx",
    "tern",
    "unleash",
    "wal-g",
];

/// The entries of each preset. They are the same in every registry, so they are parsed once.
static ENTRIES: LazyLock<Vec<(&str, Vec<Entry>)>> = LazyLock::new(|| {
    let parse = |(name, text): &(&'static str, &str)| {
        let source = Source { name: (*name).to_owned(), text: (*text).to_owned() };
        let mut faults = Faults::new(&source);
        let file = parse_file(&source, true, &mut faults);
        debug_assert!(faults.is_empty(), "{:?}", faults.finish());
        (*name, file.entries)
    };
    PRESETS.iter().map(parse).collect()
});

/// The entries of the presets that the files want, with what they say of them.
pub(super) fn choose(files: &mut [(File, Faults<'_>)]) -> Vec<Entry> {
    let wanted = wanted(files);
    let mut entries: Vec<Entry> = Vec::new();
    for (name, preset) in ENTRIES.iter() {
        let values = match &wanted {
            Presets::All => &[][..],
            Presets::None => continue,
            Presets::Some(uses) => match uses.iter().find(|used| &*used.name == *name) {
                Some(used) => &used.values,
                None => continue,
            },
        };
        entries.extend(preset.iter().cloned().map(|mut entry| {
            for (placeholder, list) in &mut entry.values {
                if let Some((_, values)) = values.iter().find(|(given, _)| given == placeholder) {
                    *list = Values::List(values.clone());
                }
            }
            entry
        }));
    }
    apply_overrides(files, &mut entries);
    entries
}

/// A preset that cannot be computed is a fault where a file chose its values.
pub(super) fn blame(files: &mut [(File, Faults<'_>)], entry: &Entry, found: Faults<'_>) {
    for fault in found.finish() {
        let chosen = files.iter_mut().find_map(|(file, faults)| {
            let Presets::Some(uses) = &file.presets.as_ref()?.presets else { return None };
            let used = uses.iter().find(|used| used.name == entry.file)?;
            Some((used.at, faults))
        });
        debug_assert!(chosen.is_some(), "presets can be computed: {fault}");
        if let Some((at, faults)) = chosen {
            faults.add(at, format!("preset {}: {}", entry.file, fault.message));
        }
    }
}

/// What the files say together: they must not contradict each other.
fn wanted(files: &mut [(File, Faults<'_>)]) -> Presets {
    let mut wanted: Option<(Presets, String)> = None;
    for (file, faults) in files {
        let Some(choice) = &file.presets else { continue };
        if let Presets::Some(uses) = &choice.presets {
            for used in uses {
                check_use(used, faults);
            }
        }
        match &wanted {
            None => {
                let place = format!("{}:{}", faults.file(), choice.at.line);
                wanted = Some((choice.presets.clone(), place));
            }
            Some((presets, _)) if *presets == choice.presets => {}
            Some((_, place)) => faults.add(
                choice.at,
                format!("presets are chosen otherwise at {place}: say it in one file"),
            ),
        }
    }
    wanted.map_or(Presets::All, |(presets, _)| presets)
}

fn check_use(used: &PresetUse, faults: &mut Faults<'_>) {
    let Some((name, entries)) = ENTRIES.iter().find(|(name, _)| *name == &*used.name) else {
        let known = PRESETS.iter().map(|(name, _)| *name);
        let mend = match similar(&used.name, known.clone()) {
            Some(name) => format!("did you mean {name}?"),
            None => format!("the known ones are {}", known.collect::<Vec<_>>().join(", ")),
        };
        faults.add(used.at, format!("there is no preset {:?}: {mend}", used.name));
        return;
    };
    if used.values.is_empty() {
        return;
    }
    let placeholders: Vec<Arc<str>> = entries
        .iter()
        .flat_map(|entry| entry.values.iter().map(|(name, _)| name.clone()))
        .collect();
    for (given, _) in &used.values {
        if !placeholders.contains(given) {
            let mut known: Vec<&str> = placeholders.iter().map(|name| &**name).collect();
            known.sort_unstable();
            known.dedup();
            let mend = if known.is_empty() {
                "it takes none".to_owned()
            } else {
                format!("it takes {}", known.join(", "))
            };
            faults.add(used.at, format!("preset {name} takes no values for {given}: {mend}"));
        }
    }
}

/// Entries without a key change the preset of their name: what is said everywhere first, so that
/// what is said of some servers or databases builds on it whichever file comes first.
fn apply_overrides(files: &mut [(File, Faults<'_>)], entries: &mut Vec<Entry>) {
    let mut changed: Vec<(Arc<str>, String)> = Vec::new();
    for (file, faults) in files.iter_mut() {
        for said in &file.overrides {
            let mut is_known = false;
            for entry in entries.iter_mut().filter(|entry| entry.name == said.name) {
                is_known = true;
                if let Some(fault) = said.fault(entry) {
                    faults.add(said.at, fault);
                } else if matches!(said.reach(), Reach::Everywhere) {
                    *entry = said.apply(entry);
                }
            }
            if !is_known {
                let mend = mend_unknown(&said.name, entries);
                faults.add(said.at, format!("this entry has no key, and {mend}"));
            } else if matches!(said.reach(), Reach::Everywhere) {
                match changed.iter().find(|(name, _)| *name == said.name) {
                    Some((name, first)) => faults.add(
                        said.at,
                        format!(
                            "preset {name:?} is changed at {first} already: say it in one place"
                        ),
                    ),
                    None => {
                        changed
                            .push((said.name.clone(), format!("{}:{}", said.file, said.at.line)));
                    }
                }
            }
        }
    }
    let mut elsewhere: Vec<Entry> = Vec::new();
    for (file, _) in files {
        for said in &file.overrides {
            for entry in entries.iter_mut().filter(|entry| entry.name == said.name) {
                match said.reach() {
                    Reach::Everywhere => {}
                    Reach::Servers(servers) => {
                        elsewhere.push(Entry { except: Vec::new(), ..said.apply(entry) });
                        entry.except.push(servers);
                    }
                    Reach::Databases => {
                        let entry = said.apply(entry);
                        file.entries.push(Entry { except: Vec::new(), ..entry });
                    }
                }
            }
        }
    }
    entries.append(&mut elsewhere);
}

/// An entry without a key changes what is in use under its name. `entries` are in use.
fn mend_unknown(name: &str, entries: &[Entry]) -> String {
    let of_preset = |it: &&(&str, Vec<Entry>)| it.1.iter().any(|entry| &*entry.name == name);
    if let Some((preset, _)) = ENTRIES.iter().find(of_preset) {
        return format!("the preset of that name is not in use: add {preset}: {{}} to presets");
    }
    if let Some((preset, its)) = ENTRIES.iter().find(|(preset, _)| *preset == name) {
        let mut names: Vec<&str> = its.iter().map(|entry| &*entry.name).collect();
        names.dedup();
        return format!("{preset} is a preset, not a name that it gives: write {}", any_of(&names));
    }
    let known = entries.iter().map(|entry| &*entry.name);
    let likely = similar(name, known).map(|name| format!(", or write {name}"));
    format!(
        "no preset in use is called {name:?}: add key: and the number or hash that is locked{}",
        likely.unwrap_or_default()
    )
}

fn any_of(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [others @ .., last] => format!("{} or {last}", others.join(", ")),
    }
}

/// What was probably meant.
fn similar<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let likeness = |known: &str| strsim::jaro_winkler(name, known);
    let nearest = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))?;
    (likeness(nearest) > 0.85).then_some(nearest)
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Doubt, Registry, Signs};
    use crate::key::Key;

    const PRISMA: Key = Key::bigint(72_707_369);

    #[test]
    fn files_choose_all_presets_none_or_some_with_values_of_their_own() {
        let labels = |text: &str| {
            let registry = registry(text);
            let electric = |slot: &[u8]| Key::bigint(super::super::hash::hashtext(slot).into());
            [PRISMA, electric(b"electric_slot_default"), electric(b"electric_slot_blue")]
                .map(|key| label(&registry, APP, key))
        };
        assert_eq!(labels(""), ["prisma-migrate", "electric-replication", "unregistered"]);
        assert_eq!(labels("presets: none"), ["unregistered"; 3]);
        assert_eq!(
            labels("presets: { electric: { slot: [electric_slot_blue] } }"),
            ["unregistered", "unregistered", "electric-replication"]
        );
    }

    #[test]
    fn however_few_keys_are_allowed_presets_have_their_names() {
        for max_keys in [1, 100] {
            let registry = Registry::load_sources(&[source("f", "locks: []")], max_keys).unwrap();
            assert_eq!(label(&registry, APP, PRISMA), "prisma-migrate");
        }
        let keys: Vec<String> = (0..100).map(|n: u8| n.to_string()).collect();
        let text = format!("locks: [{{ name: a, keys: [{}] }}]", keys.join(","));
        let registry = Registry::load_sources(&[source("f", &text)], 100).unwrap();
        assert_eq!(label(&registry, APP, PRISMA), "prisma-migrate");
    }

    #[test]
    fn values_for_a_preset_that_cannot_be_computed_are_a_fault_of_the_file() {
        let text = refusal("presets: { electric: { slot: [\"a\\0\"] } }");
        assert_eq!(
            text.lines().next(),
            Some(
                "f:1:12: preset electric: the text contains NUL, which no text in PostgreSQL does \
                 (with slot \"a\\0\")"
            )
        );
        let list = (0..2000).map(|n| n.to_string()).collect::<Vec<_>>().join(",");
        let sources = [source(
            "f",
            &format!("presets: {{ flyway: {{ schema: [{list}], table: [{list}] }} }}"),
        )];
        let text = Registry::load_sources(&sources, 100).unwrap_err().to_string();
        assert!(
            text.starts_with("f:1:12: preset flyway: with this entry, keys times values times"),
            "{text}"
        );
    }

    #[test]
    fn values_for_a_preset_are_named_once() {
        let first_line = |text: &str| refusal(text).lines().next().unwrap().to_owned();
        assert_eq!(
            first_line("presets: { flyway: { schema: [a], schema: [b] } }"),
            "f:1:35: schema is given twice: keep one"
        );
        assert_eq!(
            first_line("presets: { flyway: { [schema]: [a] } }"),
            "f:1:22: a placeholder is a word of letters, digits and _"
        );
        assert_eq!(
            first_line("presets: { flyway: { scheme: [a] } }"),
            "f:1:12: preset flyway takes no values for scheme: it takes schema, table"
        );
    }

    #[test]
    fn a_preset_that_is_changed_for_some_servers_needs_its_evidence_there_too() {
        let registry = registry(
            "locks:\n\
             - { name: prisma-migrate, servers: ['orders-*'], max_hold: 1h }\n\
             - { name: spicedb-revision-heartbeat, servers: ['orders-*'], max_hold: 1m }\n\
             - { name: own, key: 75474063 }\n\
             - { name: sqitch-deploy, servers: ['orders-*'], max_hold: 1m }\n",
        );
        let hold = |server: &str| resolve(&registry, server, APP, PRISMA).max_hold;
        assert_eq!(hold("orders-1"), minutes(60), "more than the preset's own is possible too");
        assert_eq!(hold("billing-1"), minutes(15));
        let small = resolve(&registry, "orders-1", APP, Key::bigint(2));
        assert_eq!(small.label(), "unregistered");
        assert!(small.candidates.iter().any(|it| &*it.name == "spicedb-revision-heartbeat"));
        assert_eq!(resolve(&registry, "orders-1", APP, Key::bigint(75_474_063)).label(), "own");
        assert!(registry.conflicts().is_empty());
    }

    #[test]
    fn a_preset_that_is_changed_for_a_database_is_named_there_without_evidence() {
        let registry = registry(
            "locks:\n\
             - { name: spicedb-revision-heartbeat, databases: [app], must_be_held: true }\n\
             - { name: distributed-lock, databases: [app], max_hold: 1m }\n",
        );
        let resolver = resolver(&registry, "db-1", &[]);
        let label = |database, key| resolver.resolve(Some(database), key, Signs::default());
        assert_eq!(label("app", Key::bigint(2)).label(), "spicedb-revision-heartbeat");
        assert_eq!(label("other", Key::bigint(2)).label(), "unregistered");
        assert!(registry.wanted("db-1").iter().all(|wanted| wanted.lock.is_none()));
        let pack = |name: &[u8]| name.iter().fold(0, |word, byte| (word << 7) | u64::from(*byte));
        let eight = Key::from_word((pack(b"abcdefgh") << 8) | 0x7f, 2);
        let resolution = label("app", eight);
        assert_eq!(resolution.label(), "unregistered");
        assert_eq!(resolution.candidates[0].doubt, Some(Doubt::Chance));
    }

    #[test]
    fn what_is_said_everywhere_holds_for_a_database_too_in_any_order_of_files() {
        let mut sources = [
            source("a", "locks: [{ name: prisma-migrate, max_hold: 1h, owner: dba }]"),
            source("b", "locks: [{ name: prisma-migrate, databases: [app], max_wait: 1s }]"),
        ];
        for _ in 0..2 {
            let registry = Registry::parse(&sources).unwrap();
            let resolution = resolve(&registry, "db-1", APP, PRISMA);
            assert_eq!((resolution.max_hold, resolution.label()), (minutes(60), "prisma-migrate"));
            assert_eq!(resolution.max_wait.as_secs_f64(), 1.0);
            sources.reverse();
        }
    }

    #[test]
    fn an_owner_that_a_file_gives_a_preset_is_told_of_the_name() {
        let registry =
            registry("locks: [{ name: prisma-migrate, owner: dba, runbook: 'https://w' }]");
        let [lock] = registry.locks() else { panic!("{:?}", registry.locks()) };
        assert_eq!((&*lock.name, lock.owner.as_deref()), ("prisma-migrate", Some("dba")));
        assert_eq!(lock.runbook.as_deref(), Some("https://w"));
        assert!(lock.description.as_deref().is_some_and(|it| it.contains("prisma/prisma-engines")));
        let text = refusal(
            "locks:\n\
             - { name: prisma-migrate, owner: dba }\n\
             - { name: prisma-migrate, key: 5, owner: growth }\n",
        );
        assert!(
            text.starts_with("f:2:34: the owner of \"prisma-migrate\" is another one at f:3"),
            "{text}"
        );
    }

    #[test]
    fn what_only_the_preset_says_of_a_name_contradicts_nothing() {
        let registry = registry(
            "locks:\n\
             - { name: prisma-migrate, databases: [app], max_hold: 5m }\n\
             - { name: prisma-migrate, key: 5, description: ours }\n",
        );
        assert_eq!(registry.locks()[0].description.as_deref(), Some("ours"));
    }

    #[test]
    fn a_marker_in_a_file_is_refused_with_the_mend() {
        let text = refusal("locks: [{ name: a, key: 5, marker: { tables: [public.a] } }]");
        assert!(text.starts_with("f:1:36: marker is for presets"), "{text}");
    }
}
