//! Rules about queries: that Prometheus understands them whatever is chosen, that they ask for series
//! that exist and only for those chosen, and that they compute what can be computed of them.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{Complaints, World};
use crate::contract::OF_THE_SCRAPER;
use crate::dashboard::{
    Asker, Choice, Dashboard, Panel, Question, Situation, Variable, references,
};
use crate::query::{self, Query, Selector};

/// Windows that no query has by itself, so that they are known again in the tree.
const RATE_INTERVAL: Duration = Duration::from_secs(7919);
const RANGE: Duration = Duration::from_secs(7907);
const STEP: Duration = Duration::from_secs(7901);

/// A query with its windows filled in and its variables left as they are, which inside of quotes is
/// text like any other.
pub fn skeleton(text: &str) -> String {
    let windows = [("rate_interval", RATE_INTERVAL), ("range", RANGE), ("interval", STEP)];
    windows.iter().fold(text.to_owned(), |text, (name, window)| {
        let window = format!("{}s", window.as_secs());
        text.replace(&format!("$__{name}"), &window).replace(&format!("${{__{name}}}"), &window)
    })
}

fn queries(dashboard: &Dashboard) -> impl Iterator<Item = (Question<'_>, Query)> {
    // Those that do not parse are another rule's.
    dashboard.questions().into_iter().filter_map(|question| {
        let query = query::parse(&skeleton(question.text)).ok()?;
        Some((question, query))
    })
}

/// Whatever is chosen: one value, several, all, none; and values of the worst sort.
pub fn parses_whatever_is_chosen(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    let several = ["a.b|c", "(7,*)", r"back\slash's {end}$", "[x"].map(str::to_owned);
    let choices = [
        Choice::One(several[1].clone()),
        Choice::One(several[2].clone()),
        Choice::Several(several.to_vec()),
        Choice::All,
        Choice::Nothing,
    ];
    for choice in choices {
        let of = |variable: &Variable| match &choice {
            Choice::Several(values) if !variable.multi => Choice::One(values[0].clone()),
            Choice::All if !variable.include_all => Choice::One("a".to_owned()),
            Choice::One(_) | Choice::Several(_) | Choice::All | Choice::Nothing => choice.clone(),
        };
        let variables = dashboard.model.templating.list.iter();
        let choices: BTreeMap<String, Choice> =
            variables.map(|variable| (variable.name.clone(), of(variable))).collect();
        let situation = Situation {
            choices,
            scrape_interval: Duration::from_secs(15),
            range: Duration::from_secs(3600),
            points: 1000,
        };
        for question in dashboard.questions() {
            let text = dashboard.fill_in(question.text, &situation, question.min_step);
            if let Err(fault) = query::parse(&text) {
                complaints.unless(false, &question.place, format!("{text}: {fault}"));
            }
        }
    }
    complaints
}

/// A window that is shorter than four scrapes has holes, and a fixed one is wrong for somebody.
pub fn rates_are_over_the_rate_interval(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for (question, query) in queries(dashboard) {
        for Selector { metric, range, function, .. } in &query.selectors {
            let Some(range) = *range else { continue };
            let is_good = match function {
                Some("rate" | "irate") => range == RATE_INTERVAL,
                // How many within the time shown is a question too.
                Some("increase") => range == RATE_INTERVAL || range == RANGE,
                Some(_) => true,
                None => false,
            };
            let text = format!("{metric} is looked at over {range:?}");
            complaints.unless(is_good, &question.place, text);
        }
    }
    complaints
}

/// Counters fall to zero at a restart, so that their values say nothing; and what is no counter has
/// no rate.
pub fn counters_are_counted(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for (question, query) in queries(dashboard) {
        for Selector { metric, range, function, .. } in &query.selectors {
            let Some(known) = world.contract.metric(metric) else { continue };
            let in_rate = matches!(function, Some("rate" | "irate" | "increase"));
            let text = format!("{metric} is a counter, and its value is taken");
            complaints.unless(
                !known.is_counter || in_rate && range.is_some(),
                &question.place,
                text,
            );
            let text = format!("{metric} is no counter, and its rate is taken");
            complaints.unless(known.is_counter || !in_rate, &question.place, text);
        }
    }
    complaints
}

/// The job that was chosen, in every selector.
pub fn carries_the_job(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    carries(dashboard, "job", |_| true)
}

/// The instance that was chosen, in every selector.
pub fn carries_the_instance(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    carries(dashboard, "instance", |_| true)
}

/// What else was chosen, wherever series have a label for it. The application of a holder is not that
/// of its waiters, so that only some panels can follow it.
pub fn carries_every_choice(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for label in ["server", "datname", "lock", "key"] {
        if dashboard.variable(label).is_some() {
            let has_label = |selector: &Selector| {
                let metric = world.contract.metric(&selector.metric);
                metric.is_some_and(|metric| metric.labels.contains(label))
            };
            complaints.0.extend(carries(dashboard, label, has_label).0);
        }
    }
    complaints
}

fn carries(dashboard: &Dashboard, label: &str, concerns: impl Fn(&Selector) -> bool) -> Complaints {
    let mut complaints = Complaints::default();
    let variable = dashboard.variable(label);
    let names = [format!("${label}"), format!("${{{label}}}")];
    let names = [&*names[0], &*names[1]];
    for (question, query) in queries(dashboard) {
        for selector in query.selectors.iter().filter(|selector| concerns(selector)) {
            // What an alert is not about, it has no label for.
            let may_lack = if selector.metric == "ALERTS" { "|" } else { "" };
            let is_carried = selector.matchers.iter().any(|matcher| {
                let is_regex = variable.is_none_or(|variable| variable.is_regex());
                matcher.label == label
                    && matcher.operator == if is_regex { "=~" } else { "=" }
                    && names.contains(&matcher.value.trim_end_matches(may_lack))
            });
            let text = format!("{} is asked for whatever {label} is chosen", selector.metric);
            complaints.unless(is_carried, &question.place, text);
        }
    }
    complaints
}

/// Several values make a regular expression, and one value is not one: `(7,9)` would match `7,9`.
pub fn choices_are_compared_as_they_are_written(
    dashboard: &Dashboard,
    _: &World<'_>,
) -> Complaints {
    let mut complaints = Complaints::default();
    for (question, query) in queries(dashboard) {
        for matcher in query.selectors.iter().flat_map(|selector| &selector.matchers) {
            for reference in references(&matcher.value) {
                let Some(variable) = dashboard.variable(reference.name) else { continue };
                let is_compared = match reference.format {
                    None => variable.is_regex() == matcher.operator.ends_with('~'),
                    Some(_) => false,
                };
                let text = format!("{} {} {}", matcher.label, matcher.operator, matcher.value);
                complaints.unless(is_compared, &question.place, text);
            }
        }
    }
    complaints
}

/// Series and labels that are served.
pub fn asks_for_what_is_served(dashboard: &Dashboard, world: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for (question, query) in queries(dashboard) {
        let mut labels: Vec<&str> = OF_THE_SCRAPER.to_vec();
        labels.extend(query.made.iter().map(String::as_str));
        for selector in &query.selectors {
            let name = &*selector.metric;
            let Some(metric) = world.contract.metric(name) else {
                complaints.unless(false, &question.place, format!("{name:?} is not served"));
                continue;
            };
            labels.extend(&metric.labels);
            for matcher in &selector.matchers {
                let label = &*matcher.label;
                let is_known = OF_THE_SCRAPER.contains(&label) || metric.labels.contains(label);
                let text = format!("{name} has no label {label}");
                complaints.unless(is_known, &question.place, text);
            }
        }
        for label in &query.labels {
            let is_known = labels.contains(&&**label);
            let text = format!("it groups by {label}, which no series in it has");
            complaints.unless(is_known, &question.place, text);
        }
    }
    complaints
}

/// `or vector(0)` shows a dead exporter as a quiet one.
pub fn shows_no_zero_that_nobody_saw(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for (question, query) in queries(dashboard) {
        complaints.unless(!query.is_made_up, &question.place, "it makes a value of no series");
    }
    complaints
}

/// A line at infinity hides all others. In a table a word can stand for it.
pub fn limits_are_finite(dashboard: &Dashboard, _: &World<'_>) -> Complaints {
    let mut complaints = Complaints::default();
    for (question, query) in queries(dashboard) {
        let is_limit = |selector: &Selector| selector.metric.ends_with("_limit_seconds");
        let is_drawn = match question.asker {
            Asker::Panel(panel, _) => panel.kind != "table" || !has_word_for_infinity(panel),
            Asker::Annotation => false,
        };
        let is_only_limits = !query.selectors.is_empty() && query.selectors.iter().all(is_limit);
        if is_drawn && is_only_limits {
            let is_finite = query.selectors.iter().all(|selector| selector.is_finite);
            complaints.unless(is_finite, &question.place, "a limit may be infinite");
        }
    }
    complaints
}

fn has_word_for_infinity(panel: &Panel) -> bool {
    let properties = panel.field_config.overrides.iter().flat_map(|it| &it.properties);
    let mappings = properties.filter(|property| property.id == "mappings");
    let mut mappings =
        mappings.flat_map(|property| property.value.as_array().into_iter().flatten());
    mappings.any(|mapping| mapping["type"] == "range" && mapping["options"]["to"].is_null())
}
