//! The preview of dashboards: what it draws is what Grafana would make of the same answers. Here the
//! answers are made up, so that it is known what has to be seen.

use serde_json::{Value, json};

use crate::support::files::Files;
use crate::support::preview::Preview;
use crate::support::require;

/// A range of five minutes with a point a minute.
fn matrix(series: &[(&[(&str, &str)], &str)]) -> Value {
    let result: Vec<Value> = series
        .iter()
        .map(|(labels, value)| {
            let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
            let values: Vec<Value> = (0..=5).map(|at| json!([600 + 60 * at, value])).collect();
            json!({ "metric": labels, "values": values })
        })
        .collect();
    json!({ "resultType": "matrix", "result": result })
}

/// The moment at the end of it.
fn vector(series: &[(&[(&str, &str)], &str)]) -> Value {
    let mut data = matrix(series);
    data["resultType"] = "vector".into();
    for series in data["result"].as_array_mut().into_iter().flatten() {
        series["value"] = series["values"][5].take();
    }
    data
}

fn panel(id: u32, kind: &str, title: &str, more: Value) -> Value {
    let place = json!({ "x": 0, "y": 9 * id, "w": 12, "h": 9 });
    let mut panel = json!({ "id": id, "type": kind, "title": title, "gridPos": place });
    for (name, value) in more.as_object().into_iter().flatten() {
        panel[name] = value.clone();
    }
    panel
}

/// Draws panels with what their queries came to, the last of them in a row that is not open.
async fn draw(panels: &[(Value, Value)], options: &[&str]) -> (Preview, Vec<u8>) {
    let targets =
        panels.iter().map(|(panel, targets)| json!({ "id": panel["id"], "targets": targets }));
    let mut shown: Vec<Value> = panels.iter().map(|(panel, _)| panel.clone()).collect();
    let mut row = json!({ "id": 99, "type": "row", "title": "More", "collapsed": true });
    let last = shown.pop().expect("there are panels");
    row["gridPos"] = json!({ "x": 0, "y": last["gridPos"]["y"], "w": 24, "h": 1 });
    row["panels"] = json!([last]);
    shown.push(row);
    let results = json!({
        "dashboard": {
            "title": "Sample",
            "panels": shown,
            "annotations": { "list": [{ "name": "Alerts", "iconColor": "red" }] },
        },
        "from": 600,
        "to": 900,
        "variables": { "lock": "nightly" },
        "panels": targets.collect::<Vec<_>>(),
        "annotations": [{ "name": "Alerts", "data": matrix(&[(&[], "1")]) }],
    });
    let files = Files::new();
    let file = files.write("results.json", &results.to_string());
    let picture = files.path("picture.png");
    let preview = Preview::draw(file.as_ref(), &picture, options).await;
    (preview, std::fs::read(picture).expect("it was drawn"))
}

#[tokio::test]
async fn a_dashboard_is_drawn_with_the_names_texts_and_rows_of_grafana() {
    require!(Chromium, Node);
    let age = json!({ "defaults": { "unit": "s" }, "overrides": [
        { "matcher": { "id": "byName", "options": "pod-b" },
          "properties": [{ "id": "displayName", "value": "the other" }] },
    ] });
    let states = json!({ "defaults": { "unit": "none", "mappings": [
        { "type": "value", "options": { "1": { "text": "held", "color": "green" } } },
    ] }, "overrides": [] });
    let merged = json!([
        { "id": "merge", "options": {} },
        { "id": "organize", "options": {
            "excludeByName": { "Time": true },
            "indexByName": { "lock": 0, "key": 1 },
            "renameByName": { "lock": "Lock", "key": "Key", "Value #A": "Age", "Value #B": "Waiters" },
        } },
    ]);
    let table = json!({
        "defaults": { "unit": "short", "noValue": "none", "custom": {} },
        "overrides": [{ "matcher": { "id": "byName", "options": "Age" },
            "properties": [{ "id": "unit", "value": "s" }, { "id": "custom.width", "value": 90 }] }],
    });
    let last = json!({ "reduceOptions": { "calcs": ["lastNotNull"] } });
    let legend = json!({ "legend": { "displayMode": "table", "calcs": ["lastNotNull", "max"] } });
    let query = |format: &str, legend: &str, data| json!([{ "refId": "A", "format": format, "legendFormat": legend, "data": data }]);
    let pods: [(&[(&str, &str)], &str); 2] =
        [(&[("pod", "pod-a")], "90"), (&[("pod", "pod-b")], "0.25")];
    let keyed: [(&[(&str, &str)], &str); 2] = [
        (&[("lock", "nightly"), ("key", "4200")], "7200"),
        (&[("lock", "orders"), ("key", "(1,2)")], "3"),
    ];
    let buckets: [(&[(&str, &str)], &str); 3] =
        [(&[("le", "+Inf")], "7"), (&[("le", "5")], "4"), (&[("le", "60")], "6")];
    let (preview, picture) = draw(
        &[
            (
                panel(1, "stat", "How long is $lock held", json!({ "fieldConfig": age, "options": last })),
                query("time_series", "{{pod}}", vector(&pods)),
            ),
            (
                panel(2, "timeseries", "Lines", json!({ "fieldConfig": age, "options": legend })),
                query("time_series", "{{pod}}", matrix(&pods)),
            ),
            (
                panel(3, "state-timeline", "Bands", json!({ "fieldConfig": states, "options": { "legend": {} } })),
                query("time_series", "{{pod}}", matrix(&[(&[("pod", "pod-a")], "1")])),
            ),
            (
                panel(4, "table", "Rows", json!({ "fieldConfig": table, "transformations": merged,
                    "options": { "sortBy": [{ "displayName": "Age", "desc": false }] } })),
                json!([
                    { "refId": "A", "format": "table", "data": vector(&keyed) },
                    { "refId": "B", "format": "table", "data": vector(&[(&[("lock", "nightly")], "2")]) },
                ]),
            ),
            (
                panel(5, "heatmap", "Counts", json!({ "options": {
                    "color": { "scheme": "Oranges" }, "legend": { "show": true }, "yAxis": { "unit": "s" } } })),
                query("heatmap", "{{le}}", matrix(&buckets)),
            ),
            (
                panel(6, "bargauge", "Bars", json!({ "fieldConfig": age, "options": last })),
                query("time_series", "{{pod}}", vector(&pods)),
            ),
            (
                panel(7, "gauge", "Dial", json!({ "fieldConfig": { "defaults": { "unit": "percentunit" } } })),
                query("time_series", "", vector(&[(&[], "0.5")])),
            ),
            (panel(8, "text", "Words", json!({ "options": { "content": "# Read\n\n`this`" } })), json!([])),
            (
                panel(9, "stat", "Nothing", json!({ "fieldConfig": { "defaults": { "noValue": "not seen" } } })),
                query("time_series", "", vector(&[])),
            ),
        ],
        &["--light", "--width", "1000"],
    )
    .await;

    let texts: Vec<_> = preview.panels.iter().map(|panel| (&*panel.title, &*panel.text)).collect();
    assert_eq!(
        texts,
        [
            ("How long is nightly held", "pod-a\n1.5 min\nthe other\n250 ms"),
            ("Lines", "Name\tLast *\tMax\npod-a\t1.5 min\t1.5 min\nthe other\t250 ms\t250 ms"),
            ("Bands", "held"),
            // A text that looks like a number is written in the unit of the field.
            (
                "Rows",
                "Lock\tKey\tAge\tWaiters\norders\t(1,2)\t3 s\tnone\nnightly\t4.2 K\t2 hour\t2"
            ),
            // No more than four in any bucket, since those below are not counted again.
            ("Counts", "04"),
            ("Bars", "pod-a\n1.5 min\nthe other\n250 ms"),
            ("Dial", "50%"),
            ("Words", "Read\n\nthis"),
            ("Nothing", "not seen"),
        ]
    );
    let nothing = preview.panel("Nothing");
    assert!((nothing.series, nothing.drawn) == (0, false) && nothing.error.is_none());
    assert!(preview.panels.iter().all(|panel| panel.drawn || panel.title == "Nothing"));
    assert_eq!(preview.panel("Lines").series, 2);
    let number = |at: usize| u32::from_be_bytes(picture[at..at + 4].try_into().unwrap());
    assert!(picture.starts_with(b"\x89PNG") && number(16) == 1000 && number(20) > 3000);
}

#[tokio::test]
async fn a_panel_that_cannot_be_drawn_says_why_and_spoils_no_other() {
    require!(Chromium, Node);
    let data = json!([{ "refId": "A", "data": vector(&[(&[], "1")]) }]);
    let unit = json!({ "fieldConfig": { "defaults": { "unit": "fortnights" } } });
    let transformation = json!({ "transformations": [{ "id": "divine", "options": {} }] });
    let (preview, _) = draw(
        &[
            (panel(1, "graph", "Of another time", json!({})), data.clone()),
            (panel(2, "stat", "In another unit", unit), data.clone()),
            (panel(3, "table", "Transformed", transformation), data.clone()),
            (panel(4, "stat", "Unanswered", json!({})), json!([{ "refId": "A" }])),
            (panel(5, "stat", "Right", json!({})), data),
        ],
        &[],
    )
    .await;
    let errors: Vec<_> = preview.panels.iter().map(|panel| panel.error.as_deref()).collect();
    assert_eq!(
        errors,
        [
            Some("no panel of type graph is known"),
            Some("no unit fortnights is known"),
            Some("no transformation divine is known"),
            Some("query A has no answer"),
            None,
        ]
    );
    assert_eq!(preview.panel("Right").text, "1");
}
