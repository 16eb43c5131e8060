//! The names of a key in one line, and as JSON.
//!
//! The registry decides who names a key and what speaks against it; here that is only told.

use std::sync::Arc;

use serde::{Serialize, Serializer};

use crate::key::{Key, KeyKind};
use crate::registry::Naming;

/// Names told in one line: everybody uses key 1.
const SHOWN_NAMES: usize = 3;

/// A key with its kind in front: `bigint 42`, `pair (7,9)`, `class 5: 0/102747`.
pub(super) fn key_with_kind(key: Key) -> String {
    match key.kind() {
        KeyKind::Bigint => format!("bigint {key}"),
        KeyKind::Pair => format!("pair {key}"),
        KeyKind::Other => key.to_string(),
    }
}

/// A key and all that it may be called: `bigint 42: nightly-billing`.
pub(super) fn title(key: Key, names: &[Naming]) -> String {
    match call(names) {
        Some(names) => format!("{}: {names}", key_with_kind(key)),
        None => key_with_kind(key),
    }
}

/// All names in one line; `None` when there is none. Names in doubt are told only where nobody is
/// sure of one.
fn call(names: &[Naming]) -> Option<String> {
    let is_known = names.iter().any(|naming| naming.doubt.is_none());
    let mut calls: Vec<String> = Vec::new();
    for naming in names.iter().filter(|naming| !is_known || naming.doubt.is_none()) {
        let place = match naming.databases.as_deref() {
            None => String::new(),
            Some(databases) => format!(" in {}", databases.join(", ")),
        };
        let call = format!("{}{place}", naming.display);
        if !calls.contains(&call) {
            calls.push(call);
        }
    }
    let hidden = calls.len().saturating_sub(SHOWN_NAMES);
    calls.truncate(SHOWN_NAMES);
    if hidden > 0 {
        calls.push(format!("{hidden} more"));
    }
    let separator = if is_known { " | " } else { ", or " };
    let maybe = if is_known { "" } else { "maybe " };
    (!calls.is_empty()).then(|| format!("{maybe}{}", calls.join(separator)))
}

/// Names as JSON.
pub(super) fn as_fields<S: Serializer>(names: &[Naming], serializer: S) -> Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Fields<'a> {
        name: &'a str,
        display: &'a str,
        reason: &'a str,
        databases: Option<&'a [Arc<str>]>,
        certain: bool,
        doubt: Option<String>,
        preset: bool,
        description: Option<&'a str>,
        owner: Option<&'a str>,
        runbook: Option<&'a str>,
    }
    serializer.collect_seq(names.iter().map(|naming| Fields {
        name: &naming.name,
        display: &naming.display,
        reason: &naming.reason,
        databases: naming.databases.as_deref(),
        certain: naming.doubt.is_none(),
        doubt: naming.doubt.map(|doubt| doubt.to_string()),
        preset: naming.is_preset,
        description: naming.description.as_deref(),
        owner: naming.owner.as_deref(),
        runbook: naming.runbook.as_deref(),
    }))
}
