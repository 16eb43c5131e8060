//! Presets: the keys of well-known tools, as registry files that are part of the binary.
//!
//! They are written in the same language as everybody's files and read by the same parser. What is
//! special about them (they speak last, and only with evidence for small numbers) is decided in
//! [`resolver`](super::resolver). Here it is decided which of them are used, and what files change
//! in them.

use std::sync::{Arc, LazyLock};

use super::Source;
use super::entry::{Entry, File, PresetUse, Presets, Values, parse_file};
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

/// Entries without a key change the preset of their name.
fn apply_overrides(files: &mut [(File, Faults<'_>)], entries: &mut [Entry]) {
    let mut changed: Vec<(Arc<str>, String)> = Vec::new();
    for (file, faults) in files {
        for said in std::mem::take(&mut file.overrides) {
            let place = format!("{}:{}", said.file, said.at.line);
            let mut own = Vec::new();
            let mut is_known = false;
            for entry in entries.iter_mut().filter(|entry| entry.name == said.name) {
                is_known = true;
                if let Some(fault) = said.fault(entry) {
                    faults.add(said.at, fault);
                } else if said.is_local() {
                    own.push(said.apply(entry));
                } else {
                    *entry = said.apply(entry);
                }
            }
            file.entries.extend(own);
            if !is_known {
                let mend = mend_unknown(&said.name, entries);
                faults.add(said.at, format!("this entry has no key, and {mend}"));
            } else if !said.is_local() {
                match changed.iter().find(|(name, _)| *name == said.name) {
                    Some((name, first)) => faults.add(
                        said.at,
                        format!(
                            "preset {name:?} is changed at {first} already: say it in one place"
                        ),
                    ),
                    None => changed.push((said.name.clone(), place)),
                }
            }
        }
    }
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
