//! Metrics and those who look at them: nothing that people read or load names a metric that is not
//! served, and no metric is served that no dashboard, rule or document speaks of.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use crate::contract::{Contract, families};
use crate::root;

/// Functions of the server's, which begin like the metrics.
const FUNCTIONS: [&str; 7] = [
    "pg_advisory_lock",
    "pg_advisory_lock_shared",
    "pg_advisory_unlock",
    "pg_advisory_unlock_all",
    "pg_advisory_xact_lock",
    "pg_advisory_xact_lock_shared",
    "pg_advisory_unlock_shared",
];

/// Whatever people read or load, with its text. The change log also speaks of what is gone.
fn texts() -> Vec<(String, String)> {
    let folders = [(".", "README.md"), ("docs", ".md"), ("alerts", ".md"), ("alerts", ".yml")];
    let dashboards = [("dashboards", ".json"), ("dashboards", ".md"), ("dashboards", ".yml")];
    let mut texts = Vec::new();
    for (folder, ending) in folders.into_iter().chain(dashboards) {
        let entries = fs::read_dir(root().join(folder)).expect("there is such a folder");
        let files = entries.map(|entry| entry.expect("a folder can be read").path());
        let mut files: Vec<PathBuf> =
            files.filter(|file| file.to_string_lossy().ends_with(ending)).collect();
        files.sort();
        for file in files {
            let text = fs::read_to_string(&file).expect("it can be read");
            let name = file.strip_prefix(root()).expect("it is ours").display().to_string();
            texts.push((name, text));
        }
    }
    texts
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    text.split(move |c| !is_part(c)).filter(|word| !word.is_empty())
}

#[test]
fn every_metric_that_is_named_anywhere_is_served() {
    let contract = Contract::read();
    let families = families();
    let mut unknown = BTreeSet::new();
    let mut known = 0;
    for (file, text) in texts() {
        for word in words(&text).filter(|word| word.starts_with("pg_advisory_")) {
            // Many at once: `pg_advisory_poll_…`.
            let is_part = word.ends_with('_') || FUNCTIONS.contains(&word);
            if families.contains(word) || contract.metric(word).is_some() {
                known += 1;
            } else if !is_part {
                unknown.insert(format!("{file}: {word}"));
            }
        }
    }
    assert!(unknown.is_empty(), "{unknown:#?}");
    assert!(known > 100, "{known}");
}

#[test]
fn every_metric_is_looked_at_by_a_dashboard_a_rule_or_a_document() {
    let texts = texts();
    let used: BTreeSet<&str> = texts.iter().flat_map(|(_, text)| words(text)).collect();
    let is_used = |family: &&str| {
        let series = ["", "_bucket", "_sum", "_count"].map(|suffix| format!("{family}{suffix}"));
        series.iter().any(|name| used.contains(&**name))
    };
    let unused: Vec<&str> = families().into_iter().filter(|family| !is_used(family)).collect();
    assert_eq!(unused, [""; 0], "nothing speaks of them");
}

/// The list by which all this is judged is the one that the exporter's own test keeps.
#[test]
fn the_list_of_metrics_is_that_of_the_source() {
    let source = include_str!("../../src/metrics.rs");
    let quoted = source.split('"').skip(1).step_by(2);
    let named: BTreeSet<&str> =
        quoted.filter(|text| text.starts_with("pg_advisory_") && !text.contains(' ')).collect();
    let families = families();
    let listed: BTreeSet<&str> =
        families.iter().copied().filter(|name| name.starts_with("pg_advisory_")).collect();
    let named: BTreeSet<&str> = named
        .into_iter()
        .filter(|name| !name.contains(['{', '\\', '.']) && !name.ends_with('_'))
        .collect();
    assert_eq!(named, listed);
}
