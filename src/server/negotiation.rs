//! What a client accepts: the format of a scrape and whether it may be compressed.
//!
//! It owns the reading of `Accept` and `Accept-Encoding`, both texts in and a choice out, and knows
//! no request. `server` puts the choice into the answer.

use crate::metrics::exposition::Format;

/// The format for this `Accept` header: of what the client names, the highest weight that we have.
/// At equal weight a named type goes before a wildcard, then the one written first. Without a match
/// it is the text format, as Prometheus's protocol for exporters asks, and never an error.
pub(super) fn negotiate(accept: Option<&str>) -> Format {
    parse_weighted(accept.unwrap_or_default())
        .filter(|range| range.weight > 0.0)
        .filter_map(|range| Some((range.weight, !range.name.ends_with('*'), format_of(&range)?)))
        .reduce(|best, next| if (next.0, next.1) > (best.0, best.1) { next } else { best })
        .map_or(Format::Text, |(_, _, format)| format)
}

/// Whether this `Accept-Encoding` header allows gzip. Naming gzip decides before `*` does.
pub(super) fn accepts_gzip(accept_encoding: Option<&str>) -> bool {
    let weight_of = |name: &str| {
        parse_weighted(accept_encoding.unwrap_or_default())
            .find(|coding| coding.name.eq_ignore_ascii_case(name))
            .map(|coding| coding.weight)
    };
    weight_of("gzip").or_else(|| weight_of("*")).is_some_and(|weight| weight > 0.0)
}

/// One element of an `Accept` or `Accept-Encoding` header.
struct Weighted<'a> {
    name: &'a str,
    version: Option<&'a str>,
    weight: f32,
}

/// Elements in the order they are written. One whose weight is not a number from 0 to 1 is passed
/// over.
fn parse_weighted(header: &str) -> impl Iterator<Item = Weighted<'_>> {
    header.split(',').filter_map(|element| {
        let mut parts = element.split(';').map(str::trim);
        let mut weighted = Weighted { name: parts.next()?, version: None, weight: 1.0 };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            if name.trim().eq_ignore_ascii_case("q") {
                let weight = value.trim().parse().ok();
                weighted.weight = weight.filter(|weight| (0.0..=1.0).contains(weight))?;
            } else if name.trim().eq_ignore_ascii_case("version") {
                weighted.version = Some(value.trim().trim_matches('"'));
            }
        }
        Some(weighted)
    })
}

/// The format of ours that a media range stands for. OpenMetrics 0.0.1 is the draft that Prometheus
/// names beside 1.0.0 and reads alike. Text 1.0.0 is not ours: it is about names we do not have.
fn format_of(range: &Weighted<'_>) -> Option<Format> {
    match (range.name.to_ascii_lowercase().as_str(), range.version) {
        ("application/openmetrics-text", None | Some("1.0.0" | "0.0.1"))
        | ("application/*", None) => Some(Format::OpenMetrics),
        ("text/plain", None | Some("0.0.4")) | ("text/*" | "*/*", None) => Some(Format::Text),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_prometheus_sends_gets_openmetrics() {
        for accept in [
            // 2.42
            "application/openmetrics-text;version=1.0.0,application/openmetrics-text;\
             version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            // 3.x
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            // 3.x with native histograms
            "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;\
             encoding=delimited;q=0.6,\
             application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
             application/openmetrics-text;version=0.0.1;q=0.4,\
             text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
             text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
        ] {
            assert_eq!(negotiate(Some(accept)), Format::OpenMetrics, "{accept}");
        }
    }

    #[test]
    fn the_highest_weight_that_we_have_wins() {
        for (accept, format) in [
            (None, Format::Text),
            (Some(""), Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), Format::Text),
            (Some("application/openmetrics-text"), Format::OpenMetrics),
            (Some("Application/OpenMetrics-Text; Version=\"1.0.0\""), Format::OpenMetrics),
            (Some("application/openmetrics-text;version=0.0.1"), Format::OpenMetrics),
            (Some("application/openmetrics-text;version=2.0.0"), Format::Text),
            (Some("application/openmetrics-text;version=2.0.0, */*;q=0.1"), Format::Text),
            (Some("application/openmetrics-text;q=0.4, text/plain;q=0.5"), Format::Text),
            (Some("text/plain;q=0.4, application/openmetrics-text;q=0.5"), Format::OpenMetrics),
            (
                Some("text/plain;version=1.0.0, application/openmetrics-text;q=0.1"),
                Format::OpenMetrics,
            ),
            (Some("text/plain, application/openmetrics-text"), Format::Text),
            (Some("application/openmetrics-text, text/plain"), Format::OpenMetrics),
            (Some("*/*, application/openmetrics-text"), Format::OpenMetrics),
            (Some("application/openmetrics-text;q=0"), Format::Text),
            (Some("application/openmetrics-text;q=nan, text/plain;q=0.1"), Format::Text),
            (Some("application/json"), Format::Text),
            (Some(";;q=,,=;"), Format::Text),
        ] {
            assert_eq!(negotiate(accept), format, "{accept:?}");
        }
    }

    #[test]
    fn gzip_is_used_only_where_it_is_allowed() {
        for (accept_encoding, allowed) in [
            (None, false),
            (Some(""), false),
            (Some("gzip"), true),
            (Some("GZIP;q=0.1"), true),
            (Some("deflate, gzip;q=1.0, *;q=0.5"), true),
            (Some("*"), true),
            (Some("gzip;q=0"), false),
            (Some("gzip; q=0.000, *"), false),
            (Some("*;q=0"), false),
            (Some("identity, br"), false),
            (Some("gzipped"), false),
        ] {
            assert_eq!(accepts_gzip(accept_encoding), allowed, "{accept_encoding:?}");
        }
    }
}
