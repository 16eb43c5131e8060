//! What came out of a poll against what a scenario expects: both as lines of text, so that a
//! failure is read as it was written.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt::Write;

use pg_locks_exporter::blocking::{Blocker, BlockerKind};
use pg_locks_exporter::finding::{Finding, Gap};
use pg_locks_exporter::order::{Edge, Inversion};
use pg_locks_exporter::registry::{Candidate, Origin};
use pg_locks_exporter::sample::{DatabaseOid, Sample};
use pg_locks_exporter::timestamp::Timestamp;
use pg_locks_exporter::tracker::{Change, KeyId, SessionId};
use pg_locks_exporter::view::{Holder, Lock, Picture, Root, Waiter};

use super::notation::{DATABASES, key_word};
use super::{Expect, Known};

/// Compares everything that is expected; all differences are told at once.
pub fn check(expect: &Expect, known: &Known) -> Result<(), String> {
    let locks = || known.picture.iter().flat_map(|picture| &picture.locks);
    let mut errors = String::new();
    if let Some(expected) = &expect.holds {
        let at = known.picture.as_ref().map(|picture| picture.at);
        let actual = locks().flat_map(|lock| {
            lock.holders.iter().map(move |holder| hold_line(lock, holder, at.expect("a picture")))
        });
        compare(&mut errors, "holds", expected, actual.collect());
    }
    if let Some(expected) = &expect.waits {
        let actual = locks()
            .flat_map(|lock| lock.waiters.iter().map(move |waiter| wait_line(lock, waiter)))
            .collect();
        compare(&mut errors, "waits", expected, actual);
    }
    if let Some(expected) = &expect.changes {
        let actual = known.changes.iter().map(|change| Line::bare(&change_line(change)));
        compare(&mut errors, "changes", expected, actual.collect());
    }
    if let Some(expected) = &expect.series {
        let series: BTreeSet<String> = locks()
            .map(|lock| {
                let series = &lock.label.series;
                format!("{} {} {}", series.datname, word(&series.lock), word(&series.key))
            })
            .collect();
        compare(&mut errors, "series", expected, series.iter().map(|it| Line::bare(it)).collect());
    }
    if let Some(expected) = &expect.names {
        let names = locks().filter(|lock| lock.label.resolution.lock.is_some()).map(|lock| {
            let name = lock.label.resolution.display_name();
            Line::bare(&format!("{} {}", key_words(lock.id), word(&name)))
        });
        compare(&mut errors, "names", expected, names.collect());
    }
    if let Some(expected) = &expect.candidates {
        let actual = locks()
            .flat_map(|lock| {
                let candidates = &lock.label.resolution.candidates;
                candidates.iter().map(move |candidate| candidate_line(lock, candidate))
            })
            .collect();
        compare(&mut errors, "candidates", expected, actual);
    }
    if let Some(expected) = &expect.findings {
        let free = known.picture.iter().flat_map(|picture| &picture.free);
        let actual = locks()
            .chain(free)
            .flat_map(|lock| lock.findings.iter().map(move |it| finding_line(lock, it)))
            .collect();
        compare(&mut errors, "findings", expected, actual);
    }
    if let Some(expected) = &expect.orders {
        let inversions = known.picture.iter().flat_map(|picture| &picture.inversions);
        compare(&mut errors, "orders", expected, inversions.map(|it| order_line(it)).collect());
    }
    if let Some(expected) = &expect.not_judged {
        let actual = known.picture.iter().flat_map(|it| Gap::find_all(it)).map(|gap| Line {
            identity: gap.kind.as_str().to_owned(),
            fields: BTreeMap::from([
                ("part", gap.is_partial().to_string()),
                ("reason", word(&gap.render_reason())),
            ]),
        });
        compare(&mut errors, "not judged", expected, actual.collect());
    }
    for expected in &expect.samples {
        check_sample(&mut errors, expected, true, &known.exposition);
    }
    for expected in &expect.absent {
        check_sample(&mut errors, expected, false, &known.exposition);
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// Every row read is somebody's hold or wait, and every hold and wait was read.
pub fn check_rows(sample: &Sample, picture: &Picture) -> Result<(), String> {
    let rows = |granted: bool| {
        let groups = sample.advisory.iter().filter(move |group| group.granted == granted);
        let rows = groups.flat_map(|group| {
            let who = group.pid.ok_or_else(|| group.transaction.as_str());
            let database = group.database;
            group.keys.iter().map(move |key| (who, KeyId { database, key: *key }, &group.mode))
        });
        rows.collect::<HashSet<_>>().len()
    };
    let held: usize = picture
        .locks
        .iter()
        .flat_map(|lock| &lock.holders)
        .map(|holder| holder.modes().count())
        .sum();
    let awaited: usize = picture.locks.iter().map(|lock| lock.waiters.len()).sum();
    if (rows(true), rows(false)) == (held, awaited) {
        return Ok(());
    }
    Err(format!(
        "{} rows held and {} awaited, but {held} and {awaited} in the picture",
        rows(true),
        rows(false)
    ))
}

/// What is compared in full, and what only where it is written.
struct Line {
    identity: String,
    fields: BTreeMap<&'static str, String>,
}

impl Line {
    fn bare(identity: &str) -> Self {
        Self { identity: identity.to_owned(), fields: BTreeMap::new() }
    }

    fn matches(&self, expected: &str) -> bool {
        let (fields, identity): (Vec<&str>, Vec<&str>) =
            expected.split_whitespace().partition(|word| word.contains('='));
        identity.join(" ") == self.identity
            && fields.iter().all(|field| {
                let (name, value) = field.split_once('=').unwrap_or_default();
                self.fields.get(name).is_some_and(|actual| actual == value)
            })
    }

    fn render(&self) -> String {
        let mut text = self.identity.clone();
        for (name, value) in &self.fields {
            let _ = write!(text, " {name}={value}");
        }
        text
    }
}

/// Each expected line must find an actual line of its own, and none may be left.
fn compare(errors: &mut String, what: &str, expected: &[String], actual: Vec<Line>) {
    let mut left: Vec<&Line> = actual.iter().collect();
    let is_met = expected.iter().all(|line| {
        let found = left.iter().position(|actual| actual.matches(line));
        found.map(|index| left.remove(index)).is_some()
    });
    if is_met && left.is_empty() {
        return;
    }
    let _ = writeln!(errors, "\n{what} expected:");
    for line in expected {
        let _ = writeln!(errors, "  {line}");
    }
    let _ = writeln!(errors, "{what} found:");
    for line in &actual {
        let _ = writeln!(errors, "  {}", line.render());
    }
}

fn who_word(id: &SessionId) -> String {
    match id {
        SessionId::Backend(pid) => pid.to_string(),
        SessionId::Prepared(gid) => format!("gid:{}", word(gid)),
        SessionId::Nameless(transaction) => format!("nameless:{}", transaction.as_str()),
    }
}

fn hold_line(lock: &Lock, holder: &Holder, at: Timestamp) -> Line {
    let who = who_word(&holder.id);
    let modes: Vec<&str> = holder.modes().map(|mode| mode.as_str()).collect();
    let age = |since: Timestamp| seconds(at.since(since).as_secs_f64());
    let scope = format!("{:?}", holder.scope).to_lowercase();
    Line {
        identity: format!("{} {who} {}", key_words(lock.id), modes.join("+")),
        fields: BTreeMap::from([
            ("since", time(Some(holder.since))),
            ("proved", time(Some(holder.proved_since))),
            ("not_before", time(holder.not_before)),
            ("at_least", age(holder.proved_since)),
            ("at_most", holder.not_before.map_or("-".into(), age)),
            ("scope", scope),
            ("evidence", holder.scope_evidence.map_or("-".into(), |it| format!("{it:?}"))),
            ("state", word(holder.state_label())),
            ("app", word(&holder.session.application_label)),
            ("first_app", holder.first_application_name.as_deref().map_or("-".into(), word)),
            ("seen_to_begin", holder.seen_to_begin.to_string()),
            ("transactions", holder.transactions_seen.to_string()),
            ("polls_outside", holder.polls_outside_transaction.to_string()),
            ("mode", holder.mode.to_string()),
            ("written", holder.has_written.map_or("-".into(), |it| it.to_string())),
            ("blocks", holder.blocks.to_string()),
            ("contended", time(holder.contended_since)),
            ("gone", holder.waits_gone.to_string()),
            ("through", list(holder.blocks_through.iter())),
            (
                "next",
                holder
                    .frees_next
                    .as_ref()
                    .map_or("unknown".into(), |next| list(next.iter().map(who_word))),
            ),
            (
                "other_locks",
                list(holder.other_locks().iter().map(|(kind, count)| format!("{kind}:{count}"))),
            ),
        ]),
    }
}

fn wait_line(lock: &Lock, waiter: &Waiter) -> Line {
    Line {
        identity: format!("{} {} {}", key_words(lock.id), who_word(&waiter.id), waiter.mode),
        fields: BTreeMap::from([
            ("since", time(waiter.since)),
            ("seen", time(Some(waiter.seen_since))),
            ("state", word(waiter.session.state.as_str())),
            ("app", word(&waiter.session.application_label)),
            ("blocked_by", list(waiter.blocked_by.iter().map(blocker_word))),
            ("blockers", waiter.blocker_count.to_string()),
            ("roots", list(waiter.roots.iter().map(root_word))),
        ]),
    }
}

fn finding_line(lock: &Lock, finding: &Finding) -> Line {
    Line {
        identity: format!("{} {}", key_words(lock.id), finding.kind.as_str()),
        fields: BTreeMap::from([
            ("severity", finding.severity.as_str().to_owned()),
            ("who", list(finding.sessions.iter().map(who_word))),
            ("text", word(&finding.render_text(true))),
            ("remedy", word(&finding.render_remedy(true))),
        ]),
    }
}

fn order_line(inversion: &Inversion) -> Line {
    let [first, second] = &inversion.edges;
    let verdict = if inversion.is_certain { "finding" } else { "may" };
    let grade = |edge: &Edge| format!("{:?}", edge.grade).to_lowercase();
    Line {
        identity: format!("{} {} {verdict}", key_words(first.held), key_word(second.held.key)),
        fields: BTreeMap::from([
            ("first", grade(first)),
            ("second", grade(second)),
            ("who", list([first, second].map(|edge| who_word(&edge.who.id)))),
            ("times", list([first, second].map(|edge| edge.times))),
        ]),
    }
}

/// `7` holds the lock, `~8` is ahead in the queue, `~8?` perhaps.
fn blocker_word(blocker: &Blocker) -> String {
    let ahead = if blocker.kind == BlockerKind::Soft { "~" } else { "" };
    let doubt = if blocker.is_certain { "" } else { "?" };
    format!("{ahead}{}{doubt}", who_word(&blocker.id))
}

/// `7*` waits in a circle.
fn root_word(root: &Root) -> String {
    who_word(&root.id) + if root.is_in_cycle { "*" } else { "" }
}

fn list(words: impl IntoIterator<Item = impl ToString>) -> String {
    let words: Vec<String> = words.into_iter().map(|word| word.to_string()).collect();
    if words.is_empty() { "-".into() } else { words.join(",") }
}

fn candidate_line(lock: &Lock, candidate: &Candidate) -> Line {
    let from = match &candidate.origin {
        Origin::File { file, line, .. } => format!("{file}:{line}"),
        Origin::Preset(name) => format!("preset:{name}"),
    };
    let values: Vec<String> =
        candidate.parameters.iter().map(|(name, value)| format!("{name} {value}")).collect();
    Line {
        identity: format!("{} {}", key_words(lock.id), word(&candidate.name)),
        fields: BTreeMap::from([
            ("with", word(&values.join(", "))),
            ("written", word(&candidate.written)),
            ("from", from),
            ("doubt", candidate.doubt.map_or("-".into(), |doubt| format!("{doubt:?}"))),
        ]),
    }
}

fn change_line(change: &Change) -> String {
    match change {
        Change::HoldBegan { id } => format!("hold began {}", key_words(id.key)),
        Change::HoldEnded { id, duration } => {
            let lasted = duration.map_or("-".into(), |it| seconds(it.as_secs_f64()));
            format!("hold ended {} lasted {lasted}", key_words(id.key))
        }
        Change::WaitBegan { id } => format!("wait began {}", key_words(id.key)),
        Change::WaitEnded { id, outcome, duration } => {
            let lasted = seconds(duration.as_secs_f64());
            format!("wait ended {} {} lasted {lasted}", key_words(id.key), outcome.as_str())
        }
    }
}

fn key_words(id: KeyId) -> String {
    let known = DATABASES.iter().find(|(_, oid, _)| *oid == id.database);
    let database = match known {
        Some((name, ..)) => (*name).to_owned(),
        None if id.database == DatabaseOid::SERVER_WIDE => "server-wide".to_owned(),
        None => id.database.to_string(),
    };
    format!("{database} {}", key_word(id.key))
}

fn time(moment: Option<Timestamp>) -> String {
    moment.map_or("-".to_owned(), |moment| seconds(moment.unix_seconds()))
}

fn seconds(value: f64) -> String {
    value.to_string()
}

fn word(text: &str) -> String {
    text.replace(' ', "~")
}

/// A sample with the labels that an expectation names; there is one, or there is none.
fn check_sample(errors: &mut String, expected: &str, is_there: bool, exposition: &str) {
    let samples = || exposition.lines().filter(|line| !line.starts_with('#')).map(Reading::of);
    let wanted = Reading::of(expected);
    let found: Vec<_> = samples().filter(|sample| sample.is_under(&wanted)).collect();
    let is_met = match (is_there, found.as_slice()) {
        (true, [one]) => wanted.value.is_some() && one.value == wanted.value,
        (false, []) => wanted.value.is_none() && is_name(wanted.name),
        (true | false, _) => false,
    };
    if is_met {
        return;
    }
    let kind = if is_there { "sample" } else { "no sample" };
    let _ = writeln!(errors, "\n{kind} expected:\n  {expected}\nsamples found:");
    for sample in samples().filter(|sample| sample.name == wanted.name) {
        let _ = writeln!(errors, "  {}", sample.line);
    }
}

/// Absence of a name that no family has would prove nothing.
fn is_name(name: &str) -> bool {
    const SOURCE: &str = include_str!("../../src/metrics.rs");
    let parts = ["_bucket", "_sum", "_count"];
    let family = parts.iter().find_map(|part| name.strip_suffix(part)).unwrap_or(name);
    SOURCE.contains(&format!("\"{family}\""))
}

struct Reading<'a> {
    line: &'a str,
    name: &'a str,
    labels: Vec<&'a str>,
    value: Option<&'a str>,
}

impl<'a> Reading<'a> {
    fn of(line: &'a str) -> Self {
        let (series, value) = match line.rsplit_once(' ') {
            Some((series, value)) if !value.ends_with('}') => (series, Some(value)),
            _ => (line, None),
        };
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let labels = labels.strip_suffix('}').unwrap_or(labels);
        // The end of a quoted value and its comma part one label from the next.
        let labels = labels.split_inclusive("\",").map(|label| label.trim_end_matches(','));
        Self { line, name, labels: labels.filter(|label| !label.is_empty()).collect(), value }
    }

    fn is_under(&self, wanted: &Reading<'_>) -> bool {
        self.name == wanted.name && wanted.labels.iter().all(|label| self.labels.contains(label))
    }
}
