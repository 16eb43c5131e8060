//! Keys that real tools take are called by their names: by presets alone, as candidates where the
//! number says too little, or by an entry of the example registry, which is what people copy from.
//!
//! The keys are in `catalogue/vectors.yaml`; they were read in the source of the tools and not
//! computed by this crate. The counts that the README states are taken from here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use pg_locks_exporter::key::Key;
use pg_locks_exporter::registry::{Database, Registry, Resolution, Source};
use serde::Deserialize;

const VECTORS: &str = include_str!("catalogue/vectors.yaml");
const EXAMPLE: &str = include_str!("catalogue/registry.yaml");

/// Keys that several presets claim with equal certainty, and why that is as it should be.
const CLAIMED_BY_SEVERAL: [(&str, &[&str]); 6] = [
    // Small numbers of tools that count their locks from 1: candidates until a marker is found.
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
    // Two extensions chose one class.
    ("class 10: 0/822708183", &["citus-cleanup", "pg-auto-failover-formation"]),
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Tool {
    tool: String,
    keys: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    key: String,
    name: String,
    by: By,
    form: Form,
    database: String,
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

/// All keys with the tool they belong to.
fn vectors() -> Vec<(String, Vector)> {
    let of_tool = |tool: Tool| tool.keys.into_iter().map(move |key| (tool.tool.clone(), key));
    tools().into_iter().flat_map(of_tool).collect()
}
