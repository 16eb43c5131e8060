//! Keys that real tools take are called by their names: by presets alone, as candidates where the
//! number says too little, or by an entry of the example registry, which is what people copy from.
//!
//! The keys are in `catalogue/vectors.yaml`; they come from the source of the tools and were not
//! computed by this crate. The chapter on naming states the counts that are asserted here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pg_locks_exporter::inspected::{Answers, Question};
use pg_locks_exporter::key::Key;
use pg_locks_exporter::registry::{
    Candidate, Circumstances, Explainer, Origin, Registry, Resolution, Resolver, Signs, Source,
};
use serde::Deserialize;

const VECTORS: &str = include_str!("catalogue/vectors.yaml");
const EXAMPLE: &str = include_str!("catalogue/registry.yaml");

/// Keys that several presets claim with equal certainty. All are small numbers of tools that count
/// their locks from 1, so that a preset names them where a table of its tool was found, and both
/// are shown where two tools share a database.
const CLAIMED_BY_SEVERAL: [(&str, &[&str]); 5] = [
    (
        "1",
        &[
            "airflow-migrations",
            "coder-deployment-setup",
            "graph-node-migrations",
            "spicedb-garbage-collection",
        ],
    ),
    ("2", &["airflow-scheduler", "coder-enterprise-setup", "spicedb-revision-heartbeat"]),
    ("5", &["coder-notifications-report", "concourse-migrations"]),
    ("6", &["coder-crypto-key-rotation", "concourse-active-tasks"]),
    ("7", &["coder-reconcile-prebuilds", "concourse-resource-scanning"]),
];

/// Candidates that no table makes certain: Citus and pg_auto_failover share a class, and Evolve's
/// table could be anybody's.
const NEVER_CERTAIN: [&str; 3] = ["citus-cleanup", "pg-auto-failover-formation", "evolve-migrate"];

/// Keys of the example registry that a preset claims too, with its name for them.
const KNOWN_OTHERWISE: [(&str, &str); 2] = [
    // Switchman takes Rails' formula, with the name of a shard in the place of the database's.
    ("canvas-migrations", "rails-migrations"),
    // The name is AWX's, which takes its locks through django-pglocks.
    ("task-manager", "awx-task-manager"),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    tool: String,
    keys: Vec<Vector>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    key: String,
    name: String,
    by: By,
    form: Form,
    database: Arc<str>,
    purpose: String,
    #[serde(default)]
    input: String,
}

/// Who names the key.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum By {
    Preset,
    Candidate,
    Example,
}

/// What the tool makes the key of.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "lowercase")]
enum Form {
    Formula,
    Number,
    Id,
    Range,
}

fn tools() -> Vec<Tool> {
    serde_saphyr::from_str(VECTORS).expect("the vectors are YAML of this shape")
}

fn vectors() -> Vec<Vector> {
    let tools = tools();
    let described = |tool: &Tool, vector: &Vector| {
        let parts = [&tool.tool, &vector.purpose, &vector.input];
        let parts: Vec<&str> =
            parts.into_iter().filter(|part| !part.is_empty()).map(|part| part.as_str()).collect();
        Vector { purpose: parts.join(", "), ..vector.clone() }
    };
    tools
        .iter()
        .flat_map(|tool| tool.keys.iter().map(move |vector| described(tool, vector)))
        .collect()
}

impl Vector {
    fn key(&self) -> Key {
        self.key.parse().unwrap_or_else(|error| panic!("{}: {error}", self.key))
    }
}

/// No registry file.
fn presets() -> Arc<Registry> {
    Arc::new(Registry::parse(&[]).expect("presets are sound"))
}

fn example() -> Arc<Registry> {
    let source = Source { name: "registry.yaml".to_owned(), text: EXAMPLE.to_owned() };
    Arc::new(Registry::parse(&[source]).unwrap_or_else(|error| panic!("{error}")))
}

/// Tables and their OIDs, in the database of the key.
type Tables<'a> = &'a [(&'a str, u32)];

fn resolve(registry: &Arc<Registry>, vector: &Vector, tables: Tables<'_>) -> Resolution {
    let mut answers = Answers::default();
    let tables = tables.iter().map(|(table, oid)| (Arc::from(*table), Some(*oid)));
    answers.replace_tables(&vector.database, tables);
    let told = Circumstances {
        databases: vec![(vector.database.clone(), "UTF8".into())],
        answers: Arc::new(answers),
        ..Circumstances::default()
    };
    let resolver = Resolver::new(registry.clone(), "server".into(), &told);
    resolver.resolve(Some(&vector.database), vector.key(), Signs::default())
}

/// Names without their values.
fn names_of(candidates: &[Candidate]) -> BTreeSet<String> {
    let bare = |name: &str| name.split(" (").next().unwrap_or_default().to_owned();
    candidates.iter().map(|candidate| bare(&candidate.name)).collect()
}

fn preset_files() -> BTreeMap<String, PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/registry/presets");
    let files = fs::read_dir(folder).expect("the folder is there");
    files
        .map(|file| {
            let path = file.expect("it can be read").path();
            let name = path.file_stem().expect("files have names").to_string_lossy().into_owned();
            assert_eq!(path.extension().and_then(|it| it.to_str()), Some("yaml"), "{path:?}");
            (name, path)
        })
        .collect()
}

#[test]
fn every_key_of_a_known_tool_is_called_by_its_name() {
    let (presets, example) = (presets(), example());
    // OIDs of the two tools whose keys have one.
    let tables = [("eventstore.events2", 16999), ("public.subscriptions", 17001)];
    let mut wrong = Vec::new();
    for vector in vectors() {
        let resolution = match vector.by {
            By::Preset | By::Candidate => resolve(&presets, &vector, &[]),
            By::Example => resolve(&example, &vector, &tables),
        };
        let is_right = match vector.by {
            By::Preset | By::Example => {
                resolution.label() == vector.name && resolution.candidates.is_empty()
            }
            By::Candidate => {
                resolution.lock.is_none() && names_of(&resolution.candidates).contains(&vector.name)
            }
        };
        if !is_right {
            let Vector { key, name, by, purpose, .. } = &vector;
            let (label, candidates) = (resolution.label(), names_of(&resolution.candidates));
            wrong.push(format!("{key} ({purpose}): {label} {candidates:?}, not {name} by {by:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_table_of_the_tool_makes_a_name_of_a_candidate() {
    let presets = presets();
    let tables: BTreeSet<Arc<str>> = presets
        .wanted("server")
        .into_iter()
        .flat_map(|wanted| match wanted.question {
            Question::Tables(tables) => tables,
            Question::Values { .. } => Vec::new(),
        })
        .collect();
    for vector in vectors().iter().filter(|vector| vector.by == By::Candidate) {
        let named = tables.iter().filter(|table| {
            let resolution = resolve(&presets, vector, &[(table, 16384)]);
            resolution.lock.as_deref() == Some(&*vector.name)
        });
        let expected = usize::from(!NEVER_CERTAIN.contains(&&*vector.name));
        assert_eq!(named.count(), expected, "{} ({})", vector.key, vector.purpose);
    }
}

#[test]
fn presets_claim_no_key_that_an_application_chose() {
    let presets = presets();
    for vector in vectors().iter().filter(|vector| vector.by == By::Example) {
        let resolution = resolve(&presets, vector, &[]);
        let known = KNOWN_OTHERWISE.iter().find(|(name, _)| *name == vector.name);
        let expected = known.map_or("unregistered", |(_, name)| name);
        assert_eq!(resolution.label(), expected, "{} ({})", vector.key, vector.purpose);
    }
}

#[test]
fn presets_contradict_each_other_where_it_is_known_and_nowhere_else() {
    // As files of a user, so that they are all of equal standing and checked for conflicts.
    let no_presets = Source { name: "none".to_owned(), text: "presets: none".to_owned() };
    let sources = preset_files().into_iter().map(|(name, path)| {
        let text = fs::read_to_string(path).expect("it can be read");
        // Files of a user name their keys without evidence.
        let is_evidence = |line: &&str| line.trim_start().starts_with("marker:");
        let text: Vec<&str> = text.lines().filter(|line| !is_evidence(line)).collect();
        Source { name, text: text.join("\n") }
    });
    let sources: Vec<Source> = sources.chain([no_presets]).collect();
    let registry = Registry::parse(&sources).unwrap_or_else(|error| panic!("{error}"));
    let conflicts: Vec<(String, BTreeSet<String>)> = registry
        .conflicts()
        .iter()
        .map(|conflict| (conflict.key.to_string(), names_of(&conflict.candidates)))
        .collect();
    let known: Vec<(String, BTreeSet<String>)> = CLAIMED_BY_SEVERAL
        .iter()
        .map(|(key, names)| {
            ((*key).to_owned(), names.iter().map(|name| (*name).to_owned()).collect())
        })
        .collect();
    assert_eq!(conflicts, known);

    // Keys made of a database's name are computed for one database at a time.
    let presets = presets();
    for database in ["mydb", "grafana", "postgres", "app"] {
        let explainer = Explainer::new(presets.clone(), Some(database));
        for key in presets.keys(Some(database)).into_iter().filter_map(|listed| listed.key) {
            let Ok(key) = key.parse::<Key>() else { continue };
            let names: BTreeSet<Arc<str>> = explainer
                .names(key)
                .into_iter()
                .filter(|naming| naming.doubt.is_none())
                .map(|naming| naming.name)
                .collect();
            assert!(names.len() < 2, "{key} in {database} is {names:?}");
        }
    }
}

#[test]
fn the_example_registry_contradicts_itself_nowhere_and_every_entry_is_shown_to_be_right() {
    let example = example();
    assert_eq!(example.conflicts(), []);
    let shown: BTreeSet<Arc<str>> = vectors()
        .iter()
        .filter(|vector| vector.by == By::Example)
        .map(|vector| Arc::from(&*vector.name))
        .collect();
    let entries: BTreeSet<Arc<str>> =
        example.locks().iter().map(|lock| lock.name.clone()).collect();
    assert_eq!(entries, shown);
}

#[test]
fn every_preset_in_the_folder_is_in_the_binary_and_every_entry_is_shown_to_be_right() {
    let keys = presets().keys(None);
    let embedded: BTreeSet<String> = keys
        .iter()
        .map(|listed| match &listed.origin {
            Origin::Preset(name) => name.to_string(),
            Origin::File { file, .. } => panic!("no file was given, and {file} is one"),
        })
        .collect();
    assert_eq!(embedded, preset_files().into_keys().collect());

    let shown: BTreeSet<String> = vectors().into_iter().map(|vector| vector.name).collect();
    let names: BTreeSet<String> = keys.iter().map(|listed| listed.name.to_string()).collect();
    let unshown: Vec<&String> = names.difference(&shown).collect();
    // Two of AWX's managers differ from the third by a word only.
    assert_eq!(unshown, ["awx-dependency-manager", "awx-task-manager"]);
}

#[test]
fn presets_say_what_they_are_of_and_at_which_version_it_was_read() {
    for listed in presets().keys(None) {
        let description = listed.description.expect("every preset is described");
        let source = description.rsplit_once(" (").and_then(|(_, rest)| rest.strip_suffix(')'));
        let source = source.unwrap_or_else(|| panic!("{} has no source", listed.name));
        assert!(source.contains('/') && source.contains(' '), "{}: {source}", listed.name);
    }
}

#[test]
fn the_counts_that_the_readme_states_are_true() {
    let vectors = vectors();
    let mut by: BTreeMap<By, usize> = BTreeMap::new();
    let mut forms: BTreeMap<Form, usize> = BTreeMap::new();
    for vector in &vectors {
        *by.entry(vector.by).or_default() += 1;
        *forms.entry(vector.form).or_default() += 1;
    }
    println!("{} keys of {} tools: {by:?}, {forms:?}", vectors.len(), tools().len());
    assert_eq!((tools().len(), vectors.len()), (65, 177));
    assert_eq!(by, [(By::Preset, 66), (By::Candidate, 63), (By::Example, 48)].into());
    let expected = [(Form::Formula, 78), (Form::Number, 79), (Form::Id, 19), (Form::Range, 1)];
    assert_eq!(forms, expected.into());

    // A key is a formula's if the entry that names it computes something, and only then.
    let (presets, example) = (presets(), example());
    for vector in vectors {
        let registry = if vector.by == By::Example { &example } else { &presets };
        let explainer = Explainer::new(registry.clone(), Some(&vector.database));
        let namings = explainer.names(vector.key());
        let Some(naming) = namings.iter().find(|naming| *naming.name == *vector.name) else {
            continue; // Without a server there are no OIDs.
        };
        // Texts are in quotes; and the high half of Flyway's keys is itself a text in ASCII.
        let computes = ["(\"", "ascii7(", "packed(18028,"];
        let is_computed = computes.iter().any(|sign| naming.reason.contains(sign));
        let is_formula = vector.form == Form::Formula;
        assert_eq!(is_computed, is_formula, "{}: {}", vector.purpose, naming.reason);
    }
}
