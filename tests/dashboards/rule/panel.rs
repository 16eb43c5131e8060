//! Rules about panels: what a person reads of one before its data, and in what its data are shown.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Complaints, World};
use crate::dashboard::{Asker, Dashboard, Panel, Source};
use crate::query;

/// Kinds of panels that show the values of queries.
const SHOWS_VALUES: [&str; 11] = [
    "barchart",
    "bargauge",
    "gauge",
    "heatmap",
    "histogram",
    "piechart",
    "stat",
    "state-timeline",
    "status-history",
    "table",
    "timeseries",
];

/// Kinds that show none.
const SHOWS_NONE: [&str; 2] = ["row", "text"];

/// Units by Grafana's names for them, as far as anything here has them.
const UNITS: [&str; 28] = [
    "none",
    "string",
    "short",
    "sishort",
    "locale",
    "percent",
    "percentunit",
    "ns",
    "µs",
    "ms",
    "s",
    "m",
    "h",
    "d",
    "dtdurations",
    "dtdurationms",
    "dthms",
    "clocks",
    "bytes",
    "decbytes",
    "Bps",
    "ops",
    "cps",
    "bool",
    "bool_yes_no",
    "bool_on_off",
    "dateTimeAsIso",
    "dateTimeFromNow",
];

/// Panels of other kinds are those of plugins or of the past.
pub fn is_of_a_kind_that_every_grafana_has(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for panel in dashboard.panels().chain(&dashboard.model.panels) {
        let kind = &*panel.kind;
        let is_known = SHOWS_VALUES.contains(&kind) || SHOWS_NONE.contains(&kind);
        complaints.unless(is_known, &panel.title, format!("it is a {kind}"));
    }
    complaints
}

fn asking(dashboard: &Dashboard) -> impl Iterator<Item = &Panel> {
    dashboard.panels().filter(|panel| !SHOWS_NONE.contains(&&*panel.kind))
}

/// Whatever asks, asks the data source that was chosen.
pub fn asks_the_chosen_data_source(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let mut judge = |place: &str, source: Option<&Source>| {
        let is_chosen = source.is_some_and(|source| {
            source.kind == "prometheus" && ["$datasource", "${datasource}"].contains(&&*source.uid)
        });
        complaints.unless(is_chosen, place, format!("it asks {source:?}"));
    };
    for panel in asking(dashboard) {
        judge(&panel.title, panel.datasource.as_ref());
        for target in panel.targets.iter().flatten() {
            judge(&panel.title, target.datasource.as_ref().or(panel.datasource.as_ref()));
        }
    }
    for variable in dashboard.query_variables() {
        judge(&variable.name, variable.datasource.as_ref());
    }
    for annotation in dashboard.annotations() {
        judge(&annotation.name, annotation.datasource.as_ref());
    }
    complaints
}

/// Which question it answers, and what sampling hides.
pub fn says_what_it_shows(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let mut titles = BTreeSet::new();
    for panel in dashboard.panels() {
        complaints.unless(!panel.title.trim().is_empty(), &panel.title, "it has no title");
        let is_new = titles.insert((&panel.kind, &panel.title));
        complaints.unless(is_new, &panel.title, "another of its kind has its title");
        let is_sentence = panel.description.len() > 20 && panel.description.ends_with(['.', '?']);
        complaints.unless(is_sentence, &panel.title, "its description is no sentence");
    }
    complaints
}

/// A number without a unit is read as whatever one fears.
pub fn has_units(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for panel in asking(dashboard) {
        let mut units: Vec<&str> =
            panel.field_config.defaults.unit.as_deref().into_iter().collect();
        for property in panel.field_config.overrides.iter().flat_map(|it| &it.properties) {
            if property.id == "unit" {
                units.push(property.value.as_str().unwrap_or_default());
            }
        }
        // The cells of a heatmap count; its axis has the unit.
        let axis = panel.options["yAxis"]["unit"].as_str();
        if panel.kind == "heatmap" {
            complaints.unless(axis.is_some(), &panel.title, "its axis has no unit");
        }
        units.extend(axis);
        for unit in &units {
            let text = format!("Grafana has no unit {unit:?}, or it is new here");
            complaints.unless(UNITS.contains(unit), &panel.title, text);
        }
        let shows_words = !panel.field_config.defaults.mappings.is_empty()
            || panel.kind == "stat"
                && panel.options["reduceOptions"]["fields"]
                    .as_str()
                    .is_some_and(|it| !it.is_empty());
        let text = "it has no unit";
        complaints.unless(shows_words || !units.is_empty(), &panel.title, text);
    }
    complaints
}

/// A panel that asks nothing is forever empty.
pub fn asks_something(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for panel in asking(dashboard) {
        let targets = panel.targets.as_deref().unwrap_or_default();
        complaints.unless(!targets.is_empty(), &panel.title, "it asks nothing");
        let mut seen = BTreeSet::new();
        for target in targets {
            let is_new = !target.ref_id.is_empty() && seen.insert(&target.ref_id);
            complaints.unless(
                is_new,
                &panel.title,
                format!("refId {} is no new one", target.ref_id),
            );
            complaints.unless(!target.expr.is_empty(), &panel.title, "a query is empty");
        }
    }
    complaints
}

/// Rows of a table are those of one moment, buckets of a heatmap those of one histogram, and curves
/// need more than one.
pub fn asks_in_the_format_it_shows(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for panel in asking(dashboard) {
        for target in panel.targets.iter().flatten() {
            let format = target.format.as_deref().unwrap_or("time_series");
            let expected: (&str, Option<bool>) = match &*panel.kind {
                "table" => ("table", Some(true)),
                "heatmap" => ("heatmap", Some(false)),
                "timeseries" | "state-timeline" | "status-history" => ("time_series", Some(false)),
                _ => (format, None),
            };
            let is_expected =
                format == expected.0 && expected.1.is_none_or(|it| it == target.instant);
            let text = format!("{} asks as {format}, instant {}", target.ref_id, target.instant);
            complaints.unless(is_expected, &panel.title, text);
            // Grafana asks both ways otherwise, or neither.
            let json = &target_json(dashboard, panel, &target.ref_id)["range"];
            let text = format!("{} asks for a moment and for a range", target.ref_id);
            complaints.unless(!(target.instant && json == true), &panel.title, text);
        }
    }
    complaints
}

fn target_json<'a>(dashboard: &'a Dashboard, panel: &Panel, ref_id: &str) -> &'a Value {
    let top = dashboard.json["panels"].as_array().into_iter().flatten();
    let all = top.flat_map(|panel| {
        std::iter::once(panel).chain(panel["panels"].as_array().into_iter().flatten())
    });
    let mut targets = all
        .filter(|json| json["id"] == panel.id)
        .flat_map(|json| json["targets"].as_array().into_iter().flatten());
    targets.find(|target| target["refId"] == ref_id).unwrap_or(&Value::Null)
}

/// Series are called by what tells them apart, not by all their labels.
pub fn names_its_series(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let by_name = ["timeseries", "state-timeline", "status-history", "bargauge", "piechart"];
    for question in dashboard.questions() {
        let Asker::Panel(panel, target) = question.asker else { continue };
        let legend = target.legend_format.as_deref().unwrap_or_default();
        let is_named = !["", "__auto"].contains(&legend);
        let needs_name = by_name.contains(&&*panel.kind);
        complaints.unless(!needs_name || is_named, &question.place, "its series have no names");
        let Ok(query) = query::parse(&super::target::skeleton(question.text)) else { continue };
        for label in legend.split("{{").skip(1).filter_map(|rest| rest.split("}}").next()) {
            let label = label.trim();
            let has = |metric: &str| {
                world.contract.metric(metric).is_some_and(|it| it.labels.contains(label))
            };
            let is_there = query.made.contains(label)
                || ["job", "instance"].contains(&label)
                || query.selectors.iter().any(|selector| has(&selector.metric));
            complaints.unless(is_there, &question.place, format!("no series has a label {label}"));
        }
    }
    complaints
}
