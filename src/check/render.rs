//! A verdict in words: the lines of a monitoring plugin, or JSON.
//!
//! The first line is what a pager carries; performance data stand behind its `|`, everything else
//! on the lines below. No text of others, whatever programs call themselves, has a `|` of its own, a
//! line break, or anything that moves a cursor.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use serde::Serialize;

use super::{Figures, Remark, Status, Subject, Unknown, Verdict};
use crate::finding::Severity;
use crate::key::Key;
use crate::printable::visible;
use crate::sample::Pid;
use crate::snapshot::{LockTable, SCHEMA, render_json};
use crate::timestamp::Timestamp;

/// More findings than this are for a machine to read.
const LISTED: usize = 50;

/// Of keys for which the same is said, so many are named.
const ALIKE: usize = 5;

/// Of the sentence on the first line, a pager gets so many characters.
const HEADLINE_CHARS: usize = 240;

impl Verdict {
    /// The lines of a monitoring plugin.
    pub fn render_text(&self) -> String {
        let headline = self.render_headline();
        let mut text = headline.clone();
        let performance = self.render_performance();
        if !performance.is_empty() {
            let _ = write!(text, " | {performance}");
        }
        text.push('\n');
        let told = self.tell_alike_once();
        for (remark, others) in told.iter().take(LISTED) {
            render_remark(&mut text, remark);
            render_others(&mut text, others);
        }
        let left_out: usize = told.iter().skip(LISTED).map(|(_, others)| 1 + others.len()).sum();
        if left_out > 0 {
            let _ = writeln!(text, "and {left_out} more, with --json");
        }
        let unknown: Vec<String> =
            self.unknown.iter().map(|unknown| clean_lines(&unknown.render())).collect();
        // One alone that fits the first line is not said again.
        if unknown.len() > 1 || !unknown.iter().all(|one| headline.ends_with(one)) {
            for one in unknown {
                let _ = writeln!(text, "UNKNOWN {one}");
            }
        }
        self.render_not_judged(&mut text);
        text
    }

    /// One session that holds a thousand keys for too long is one thing to read, with the first of
    /// them, else it would push everything else off the screen.
    fn tell_alike_once(&self) -> Vec<(&Remark, Vec<Key>)> {
        let mut told: Vec<(&Remark, Vec<Key>)> = Vec::new();
        let mut places = HashMap::new();
        for remark in &self.remarks {
            let Remark { severity, name, server, subject, text: _, remedy, pids } = remark;
            let subject = subject.as_ref().filter(|_| !pids.is_empty());
            let Some(Subject { datname, key, lock, .. }) = subject else {
                told.push((remark, Vec::new()));
                continue;
            };
            let likeness = (severity.as_str(), name, server, datname, lock, remedy, pids);
            match places.get(&likeness) {
                Some(&place) => {
                    let (_, others): &mut (&Remark, Vec<Key>) = &mut told[place];
                    others.push(*key);
                }
                None => {
                    places.insert(likeness, told.len());
                    told.push((remark, Vec::new()));
                }
            }
        }
        told
    }

    /// One JSON object.
    pub fn render_json(&self) -> Vec<u8> {
        let status = self.status();
        render_json(&VerdictJson {
            schema: SCHEMA,
            status: status.as_str(),
            exit_code: status.exit_code(),
            summary: self.render_headline(),
            findings: self.remarks.iter().map(RemarkJson::of).collect(),
            unknown: self.unknown.iter().map(UnknownJson::of).collect(),
            not_judged: self
                .not_judged
                .iter()
                .map(|not_judged| NotJudgedJson {
                    server: &not_judged.server,
                    finding: &not_judged.gap.finding,
                    in_part: not_judged.gap.in_part,
                    required: not_judged.is_required,
                    reason: &not_judged.gap.reason,
                })
                .collect(),
            servers: self
                .servers
                .iter()
                .map(|looked| LookedJson {
                    server: &looked.server,
                    up: looked.figures.is_some(),
                    error: looked.error.as_deref(),
                    version: looked.version.as_deref(),
                    role: looked.role.as_deref(),
                    polled_at: looked.polled_at,
                    watching_since: looked.watching_since,
                    lock_table: LockTableJson::of(looked.lock_table),
                    figures: looked.figures,
                })
                .collect(),
        })
    }

    /// What counts most, in one line.
    fn render_headline(&self) -> String {
        let status = self.status();
        let what = match status {
            Status::Ok => self.render_calm(),
            Status::Critical | Status::Warning => {
                let worst = self.remarks.first().map(Remark::render_headline);
                format!("{}: {}", self.render_counts(), worst.unwrap_or_default())
            }
            Status::Unknown => {
                let worst = self.unknown.first().map(Unknown::render).unwrap_or_default();
                let worst = worst.lines().next().unwrap_or_default().to_owned();
                match self.remarks.len() + self.unknown.len() {
                    0 | 1 => worst,
                    _ => format!("{}: {worst}", self.render_counts()),
                }
            }
        };
        format!("LOCKS {} - {}", status.as_str().to_uppercase(), shorten(&clean(&what)))
    }

    fn render_calm(&self) -> String {
        let figures = self.figures().unwrap_or_default();
        let servers = match &self.servers[..] {
            [one] => one.server.to_string(),
            all => format!("{} servers", all.len()),
        };
        format!(
            "no findings on {servers}: {}, {} awaited",
            plural(figures.keys_held, "key held", "keys held"),
            figures.keys_awaited
        )
    }

    fn render_counts(&self) -> String {
        let of = |severity| self.remarks.iter().filter(|it| it.severity == severity).count();
        let counts = [
            (of(Severity::Critical), "critical", "critical"),
            (of(Severity::Warning), "warning", "warnings"),
            (self.unknown.len(), "unknown", "unknown"),
        ];
        let counts = counts.into_iter().filter(|(count, ..)| *count > 0);
        counts.map(|(count, one, many)| plural(count, one, many)).collect::<Vec<_>>().join(", ")
    }

    /// All servers together; `None` when all are down.
    fn figures(&self) -> Option<Figures> {
        self.servers.iter().filter_map(|looked| looked.figures).reduce(Figures::join)
    }

    /// `'label'=value[UOM];[warn];[crit];[min];[max]`, by the guidelines of monitoring plugins. What is
    /// not known is left out.
    fn render_performance(&self) -> String {
        let Some(figures) = self.figures() else { return String::new() };
        let of = |severity| self.remarks.iter().filter(|it| it.severity == severity).count();
        let mut data = format!(
            "holders={};;;0 waiters={};;;0 keys_held={};;;0 keys_awaited={};;;0 \
             longest_hold={:.3}s;;;0 longest_wait={:.3}s;;;0 warnings={};;;0 criticals={};;;0",
            figures.holders,
            figures.waiters,
            figures.keys_held,
            figures.keys_awaited,
            figures.longest_hold_seconds,
            figures.longest_wait_seconds,
            of(Severity::Warning),
            of(Severity::Critical),
        );
        for looked in self.servers.iter().filter(|looked| looked.figures.is_some()) {
            let LockTable { entries: Some(entries), capacity } = looked.lock_table else {
                continue;
            };
            let label = match self.servers.len() {
                1 => "lock_table".to_owned(),
                _ => render_label(&format!("lock_table {}", looked.server)),
            };
            let _ = match capacity {
                Some(capacity) => {
                    write!(
                        data,
                        " {label}={entries};{};;0;{capacity}",
                        LockTable::full_at(capacity)
                    )
                }
                None => write!(data, " {label}={entries};;;0"),
            };
        }
        data
    }

    /// One line for each reason, since one alone may be in the way of many rules.
    fn render_not_judged(&self, text: &mut String) {
        for server in &self.servers {
            let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
            let here = self.not_judged.iter().filter(|it| it.server == server.server);
            for gap in here.map(|not_judged| &not_judged.gap) {
                let in_part = if gap.in_part { " (in part)" } else { "" };
                let name = format!("{}{in_part}", gap.finding);
                match reasons.iter_mut().find(|(reason, _)| *reason == gap.reason) {
                    Some((_, names)) => names.push(name),
                    None => reasons.push((&gap.reason, vec![name])),
                }
            }
            if !reasons.is_empty() {
                let _ = writeln!(text, "could not judge on {}:", clean(&server.server));
            }
            for (reason, names) in reasons {
                let _ = writeln!(text, "  {}: {}", clean(&names.join(", ")), clean(reason));
            }
        }
    }
}

fn render_remark(text: &mut String, remark: &Remark) {
    let Remark { severity, name, server, subject, text: what, remedy, pids: _ } = remark;
    let severity = severity.as_str().to_uppercase();
    let place = match subject {
        Some(subject) => format!(
            "{}, key {} in {} on {server}",
            subject.name().unwrap_or("without a name"),
            subject.key,
            subject.datname
        ),
        None => server.to_string(),
    };
    let _ = writeln!(text, "{severity} {}: {}", clean(name), clean(&place));
    let _ = writeln!(text, "  {}", clean(what));
    let _ = writeln!(text, "  remedy: {}", clean(remedy));
    if let Some(runbook) = subject.as_ref().and_then(|subject| subject.runbook.as_deref()) {
        let _ = writeln!(text, "  runbook: {}", clean(runbook));
    }
}

fn render_others(text: &mut String, others: &[Key]) {
    if others.is_empty() {
        return;
    }
    let named: Vec<String> = others.iter().take(ALIKE).map(Key::to_string).collect();
    let more = if others.len() > ALIKE { ", …" } else { "" };
    let count = plural(others.len(), "other key", "other keys");
    let _ = writeln!(text, "  likewise {count}: {}{more}", named.join(", "));
}

impl Remark {
    fn render_headline(&self) -> String {
        let Self { name, server, text, .. } = self;
        match &self.subject {
            Some(subject) => {
                let lock = match subject.name() {
                    Some(name) => name.to_owned(),
                    None => format!("key {}", subject.key),
                };
                format!("{name}: {lock} in {} on {server}: {text}", subject.datname)
            }
            None => format!("{name}: {server}: {text}"),
        }
    }
}

impl Subject {
    fn name(&self) -> Option<&str> {
        self.display_name.as_deref().or(self.lock.as_deref())
    }
}

impl Unknown {
    fn render(&self) -> String {
        let Self { server, finding, reason } = self;
        match (server, finding) {
            (None, None) => reason.clone(),
            (None, Some(finding)) => format!("cannot judge {}: {reason}", finding.as_str()),
            (Some(server), None) => format!("{server}: {reason}"),
            (Some(server), Some(finding)) => {
                format!("cannot judge {} on {server}: {reason}", finding.as_str())
            }
        }
    }
}

fn plural(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// A label of performance data, in quotes. There is no way to write `=` in one.
fn render_label(text: &str) -> String {
    format!("'{}'", clean(text).replace('=', ":").replace('\'', "''"))
}

/// One line, for a pager and a terminal. A `|` would begin performance data.
fn clean(text: &str) -> String {
    visible(text).replace('|', "\u{a6}")
}

/// The same for what has several lines, as faults of files have.
fn clean_lines(text: &str) -> String {
    text.lines().map(clean).collect::<Vec<_>>().join("\n")
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(HEADLINE_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[derive(Serialize)]
struct VerdictJson<'a> {
    schema: u64,
    status: &'static str,
    exit_code: u8,
    summary: String,
    findings: Vec<RemarkJson<'a>>,
    unknown: Vec<UnknownJson<'a>>,
    not_judged: Vec<NotJudgedJson<'a>>,
    servers: Vec<LookedJson<'a>>,
}

#[derive(Serialize)]
struct RemarkJson<'a> {
    finding: &'a str,
    severity: &'static str,
    server: &'a str,
    datname: Option<&'a str>,
    key: Option<Key>,
    lock: Option<&'a str>,
    display_name: Option<&'a str>,
    text: &'a str,
    remedy: &'a str,
    runbook: Option<&'a str>,
    pids: &'a [Pid],
}

#[derive(Serialize)]
struct UnknownJson<'a> {
    server: Option<&'a str>,
    finding: Option<&'static str>,
    reason: &'a str,
}

#[derive(Serialize)]
struct NotJudgedJson<'a> {
    server: &'a Arc<str>,
    finding: &'a str,
    in_part: bool,
    required: bool,
    reason: &'a str,
}

#[derive(Serialize)]
struct LookedJson<'a> {
    server: &'a str,
    up: bool,
    error: Option<&'a str>,
    version: Option<&'a str>,
    role: Option<&'a str>,
    polled_at: Option<Timestamp>,
    watching_since: Option<Timestamp>,
    lock_table: LockTableJson,
    figures: Option<Figures>,
}

#[derive(Serialize)]
struct LockTableJson {
    entries: Option<u64>,
    capacity: Option<u64>,
}

impl LockTableJson {
    const fn of(LockTable { entries, capacity }: LockTable) -> Self {
        Self { entries, capacity }
    }
}

impl<'a> RemarkJson<'a> {
    fn of(remark: &'a Remark) -> Self {
        let subject = remark.subject.as_ref();
        Self {
            finding: &remark.name,
            severity: remark.severity.as_str(),
            server: &remark.server,
            datname: subject.map(|subject| &*subject.datname),
            key: subject.map(|subject| subject.key),
            lock: subject.and_then(|subject| subject.lock.as_deref()),
            display_name: subject.and_then(|subject| subject.display_name.as_deref()),
            text: &remark.text,
            remedy: &remark.remedy,
            runbook: subject.and_then(|subject| subject.runbook.as_deref()),
            pids: &remark.pids,
        }
    }
}

impl<'a> UnknownJson<'a> {
    fn of(unknown: &'a Unknown) -> Self {
        Self {
            server: unknown.server.as_deref(),
            finding: unknown.finding.map(|finding| finding.as_str()),
            reason: &unknown.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::parse_snapshot;

    const HOSTILE: &str = r#"{"schema":1,"servers":[{"server":"o|1='x'","up":true,
        "looked_at":{"privileges":"sufficient"},"lock_table":{"entries":850,"capacity":6400},
        "not_judged":[{"finding":"missed","in_part":false,"reason":"it is\ttoo | early"},
            {"finding":"stuck","in_part":true,"reason":"earlier waits"},
            {"finding":"waiting_too_long","in_part":true,"reason":"earlier waits"}],
        "locks":[{"datname":"app","key":{"classid":0,"objid":42,"objsubid":1},"lock":"a | b",
            "runbook":"https://wiki/a",
            "holders":[{"pid":7,"seen_for_seconds":3725.25},{"pid":8,"seen_for_seconds":1}],
            "waiters":[{"pid":9,"waited_seconds":12.5},{"pid":10,"waited_seconds":null}],
            "findings":[
                {"finding":"held_too_long","severity":"warning","text":"by x","remedy":"end it"},
                {"finding":"stuck","severity":"critical","text":"by pod|1\n\u001b[2J\u202eevil",
                 "remedy":"SELECT 1"}]}]}]}"#;

    fn verdict(json: &str) -> Verdict {
        Verdict::of(&parse_snapshot(json.as_bytes()).unwrap(), &[])
    }

    #[test]
    fn the_first_line_is_for_a_pager_and_the_others_say_everything() {
        let expected = "\
LOCKS CRITICAL - 1 critical, 1 warning: stuck: a ¦ b in app on o¦1='x': by \
pod¦1\\n\\u{1b}[2J\\u{202e}evil | holders=2;;;0 waiters=2;;;0 keys_held=1;;;0 keys_awaited=1;;;0 \
longest_hold=3725.250s;;;0 longest_wait=12.500s;;;0 warnings=1;;;0 criticals=1;;;0 \
lock_table=850;4480;;0;6400
CRITICAL stuck: a ¦ b, key 42 in app on o¦1='x'
  by pod¦1\\n\\u{1b}[2J\\u{202e}evil
  remedy: SELECT 1
  runbook: https://wiki/a
WARNING held_too_long: a ¦ b, key 42 in app on o¦1='x'
  by x
  remedy: end it
  runbook: https://wiki/a
could not judge on o¦1='x':
  missed: it is\\ttoo ¦ early
  stuck (in part), waiting_too_long (in part): earlier waits
";
        assert_eq!(verdict(HOSTILE).render_text(), expected);
    }

    #[test]
    fn of_several_servers_each_has_a_label_for_its_lock_table() {
        let two = HOSTILE.replace("]}]}]}", r#"]}]},{"server":"b","up":false,"error":"gone"}]}"#);
        let text = verdict(&two).render_text();
        assert!(text.contains(" 'lock_table o¦1:''x'''=850;4480;;0;6400\n"), "{text}");
        assert!(
            text.contains("LOCKS CRITICAL - 1 critical, 1 warning, 1 unknown: stuck"),
            "{text}"
        );
        assert!(text.contains("\nUNKNOWN b: gone\n"), "{text}");
    }

    #[test]
    fn nothing_seen_is_one_line_without_figures() {
        let verdict = Verdict::blind("a.yaml:1:8: locks is a list\n  1 | locks: {}".to_owned());
        let expected = "LOCKS UNKNOWN - a.yaml:1:8: locks is a list\n\
                        UNKNOWN a.yaml:1:8: locks is a list\n  1 ¦ locks: {}\n";
        assert_eq!(verdict.render_text(), expected);
        let verdict = Verdict::blind("cannot connect".to_owned());
        assert_eq!(verdict.render_text(), "LOCKS UNKNOWN - cannot connect\n");
    }

    #[test]
    fn nothing_found_says_what_was_looked_at() {
        let calm = r#"{"schema":1,"servers":[{"server":"a","up":true,"locks":[]}]}"#;
        let text = verdict(calm).render_text();
        assert!(
            text.starts_with("LOCKS OK - no findings on a: 0 keys held, 0 awaited | "),
            "{text}"
        );
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_long_sentence_is_cut_for_the_pager_alone() {
        let long = HOSTILE.replace("by pod", &"ä".repeat(1000));
        let text = verdict(&long).render_text();
        let (headline, rest) = text.split_once(" | ").unwrap();
        assert_eq!(headline.chars().count(), "LOCKS CRITICAL - ".len() + HEADLINE_CHARS + 1);
        assert!(rest.contains(&"ä".repeat(1000)));
    }

    #[test]
    fn many_keys_of_one_session_are_told_once_and_counted_each() {
        let finding = |pid: u32| {
            format!(
                r#"{{"finding":"held_too_long","severity":"warning","text":"t",
                    "remedy":"end {pid}","pids":[{pid}]}}"#
            )
        };
        let lock = |key: u32, pid: u32| {
            format!(
                r#"{{"datname":"app","key":{{"classid":0,"objid":{key},"objsubid":1}},
                    "findings":[{}]}}"#,
                finding(pid)
            )
        };
        let locks: Vec<String> = (1..=100).map(|key| lock(key, 7)).chain([lock(101, 8)]).collect();
        let json = format!(
            r#"{{"schema":1,"servers":[{{"server":"a","up":true,"locks":[{}]}}]}}"#,
            locks.join(",")
        );
        let text = verdict(&json).render_text();
        assert!(text.starts_with("LOCKS WARNING - 101 warnings: "), "{text}");
        let told = "WARNING held_too_long: without a name, key 1 in app on a\n  t\n  \
                    remedy: end 7\n  likewise 99 other keys: 2, 3, 4, 5, 6, …\n\
                    WARNING held_too_long: without a name, key 101 in app on a\n  t\n  \
                    remedy: end 8\n";
        assert!(text.ends_with(told), "{text}");
    }

    #[test]
    fn json_says_the_same_to_scripts() {
        let json: serde_json::Value =
            serde_json::from_slice(&verdict(HOSTILE).render_json()).unwrap();
        assert_eq!((&json["status"], &json["exit_code"]), (&"critical".into(), &2.into()));
        let stuck = &json["findings"][0];
        assert_eq!((&stuck["finding"], &stuck["key"]["text"]), (&"stuck".into(), &"42".into()));
        assert_eq!(stuck["text"], "by pod|1\n\u{1b}[2J\u{202e}evil");
        assert_eq!(json["not_judged"][1]["in_part"], true);
        assert_eq!(json["servers"][0]["figures"]["waiters"], 2);
    }

    proptest::proptest! {
        #[test]
        fn no_text_of_others_breaks_a_line_or_the_format(text: String) {
            let cleaned = clean(&text);
            proptest::prop_assert!(!cleaned.contains(|c: char| c == '|' || c.is_control()));
            proptest::prop_assert!(!render_label(&text).contains(['=', '|', '\n']));
        }
    }
}
