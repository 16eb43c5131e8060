//! The text format read back, and a matcher whose failure prints the near misses: samples of the
//! same name and what differs in them. It knows the format and no metric.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{self, Write as _};

/// One answer of `/metrics`.
#[derive(Clone, Debug)]
pub struct Scrape {
    samples: Vec<Sample>,
    help: BTreeMap<String, String>,
    types: BTreeMap<String, String>,
}

/// One line of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// The name, suffixes such as `_total` and `_bucket` included.
    pub name: String,
    /// Label names and values.
    pub labels: BTreeMap<String, String>,
    /// The value.
    pub value: f64,
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.labels.iter().map(|(name, value)| format!("{name}={value:?}"));
        write!(f, "{}{{{}}} {}", self.name, labels.collect::<Vec<_>>().join(","), self.value)
    }
}

impl Scrape {
    /// Reads the text format; panics with the line that is not in it.
    pub fn parse(text: &str) -> Scrape {
        let mut scrape =
            Scrape { samples: Vec::new(), help: BTreeMap::new(), types: BTreeMap::new() };
        for line in text.lines().filter(|line| !line.is_empty()) {
            let mut words = line.splitn(4, ' ');
            match (words.next(), words.next(), words.next(), words.next()) {
                (Some("#"), Some("HELP"), Some(name), help) => {
                    scrape.help.insert(name.to_owned(), help.unwrap_or_default().to_owned());
                }
                (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                    scrape.types.insert(name.to_owned(), kind.to_owned());
                }
                (Some("#"), ..) => {}
                _ => {
                    let sample = parse_sample(line);
                    scrape.samples.push(sample.unwrap_or_else(|| panic!("no sample: {line}")));
                }
            }
        }
        scrape
    }

    /// Begins a match of samples of this name.
    pub fn sample(&self, name: &str) -> Matcher<'_> {
        Matcher { scrape: self, name: name.to_owned(), labels: Vec::new() }
    }

    /// All samples, in the order they came.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// HELP texts by family.
    pub fn help(&self) -> &BTreeMap<String, String> {
        &self.help
    }

    /// TYPE by family.
    pub fn types(&self) -> &BTreeMap<String, String> {
        &self.types
    }
}

/// The samples of one name that carry some labels, and perhaps others.
#[derive(Clone, Debug)]
pub struct Matcher<'a> {
    scrape: &'a Scrape,
    name: String,
    labels: Vec<(String, String)>,
}

impl<'a> Matcher<'a> {
    /// Asks for a label. As in PromQL, the empty value matches a label that is not there.
    pub fn with(mut self, label: &str, value: &str) -> Matcher<'a> {
        self.labels.push((label.to_owned(), value.to_owned()));
        self
    }

    /// Panics unless exactly one sample matches and has this value.
    #[track_caller]
    pub fn is(&self, expected: f64) {
        let value = self.value();
        assert!(value == expected, "{self} is {value}, not {expected}{}", self.near_misses());
    }

    /// The value of the only match.
    #[track_caller]
    pub fn value(&self) -> f64 {
        match self.values()[..] {
            [value] => value,
            [] => panic!("no sample {self}{}", self.near_misses()),
            _ => panic!("not one sample {self} but several:{}", self.listing(self.matches())),
        }
    }

    /// Panics if any sample matches.
    #[track_caller]
    pub fn absent(&self) {
        let found = self.matches();
        assert!(found.is_empty(), "unexpected sample {self}:{}", self.listing(found));
    }

    /// Panics unless a sample matches, whatever its value.
    #[track_caller]
    pub fn present(&self) {
        assert!(!self.matches().is_empty(), "no sample {self}{}", self.near_misses());
    }

    /// The values of all matches, in the order they came.
    pub fn values(&self) -> Vec<f64> {
        self.matches().iter().map(|sample| sample.value).collect()
    }

    /// All matches, in the order they came.
    pub fn matches(&self) -> Vec<&'a Sample> {
        let is_match = |sample: &&Sample| self.misfits(sample).is_empty();
        self.same_name().filter(is_match).collect()
    }

    fn same_name(&self) -> impl Iterator<Item = &'a Sample> {
        self.scrape.samples.iter().filter(|sample| sample.name == self.name)
    }

    /// The asked-for labels that a sample does not have, with what it has instead.
    fn misfits(&self, sample: &Sample) -> Vec<String> {
        let actual = |label: &String| sample.labels.get(label).map_or("", String::as_str);
        self.labels
            .iter()
            .filter(|(label, value)| actual(label) != value)
            .map(|(label, _)| format!("{label} is {:?}", actual(label)))
            .collect()
    }

    /// What was there instead, nearest first.
    fn near_misses(&self) -> String {
        let mut misses: Vec<(usize, String)> = self
            .same_name()
            .map(|sample| (self.misfits(sample), sample))
            .filter(|(misfits, _)| !misfits.is_empty())
            .map(|(misfits, sample)| (misfits.len(), format!("{sample} ({})", misfits.join(", "))))
            .collect();
        misses.sort();
        if !misses.is_empty() {
            let misses = misses.iter().take(20).map(|(_, miss)| miss);
            return misses.fold("\nnear misses:".to_owned(), |text, miss| text + "\n  " + miss);
        }
        if self.same_name().next().is_some() {
            return String::new();
        }
        let stem = self.name.rsplit_once('_').map_or(self.name.as_str(), |(stem, _)| stem);
        let names: BTreeSet<&str> = self.scrape.samples.iter().map(|s| s.name.as_str()).collect();
        let alike: Vec<&str> = names.into_iter().filter(|name| name.starts_with(stem)).collect();
        format!("\nno sample has this name; names that begin alike: {alike:?}")
    }

    fn listing(&self, samples: Vec<&Sample>) -> String {
        samples.iter().map(|sample| format!("\n  {sample}")).collect()
    }
}

impl fmt::Display for Matcher<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        f.write_char('{')?;
        for (position, (label, value)) in self.labels.iter().enumerate() {
            let comma = if position == 0 { "" } else { "," };
            write!(f, "{comma}{label}={value:?}")?;
        }
        f.write_char('}')
    }
}

/// `name{label="value",…} value`, with an optional timestamp that is not kept.
fn parse_sample(line: &str) -> Option<Sample> {
    let end = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at(end);
    let mut labels = BTreeMap::new();
    if let Some(inside) = rest.strip_prefix('{') {
        rest = inside;
        loop {
            rest = rest.trim_start_matches(',');
            if let Some(after) = rest.strip_prefix('}') {
                rest = after;
                break;
            }
            let (label, quoted) = rest.split_once("=\"")?;
            let (value, after) = parse_label_value(quoted)?;
            labels.insert(label.to_owned(), value);
            rest = after;
        }
    }
    let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
    Some(Sample { name: name.to_owned(), labels, value })
}

/// A label's value up to its closing quote, unescaped, and what follows the quote.
fn parse_label_value(quoted: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((position, character)) = characters.next() {
        match character {
            '"' => return Some((value, &quoted[position + 1..])),
            '\\' => value.push(match characters.next()?.1 {
                'n' => '\n',
                escaped => escaped,
            }),
            plain => value.push(plain),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    const SCRAPE: &str = "\
# HELP pg_advisory_lock_holders Sessions that hold the key.
# TYPE pg_advisory_lock_holders gauge
pg_advisory_lock_holders{lock=\"jobs\",application_name=\"pod-a\"} 1
pg_advisory_lock_holders{lock=\"mails\",application_name=\"a \\\"b\\\" \\\\ \\n,}\"} 2 1700000000
pg_advisory_up 1
pg_advisory_lock_hold_limit_seconds{lock=\"jobs\"} +Inf
";

    fn failure(check: impl FnOnce(&Scrape) + std::panic::UnwindSafe) -> String {
        let panic = catch_unwind(|| check(&Scrape::parse(SCRAPE))).expect_err("it fails");
        *panic.downcast::<String>().expect("a message")
    }

    #[test]
    fn samples_labels_and_values_are_read() {
        let scrape = Scrape::parse(SCRAPE);
        scrape.sample("pg_advisory_up").is(1.0);
        scrape.sample("pg_advisory_lock_holders").with("lock", "jobs").is(1.0);
        scrape
            .sample("pg_advisory_lock_holders")
            .with("application_name", "a \"b\" \\ \n,}")
            .is(2.0);
        scrape.sample("pg_advisory_lock_hold_limit_seconds").with("lock", "jobs").is(f64::INFINITY);
        scrape.sample("pg_advisory_lock_waiters").absent();
        assert_eq!(scrape.sample("pg_advisory_lock_holders").values(), [1.0, 2.0]);
        assert_eq!(scrape.types()["pg_advisory_lock_holders"], "gauge");
        assert_eq!(scrape.help()["pg_advisory_lock_holders"], "Sessions that hold the key.");
    }

    #[test]
    fn an_empty_value_matches_a_missing_label() {
        let scrape = Scrape::parse(SCRAPE);
        scrape.sample("pg_advisory_up").with("lock", "").is(1.0);
        scrape.sample("pg_advisory_lock_holders").with("lock", "").absent();
    }

    #[test]
    fn a_failure_names_the_label_that_differs() {
        let text = failure(|scrape| {
            let holders = scrape.sample("pg_advisory_lock_holders").with("lock", "jobs");
            holders.with("application_name", "pod-b").is(1.0);
        });
        let miss = "{application_name=\"pod-a\",lock=\"jobs\"} 1 (application_name is \"pod-a\")";
        assert!(text.contains(miss), "{text}");
    }

    #[test]
    fn a_failure_names_the_value_that_differs() {
        let text = failure(|scrape| {
            scrape.sample("pg_advisory_lock_holders").with("lock", "jobs").is(3.0);
        });
        assert!(text.contains("is 1, not 3"), "{text}");
    }

    #[test]
    fn a_failure_names_names_that_begin_alike() {
        let text = failure(|scrape| scrape.sample("pg_advisory_lock_waiters").present());
        assert!(text.contains("\"pg_advisory_lock_holders\""), "{text}");
    }

    #[test]
    fn several_matches_are_not_one() {
        let text = failure(|scrape| scrape.sample("pg_advisory_lock_holders").is(1.0));
        assert!(text.contains("but several"), "{text}");
    }
}
