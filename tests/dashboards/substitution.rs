//! Variables are filled in as Grafana fills them in for Prometheus.

use std::time::Duration;

use serde_json::json;

use crate::dashboard::{Choice, Dashboard, Situation};
use crate::query;

/// A variable of each sort: `several` of many, `one` of many with All, `single`.
fn dashboard() -> Dashboard {
    let variables = json!([
        { "name": "several", "type": "query", "multi": true, "includeAll": true, "allValue": ".*" },
        { "name": "any", "type": "query", "includeAll": true, "allValue": "(a|b).+" },
        { "name": "single", "type": "query" },
    ]);
    let json = json!({ "uid": "a", "title": "A", "templating": { "list": variables } });
    Dashboard::from_json("a.json", json)
}

fn fill_in(text: &str, name: &str, choice: Choice) -> String {
    let choices = [(name.to_owned(), choice)].into();
    dashboard().fill_in(text, &Situation { choices, ..situation(15, 3600) }, None)
}

fn situation(scrape_interval: u64, range: u64) -> Situation {
    Situation {
        choices: [].into(),
        scrape_interval: Duration::from_secs(scrape_interval),
        range: Duration::from_secs(range),
        points: 1000,
    }
}

fn one(value: &str) -> Choice {
    Choice::One(value.to_owned())
}

fn several(values: &[&str]) -> Choice {
    Choice::Several(values.iter().map(|value| (*value).to_owned()).collect())
}

#[test]
fn every_way_of_naming_a_variable_is_filled_in_and_nothing_else() {
    for (text, filled) in [
        ("a{b=~\"$several\"}", "a{b=~\"x\"}"),
        ("a{b=~\"${several}\"}", "a{b=~\"x\"}"),
        ("a{b=~\"[[several]]\"}", "a{b=~\"x\"}"),
        ("a{b=~\"$severals\"}", "a{b=~\"$severals\"}"),
        ("a{b=~\"x$\"}", "a{b=~\"x$\"}"),
        ("${several:regex}-${several:raw}", "x-x"),
    ] {
        assert_eq!(fill_in(text, "several", one("x")), filled);
    }
}

#[test]
fn one_value_stands_alone_and_several_between_bars() {
    assert_eq!(fill_in("$several", "several", one("a")), "a");
    assert_eq!(fill_in("$several", "several", several(&["a"])), "a");
    assert_eq!(fill_in("$several", "several", several(&["a", "b"])), "(a|b)");
    assert_eq!(fill_in("${several:regex}", "several", several(&["a.", "b"])), r"(a\.|b)");
}

#[test]
fn all_is_its_word_as_it_is() {
    assert_eq!(fill_in("$several", "several", Choice::All), ".*");
    assert_eq!(fill_in("${any:regex}", "any", Choice::All), "(a|b).+");
}

#[test]
fn nothing_matches_the_empty_text_only() {
    assert_eq!(fill_in("$several", "several", Choice::Nothing), "()");
    assert_eq!(fill_in("$single", "single", Choice::Nothing), "");
}

/// Backslashes are doubled once for the regular expression and once more for the quotes around it.
#[test]
fn values_that_are_no_plain_words_are_escaped_for_where_they_stand() {
    assert_eq!(fill_in("$several", "several", one("(7,*)")), r"\\(7,\\*\\)");
    assert_eq!(fill_in("$any", "any", one(r"a\b")), r"a\\\\b");
    assert_eq!(fill_in("$several", "several", several(&["a|b", "c"])), r"(a\\|b|c)");
    assert_eq!(fill_in("$single", "single", one("(7,*)")), "(7,*)");
    assert_eq!(fill_in("$single", "single", one(r"a\b")), r"a\\b");
    // What Prometheus makes of it.
    for value in ["(7,*)", r"a\b", "a|b", "[x]{2}^$+?.", "it's"] {
        let text = fill_in("a{b=~\"$several\"}", "several", one(value));
        let query = query::parse(&text).unwrap();
        let pattern = format!("^(?:{})$", query.selectors[0].matchers[0].value);
        assert!(regex::Regex::new(&pattern).unwrap().is_match(value), "{text}");
    }
}

#[test]
fn windows_grow_with_the_time_shown_and_are_never_shorter_than_four_scrapes() {
    let fill_in = |situation: Situation, min_step| {
        let text = "$__interval $__rate_interval $__range ${__range_s}";
        dashboard().fill_in(text, &situation, min_step)
    };
    assert_eq!(fill_in(situation(15, 3600), None), "15s 60s 3600s 3600");
    assert_eq!(fill_in(situation(1, 60), None), "1s 4s 60s 60");
    assert_eq!(fill_in(situation(15, 604_800), None), "605s 620s 604800s 604800");
    assert_eq!(fill_in(situation(15, 3600), Some("1m")), "60s 240s 3600s 3600");
}
