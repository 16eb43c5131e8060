//! The dashboards against Grafana's own types: what its schema says of dashboards and of the options
//! of each kind of panel. That they show what they should is tested elsewhere.

use std::path::{Path, PathBuf};

use crate::support::browser::script;
use crate::support::files::Files;
use crate::support::process::{Outcome, run};
use crate::support::require;

/// Something of most kinds, all of it right.
const SAMPLE: &str = r#"{
  "uid": "sample",
  "title": "Sample",
  "description": "Of most things one.",
  "schemaVersion": 39,
  "refresh": "30s",
  "templating": {
    "list": [{ "name": "job", "type": "query", "query": "label_values(up, job)", "refresh": 2, "current": {} }]
  },
  "panels": [
    {
      "id": 1,
      "type": "stat",
      "title": "Held for",
      "gridPos": { "h": 4, "w": 4, "x": 0, "y": 0 },
      "targets": [
        { "refId": "A", "expr": "vector(1)", "instant": true, "datasource": { "type": "prometheus", "uid": "${datasource}" } }
      ],
      "fieldConfig": {
        "defaults": { "unit": "s", "color": { "mode": "thresholds" } },
        "overrides": []
      },
      "options": { "graphMode": "none", "reduceOptions": { "calcs": ["lastNotNull"] } }
    },
    {
      "id": 2,
      "type": "row",
      "title": "More",
      "collapsed": true,
      "gridPos": { "h": 1, "w": 24, "x": 0, "y": 4 },
      "panels": [
        {
          "id": 3,
          "type": "state-timeline",
          "title": "Holders",
          "gridPos": { "h": 8, "w": 24, "x": 0, "y": 5 },
          "fieldConfig": {
            "defaults": { "custom": { "fillOpacity": 70, "spanNulls": false } },
            "overrides": [
              {
                "matcher": { "id": "byName", "options": "pod-a" },
                "properties": [{ "id": "custom.lineWidth", "value": 1 }]
              }
            ]
          },
          "options": { "showValue": "auto", "mergeValues": true },
          "transformations": [{ "id": "organize", "options": { "excludeByName": { "Time": true } } }]
        }
      ]
    }
  ]
}
"#;

#[tokio::test]
async fn the_dashboards_are_what_grafanas_types_say() {
    require!(Node);
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("dashboards");
    let entries = std::fs::read_dir(folder).expect("there are dashboards");
    let paths = entries.map(|entry| entry.expect("the folder is read").path());
    let dashboards: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "json"))
        .collect();
    assert!(!dashboards.is_empty());
    let outcome = check_types(&dashboards).await;
    assert_eq!(outcome.code, Some(0), "{}", outcome.stderr);
}

#[tokio::test]
async fn a_dashboard_of_another_type_is_refused_with_the_line() {
    require!(Node);
    let files = Files::new();
    let right = files.write("right.json", SAMPLE);
    let mut paths = vec![right.into()];
    // What is replaced, and by what.
    let faults = [
        ("\"graphMode\": \"none\"", "\"graphMode\": \"nothing\""),
        ("\"graphMode\": \"none\"", "\"graphmode\": \"none\""),
        ("[\"lastNotNull\"]", "\"lastNotNull\""),
        ("\"unit\": \"s\"", "\"unit\": 1"),
        ("\"mode\": \"thresholds\"", "\"mode\": \"threshold\""),
        ("\"unit\": \"s\"", "\"units\": \"s\""),
        ("\"unit\": \"s\"", "\"custom\": { \"lineWidth\": 1 }"),
        ("\"instant\": true", "\"instant\": \"true\""),
        ("\"instant\": true", "\"instnat\": true"),
        ("\"type\": \"stat\"", "\"type\": \"singlestat\""),
        ("\"refresh\": 2", "\"refresh\": 3"),
        ("\"schemaVersion\"", "\"schemaversion\""),
        ("\"fillOpacity\": 70", "\"fillOpacity\": \"70\""),
        ("\"fillOpacity\": 70", "\"opacity\": 70"),
        ("\"fillOpacity\": 70", "\"drawStyle\": \"line\""),
        ("\"showValue\": \"auto\"", "\"showValue\": true"),
        ("\"custom.lineWidth\"", "\"custom.lineWidht\""),
        ("\"value\": 1", "\"value\": \"1\""),
        ("\"byName\"", "\"byname\""),
        ("\"organize\"", "\"organise\""),
        ("\"Time\": true", "\"Time\": 1"),
    ];
    for (number, (right, wrong)) in faults.iter().enumerate() {
        assert_eq!(SAMPLE.matches(right).count(), 1, "{right}");
        let text = SAMPLE.replace(right, wrong);
        paths.push(files.write(&format!("{number}.json"), &text).into());
    }
    let outcome = check_types(&paths).await;
    assert_eq!(outcome.code, Some(1));
    assert!(!outcome.stderr.contains("right.json"), "{}", outcome.stderr);
    for (number, (right, wrong)) in faults.iter().enumerate() {
        let line = SAMPLE.split(right).next().unwrap_or_default().matches('\n').count() + 1;
        let complaint = format!("/{number}.json:{line}: ");
        assert!(outcome.stderr.contains(&complaint), "{wrong}: {}", outcome.stderr);
    }
}

async fn check_types(dashboards: &[PathBuf]) -> Outcome {
    let mut command = script("types.mjs");
    command.args(dashboards);
    run(command).await
}
