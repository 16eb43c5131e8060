//! Families as text: the Prometheus text format 0.0.4 and OpenMetrics 1.0, by one encoder.
//!
//! It owns what both formats demand of any family: order, escaping, numbers, no series twice. It
//! knows no metric by name and nothing of HTTP but the content type. The result is the body of a
//! scrape (`server`). The encoder of the `prometheus` crate is not used: it has no OpenMetrics, lets
//! control characters and duplicates through, and writes infinity as `inf`.

use std::collections::BTreeMap;
use std::fmt::Write;

use prometheus::proto::{Histogram, LabelPair, Metric, MetricFamily, MetricType};

/// Units that a family may name by its suffix; OpenMetrics repeats them in a line of their own.
const UNITS: [&str; 2] = ["seconds", "bytes"];

/// The two text formats of a scrape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus text format 0.0.4.
    Text,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// The media type with its version. Prometheus 3 fails a scrape whose type it cannot parse, so
    /// this is the exact spelling of the specifications.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// A rendered scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exposition {
    /// The whole body.
    pub text: String,
    /// Samples left out because they could not be told apart from one before them, or because
    /// their family's type was not the first one's or is none of gauge, counter and histogram.
    /// Always a bug in whoever built the families, and too frequent a place to log it: it is
    /// counted here for the caller.
    pub dropped: usize,
}

/// Renders families, sorted by name, each with its samples sorted by labels, so that two scrapes of
/// one picture are the same bytes. Families of one name become one; of samples with the same labels
/// the first stays. A family without samples is left out, as registries do.
pub fn render_families(families: &[MetricFamily], format: Format) -> Exposition {
    let mut by_name: BTreeMap<&str, Vec<&MetricFamily>> = BTreeMap::new();
    for family in families.iter().filter(|family| !family.get_metric().is_empty()) {
        by_name.entry(family.name()).or_default().push(family);
    }
    let mut exposition = Exposition::default();
    for (name, parts) in by_name {
        render_family(&mut exposition, name, &parts, format);
    }
    if format == Format::OpenMetrics {
        exposition.text.push_str("# EOF\n");
    }
    exposition
}

/// Renders the parts that share a name as one family.
fn render_family(exposition: &mut Exposition, name: &str, parts: &[&MetricFamily], format: Format) {
    let field_type = parts[0].get_field_type();
    let given: usize = parts.iter().map(|part| part.get_metric().len()).sum();
    let Some(type_word) = type_word(field_type) else {
        exposition.dropped += given;
        return;
    };
    let mut samples: Vec<(String, &Metric)> = parts
        .iter()
        .filter(|part| part.get_field_type() == field_type)
        .flat_map(|part| part.get_metric())
        .map(|metric| (render_labels(metric.get_label()), metric))
        .collect();
    // Compared as they are rendered, since that is what a scraper compares. The sort is stable, so
    // the first of equals stays the first.
    samples.sort_by(|(a, _), (b, _)| a.cmp(b));
    samples.dedup_by(|(later, _), (first, _)| later == first);
    exposition.dropped += given - samples.len();

    // In OpenMetrics `_total` belongs to the sample of a counter, not to its family.
    let (family, suffix) = if field_type == MetricType::COUNTER && format == Format::OpenMetrics {
        (name.strip_suffix("_total").unwrap_or(name), "_total")
    } else {
        (name, "")
    };
    let text = &mut exposition.text;
    render_metadata(text, family, type_word, parts[0].help(), format);
    for (labels, metric) in &samples {
        let value = match field_type {
            MetricType::COUNTER => metric.get_counter().get_value(),
            MetricType::GAUGE => metric.get_gauge().get_value(),
            MetricType::HISTOGRAM => {
                render_histogram(text, family, labels, metric.get_histogram());
                continue;
            }
            MetricType::SUMMARY | MetricType::UNTYPED => unreachable!("it has no type word"),
        };
        render_sample(text, family, suffix, labels, &render_value(value));
    }
}

/// The word of the TYPE line, for the types this program has.
fn type_word(field_type: MetricType) -> Option<&'static str> {
    match field_type {
        MetricType::COUNTER => Some("counter"),
        MetricType::GAUGE => Some("gauge"),
        MetricType::HISTOGRAM => Some("histogram"),
        MetricType::SUMMARY | MetricType::UNTYPED => None,
    }
}

/// Writes HELP and TYPE in the order each format asks for, and UNIT where there is one.
fn render_metadata(text: &mut String, family: &str, type_word: &str, help: &str, format: Format) {
    let quotes_too = format == Format::OpenMetrics;
    let help = match help {
        "" => String::new(),
        help => format!("# HELP {family} {}\n", escape(help, quotes_too)),
    };
    let type_line = format!("# TYPE {family} {type_word}\n");
    match format {
        Format::Text => {
            text.push_str(&help);
            text.push_str(&type_line);
        }
        Format::OpenMetrics => {
            text.push_str(&type_line);
            if let Some(unit) = unit_of(family) {
                push(text, format_args!("# UNIT {family} {unit}\n"));
            }
            text.push_str(&help);
        }
    }
}

/// The unit that the family's name ends with.
fn unit_of(family: &str) -> Option<&'static str> {
    UNITS
        .into_iter()
        .find(|unit| family.strip_suffix(unit).is_some_and(|quantity| quantity.ends_with('_')))
}

/// Writes the buckets of one histogram, its sum and its count. The bucket without a bound is
/// written from the count, whether the histogram lists it or not.
fn render_histogram(text: &mut String, family: &str, labels: &str, histogram: &Histogram) {
    let separator = if labels.is_empty() { "" } else { "," };
    let mut bucket = |bound: &str, count: u64| {
        let labels = format!("{labels}{separator}le=\"{bound}\"");
        render_sample(text, family, "_bucket", &labels, &count.to_string());
    };
    for entry in histogram.get_bucket() {
        if entry.upper_bound() != f64::INFINITY {
            bucket(&render_bound(entry.upper_bound()), entry.cumulative_count());
        }
    }
    let count = histogram.get_sample_count();
    bucket("+Inf", count);
    let sum = render_value(histogram.get_sample_sum());
    render_sample(text, family, "_sum", labels, &sum);
    render_sample(text, family, "_count", labels, &count.to_string());
}

fn render_sample(text: &mut String, family: &str, suffix: &str, labels: &str, value: &str) {
    if labels.is_empty() {
        push(text, format_args!("{family}{suffix} {value}\n"));
    } else {
        push(text, format_args!("{family}{suffix}{{{labels}}} {value}\n"));
    }
}

/// `name="value"` pairs, sorted by name: parsers cache the text of a series, so the order must be
/// the same at every scrape.
fn render_labels(labels: &[LabelPair]) -> String {
    let mut sorted: Vec<&LabelPair> = labels.iter().collect();
    sorted.sort_by_key(|label| label.name());
    let mut text = String::new();
    for label in sorted {
        let separator = if text.is_empty() { "" } else { "," };
        let value = escape(label.value(), true);
        push(&mut text, format_args!("{separator}{}=\"{value}\"", label.name()));
    }
    text
}

/// Escapes what the formats give a meaning, and shows other control characters by their pictures
/// (`␀` for NUL, `␛` for ESC): application names are chosen by clients and must neither tear the
/// output nor colour somebody's terminal.
fn escape(value: &str, quotes_too: bool) -> String {
    const PICTURES: u32 = 0x2400;
    let mut escaped = String::with_capacity(value.len());
    for c in value.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '\n' => escaped.push_str("\\n"),
            '"' if quotes_too => escaped.push_str("\\\""),
            '\0'..='\x1f' => escaped.extend(char::from_u32(PICTURES + u32::from(c))),
            '\x7f' => escaped.push('\u{2421}'),
            c if c.is_control() => escaped.push(char::REPLACEMENT_CHARACTER),
            c => escaped.push(c),
        }
    }
    escaped
}

/// The shortest text that reads back as the same number; powers of ten only where the digits would
/// be no help to anybody, so that timestamps stay readable.
fn render_value(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else if value == f64::NEG_INFINITY {
        "-Inf".to_owned()
    } else if value == 0.0 || value.is_nan() || (1e-6..1e17).contains(&value.abs()) {
        value.to_string()
    } else {
        format!("{value:e}")
    }
}

/// A bucket's bound as OpenMetrics wants it ("canonical numbers"): Go's `%g`, with `.0` after a
/// whole number. The text format allows the same, and Prometheus 3 stores it so anyway.
fn render_bound(bound: f64) -> String {
    let scientific = format!("{bound:e}");
    let exponent = scientific.split_once('e').and_then(|(mantissa, exponent)| {
        exponent.parse::<i32>().ok().map(|exponent| (mantissa, exponent))
    });
    match exponent {
        Some((_, -4..=5)) => format!("{bound:?}"),
        Some((mantissa, exponent)) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{mantissa}e{sign}{:02}", exponent.abs())
        }
        None => render_value(bound),
    }
}

fn push(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    text.write_fmt(arguments).expect("writing to a String cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;
    use prometheus::proto::{Bucket, Counter, Gauge};
    use proptest::prelude::*;

    fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
        pairs
            .iter()
            .map(|(name, value)| {
                let mut label = LabelPair::default();
                label.set_name((*name).to_owned());
                label.set_value((*value).to_owned());
                label
            })
            .collect()
    }

    fn gauge(pairs: &[(&str, &str)], value: f64) -> Metric {
        let mut gauge = Gauge::default();
        gauge.set_value(value);
        let mut metric = Metric::from_label(labels(pairs));
        metric.set_gauge(gauge);
        metric
    }

    fn counter(pairs: &[(&str, &str)], value: f64) -> Metric {
        let mut counter = Counter::default();
        counter.set_value(value);
        let mut metric = Metric::from_label(labels(pairs));
        metric.set_counter(counter);
        metric
    }

    fn histogram(pairs: &[(&str, &str)], buckets: &[(f64, u64)], sum: f64, count: u64) -> Metric {
        let mut histogram = Histogram::default();
        let bucket = |&(bound, count): &(f64, u64)| {
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(bound);
            bucket.set_cumulative_count(count);
            bucket
        };
        histogram.set_bucket(buckets.iter().map(bucket).collect());
        histogram.set_sample_sum(sum);
        histogram.set_sample_count(count);
        let mut metric = Metric::from_label(labels(pairs));
        metric.set_histogram(histogram);
        metric
    }

    fn family(
        name: &str,
        field_type: MetricType,
        help: &str,
        samples: Vec<Metric>,
    ) -> MetricFamily {
        let mut family = MetricFamily::default();
        family.set_name(name.to_owned());
        family.set_help(help.to_owned());
        family.set_field_type(field_type);
        family.set_metric(samples);
        family
    }

    /// One family of each type, out of order and with hostile labels.
    fn families() -> Vec<MetricFamily> {
        vec![
            family(
                "demo_waits_seconds_total",
                MetricType::COUNTER,
                "A \"quoted\" help,\nwith a \\ in it.",
                vec![counter(&[("key", "42")], 1.5), counter(&[("key", "(7,9)")], 3.0)],
            ),
            family(
                "demo_hold_duration_seconds",
                MetricType::HISTOGRAM,
                "Finished holds.",
                vec![
                    histogram(&[], &[(0.25, 1), (5.0, 2), (86_400.0, 2)], 86_500.25, 3),
                    histogram(&[("lock", "nightly")], &[(5.0, 0), (f64::INFINITY, 1)], 7.0, 1),
                ],
            ),
            family(
                "demo_info",
                MetricType::GAUGE,
                "Constant.",
                vec![gauge(
                    &[("version", "0.1"), ("application_name", "a\"b\\c\nd\0e\x1b[31m\u{85}é")],
                    1.0,
                )],
            ),
            family(
                "demo_held_since_timestamp_seconds",
                MetricType::GAUGE,
                "Since when.",
                vec![gauge(&[], 1_764_518_400.123)],
            ),
            family("demo_limit_seconds", MetricType::GAUGE, "", vec![gauge(&[], f64::INFINITY)]),
            family("demo_empty", MetricType::GAUGE, "Nothing to say.", vec![]),
        ]
    }

    #[test]
    fn the_text_format_is_rendered_as_a_whole() {
        let exposition = render_families(&families(), Format::Text);
        assert_eq!(exposition.dropped, 0);
        assert_eq!(
            exposition.text,
            r#"# HELP demo_held_since_timestamp_seconds Since when.
# TYPE demo_held_since_timestamp_seconds gauge
demo_held_since_timestamp_seconds 1764518400.123
# HELP demo_hold_duration_seconds Finished holds.
# TYPE demo_hold_duration_seconds histogram
demo_hold_duration_seconds_bucket{le="0.25"} 1
demo_hold_duration_seconds_bucket{le="5.0"} 2
demo_hold_duration_seconds_bucket{le="86400.0"} 2
demo_hold_duration_seconds_bucket{le="+Inf"} 3
demo_hold_duration_seconds_sum 86500.25
demo_hold_duration_seconds_count 3
demo_hold_duration_seconds_bucket{lock="nightly",le="5.0"} 0
demo_hold_duration_seconds_bucket{lock="nightly",le="+Inf"} 1
demo_hold_duration_seconds_sum{lock="nightly"} 7
demo_hold_duration_seconds_count{lock="nightly"} 1
# HELP demo_info Constant.
# TYPE demo_info gauge
demo_info{application_name="a\"b\\c\nd␀e␛[31m�é",version="0.1"} 1
# TYPE demo_limit_seconds gauge
demo_limit_seconds +Inf
# HELP demo_waits_seconds_total A "quoted" help,\nwith a \\ in it.
# TYPE demo_waits_seconds_total counter
demo_waits_seconds_total{key="(7,9)"} 3
demo_waits_seconds_total{key="42"} 1.5
"#
        );
    }

    #[test]
    fn openmetrics_is_rendered_as_a_whole() {
        let exposition = render_families(&families(), Format::OpenMetrics);
        assert_eq!(exposition.dropped, 0);
        assert_eq!(
            exposition.text,
            r#"# TYPE demo_held_since_timestamp_seconds gauge
# UNIT demo_held_since_timestamp_seconds seconds
# HELP demo_held_since_timestamp_seconds Since when.
demo_held_since_timestamp_seconds 1764518400.123
# TYPE demo_hold_duration_seconds histogram
# UNIT demo_hold_duration_seconds seconds
# HELP demo_hold_duration_seconds Finished holds.
demo_hold_duration_seconds_bucket{le="0.25"} 1
demo_hold_duration_seconds_bucket{le="5.0"} 2
demo_hold_duration_seconds_bucket{le="86400.0"} 2
demo_hold_duration_seconds_bucket{le="+Inf"} 3
demo_hold_duration_seconds_sum 86500.25
demo_hold_duration_seconds_count 3
demo_hold_duration_seconds_bucket{lock="nightly",le="5.0"} 0
demo_hold_duration_seconds_bucket{lock="nightly",le="+Inf"} 1
demo_hold_duration_seconds_sum{lock="nightly"} 7
demo_hold_duration_seconds_count{lock="nightly"} 1
# TYPE demo_info gauge
# HELP demo_info Constant.
demo_info{application_name="a\"b\\c\nd␀e␛[31m�é",version="0.1"} 1
# TYPE demo_limit_seconds gauge
# UNIT demo_limit_seconds seconds
demo_limit_seconds +Inf
# TYPE demo_waits_seconds counter
# UNIT demo_waits_seconds seconds
# HELP demo_waits_seconds A \"quoted\" help,\nwith a \\ in it.
demo_waits_seconds_total{key="(7,9)"} 3
demo_waits_seconds_total{key="42"} 1.5
# EOF
"#
        );
    }

    #[test]
    fn nothing_to_say_is_an_empty_text_and_a_bare_end_in_openmetrics() {
        assert_eq!(render_families(&[], Format::Text).text, "");
        assert_eq!(render_families(&[], Format::OpenMetrics).text, "# EOF\n");
    }

    #[test]
    fn of_samples_with_the_same_labels_the_first_stays_and_the_rest_are_counted() {
        let samples = vec![
            gauge(&[("a", "1"), ("b", "2")], 10.0),
            gauge(&[("b", "2"), ("a", "1")], 20.0),
            // Not the same text, but the same once it is fit to be shown.
            gauge(&[("a", "\u{80}")], 30.0),
            gauge(&[("a", "\u{81}")], 40.0),
        ];
        let exposition =
            render_families(&[family("x", MetricType::GAUGE, "", samples)], Format::Text);
        assert_eq!(exposition.text, "# TYPE x gauge\nx{a=\"1\",b=\"2\"} 10\nx{a=\"�\"} 30\n");
        assert_eq!(exposition.dropped, 2);
    }

    #[test]
    fn families_of_one_name_become_one_and_another_type_is_dropped() {
        let parts = [
            family("x", MetricType::GAUGE, "Help.", vec![gauge(&[("server", "b")], 1.0)]),
            family("y", MetricType::GAUGE, "", vec![gauge(&[], 2.0)]),
            family("x", MetricType::GAUGE, "Other help.", vec![gauge(&[("server", "a")], 3.0)]),
            family("x", MetricType::COUNTER, "", vec![counter(&[("server", "c")], 4.0)]),
        ];
        let exposition = render_families(&parts, Format::Text);
        assert_eq!(
            exposition.text,
            "# HELP x Help.\n# TYPE x gauge\nx{server=\"a\"} 3\nx{server=\"b\"} 1\n\
             # TYPE y gauge\ny 2\n"
        );
        assert_eq!(exposition.dropped, 1);
    }

    #[test]
    fn a_type_that_is_not_ours_is_dropped_and_counted() {
        let summary = family("x", MetricType::SUMMARY, "", vec![Metric::default()]);
        let exposition = render_families(&[summary], Format::OpenMetrics);
        assert_eq!(exposition, Exposition { text: "# EOF\n".to_owned(), dropped: 1 });
    }

    #[test]
    fn a_unit_is_a_suffix_of_its_own() {
        for (name, unit) in [
            ("a_seconds", Some("seconds")),
            ("a_memory_bytes", Some("bytes")),
            ("nanoseconds", None),
            ("seconds", None),
            ("a_seconds_info", None),
        ] {
            let families = [family(name, MetricType::GAUGE, "", vec![gauge(&[], 1.0)])];
            let text = render_families(&families, Format::OpenMetrics).text;
            let line = unit.map(|unit| format!("# UNIT {name} {unit}"));
            assert_eq!(text.lines().find(|line| line.starts_with("# UNIT")), line.as_deref());
        }
    }

    #[test]
    fn values_are_short_and_say_infinity_as_the_formats_do() {
        for (value, text) in [
            (0.0, "0"),
            (3.0, "3"),
            (0.1, "0.1"),
            (1_764_518_400.5, "1764518400.5"),
            (1e300, "1e300"),
            (-2.5e-9, "-2.5e-9"),
            (f64::INFINITY, "+Inf"),
            (f64::NEG_INFINITY, "-Inf"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(render_value(value), text);
        }
    }

    #[test]
    fn bounds_are_written_as_go_writes_them() {
        for (bound, text) in [
            (0.0, "0.0"),
            (0.005, "0.005"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (5.0, "5.0"),
            (86_400.0, "86400.0"),
            (100_000.0, "100000.0"),
            (1e6, "1e+06"),
            (1.25e10, "1.25e+10"),
        ] {
            assert_eq!(render_bound(bound), text);
        }
    }

    /// What a scraper reads between the quotes.
    fn unescape(value: &str) -> String {
        value.replace("\\\\", "\0").replace("\\n", "\n").replace("\\\"", "\"").replace('\0', "\\")
    }

    proptest! {
        #[test]
        fn any_label_value_is_one_line_and_reads_back(value in any::<String>()) {
            let samples = vec![gauge(&[("application_name", &value)], 1.0)];
            let families = [family("x", MetricType::GAUGE, "", samples)];
            let text = render_families(&families, Format::OpenMetrics).text;
            let lines: Vec<&str> = text.split('\n').collect();
            prop_assert_eq!(lines.len(), 4, "{:?}", text);
            prop_assert!(!text.chars().any(|c| c.is_control() && c != '\n'));

            let inside = lines[1].strip_prefix("x{application_name=\"").unwrap();
            let inside = inside.strip_suffix("\"} 1").unwrap();
            let read = unescape(inside);
            prop_assert_eq!(read.chars().count(), value.chars().count());
            for (read, given) in read.chars().zip(value.chars()) {
                prop_assert!(read == given || given.is_control());
            }
        }

        #[test]
        fn any_value_reads_back_as_itself(value in any::<f64>()) {
            prop_assume!(!value.is_nan());
            prop_assert_eq!(render_value(value).parse::<f64>().unwrap(), value);
            prop_assert_eq!(render_bound(value).parse::<f64>().unwrap(), value);
        }
    }
}
