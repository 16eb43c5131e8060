//! The summary of a log as a person reads it.
//!
//! Deadlocks come first, since somebody's statement failed; then the locks, the longest wait first.
//! It stands below the log, so the last screen is all of it: long lists are cut, and say so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write as _;
use std::io::{self, Write};

use super::summary::{Deadlock, Ending, KeyUse, LockWait, Object, Outcome, Summary, Wait};
use crate::key::Key;

/// Deadlocks between different locks that are shown, the last of each.
const SHOWN_PATTERNS: usize = 5;
/// The locks with the longest waits are shown.
const SHOWN_KEYS: usize = 20;

impl Summary {
    /// Writes what was found; `title` says what a lock is, as `bigint 42: nightly-billing`.
    pub fn render(
        &self,
        output: &mut dyn Write,
        title: &mut dyn FnMut(u32, Key) -> String,
    ) -> io::Result<()> {
        writeln!(output, "== {} ==", self.headline())?;
        let patterns = patterns(&self.deadlocks);
        let skipped = patterns.len().saturating_sub(SHOWN_PATTERNS);
        for (deadlock, times) in patterns.iter().skip(skipped) {
            render_deadlock(deadlock, *times, output, title)?;
        }
        let hidden: u64 = patterns.iter().take(skipped).map(|(_, times)| times).sum();
        let earlier = self.deadlocks_left_out + hidden;
        if earlier > 0 {
            writeln!(output, "\n{} before these: not shown", counted(earlier, "deadlock"))?;
        }
        if self.other_deadlocks > 0 {
            let deadlocks = counted(self.other_deadlocks, "deadlock");
            writeln!(output, "\n{deadlocks} without an advisory lock: not shown")?;
        }
        self.render_keys(output, title)
    }

    fn headline(&self) -> String {
        let lines = counted(self.lines, "line");
        if self.is_empty() {
            return format!("no advisory lock is named in {lines}");
        }
        let deadlocks = self.deadlocks_left_out + count(self.deadlocks.len());
        let deadlocks = match deadlocks {
            0 => "no deadlock".to_owned(),
            deadlocks => counted(deadlocks, "deadlock"),
        };
        let longest = self.keys.values().filter_map(|lock| lock.longest.as_ref());
        let longest = match longest.map(|wait| wait.microseconds).max() {
            Some(microseconds) => format!("longest wait {}", duration(microseconds)),
            None => "no wait logged".to_owned(),
        };
        let or_more = if self.mentions_left_out > 0 { "at least " } else { "" };
        let locks = counted(count(self.keys.len()), "advisory lock");
        format!("{deadlocks}, {longest}, {or_more}{locks} named in {lines}")
    }

    fn render_keys(
        &self,
        output: &mut dyn Write,
        title: &mut dyn FnMut(u32, Key) -> String,
    ) -> io::Result<()> {
        let mut keys: Vec<_> = self.keys.iter().collect();
        keys.sort_by_key(|(place, lock)| {
            let longest = lock.longest.as_ref().map(|wait| wait.microseconds);
            (std::cmp::Reverse((longest, lock.mentions)), **place)
        });
        for ((database, key), lock) in keys.iter().take(SHOWN_KEYS) {
            let place = match database {
                0 => "server-wide".to_owned(),
                oid => format!("database with OID {oid}"),
            };
            writeln!(output, "\n{}", title(*database, *key))?;
            if let Some(wait) = &lock.longest {
                writeln!(output, "  longest wait {}", longest_wait(wait))?;
            }
            if !lock.waiting.is_empty() {
                let pids = list(lock.waiting.keys().copied());
                writeln!(output, "  no end logged of the wait of {pids}")?;
            }
            writeln!(output, "  mentioned {}", mentions(lock, &place))?;
        }
        let hidden = count(keys.len().saturating_sub(SHOWN_KEYS));
        if hidden > 0 {
            writeln!(output, "\n{} with shorter waits: not shown", counted(hidden, "lock"))?;
        }
        if self.mentions_left_out > 0 {
            let mentions = counted(self.mentions_left_out, "mention");
            writeln!(output, "\n{mentions} of further locks: too many to keep")?;
        }
        Ok(())
    }
}

/// The last deadlock between the same advisory locks, and how often there was one; those that
/// happened last come last.
fn patterns(deadlocks: &VecDeque<Deadlock>) -> Vec<(&Deadlock, u64)> {
    let mut patterns: BTreeMap<BTreeSet<(u32, Key)>, (&Deadlock, u64)> = BTreeMap::new();
    for deadlock in deadlocks {
        let locks = deadlock.waits.iter().filter_map(|wait| match wait.object {
            Object::Advisory { database, key } => Some((database, key)),
            Object::Other(_) => None,
        });
        let (last, times) = patterns.entry(locks.collect()).or_insert((deadlock, 0));
        *last = deadlock;
        *times += 1;
    }
    let mut patterns: Vec<_> = patterns.into_values().collect();
    patterns.sort_by_key(|(last, _)| last.line);
    patterns
}

fn render_deadlock(
    deadlock: &Deadlock,
    times: u64,
    output: &mut dyn Write,
    title: &mut dyn FnMut(u32, Key) -> String,
) -> io::Result<()> {
    let at = deadlock.at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default();
    let victim = deadlock.waits.first().map(|wait| wait.pid).unwrap_or_default();
    writeln!(
        output,
        "\ndeadlock{at}, line {}: the server cancelled process {victim}",
        deadlock.line
    )?;
    for LockWait { pid, mode, object, blocked_by, query } in &deadlock.waits {
        let object = match object {
            Object::Advisory { database, key } => title(*database, *key),
            Object::Other(words) => words.clone(),
        };
        writeln!(output, "  {pid} waited for {mode} on {object}, blocked by {blocked_by}")?;
        if let Some(query) = query {
            writeln!(output, "  {:width$} {query}", "", width = pid.to_string().len())?;
        }
    }
    if deadlock.waits_left_out > 0 {
        writeln!(output, "  and {} more", counted(deadlock.waits_left_out, "process"))?;
    }
    if !deadlock.is_closed {
        writeln!(output, "  the rest of this report is missing")?;
    }
    if times > 1 {
        writeln!(output, "  the last of {times} between the same advisory locks")?;
    }
    Ok(())
}

fn longest_wait(wait: &Wait) -> String {
    let Wait { pid, mode, microseconds, outcome, holders, line } = wait;
    let (at_least, end) = match outcome {
        Outcome::StillWaiting => ("at least ", ""),
        Outcome::Acquired => ("", ", then acquired"),
        Outcome::Failed => ("", ", in vain"),
        Outcome::Ended => ("at least ", ", in vain"),
    };
    let mut text = format!("{at_least}{}, process {pid} for {mode}{end}", duration(*microseconds));
    if !holders.is_empty() {
        // Writing to a string does not fail.
        let _ = write!(text, "; held by {}", list(holders.iter().copied()));
    }
    let _ = write!(text, "; line {line}");
    text
}

fn mentions(lock: &KeyUse, place: &str) -> String {
    let mut text = counted(lock.mentions, "time");
    if lock.deadlocks > 0 {
        let _ = write!(text, ", in {}", counted(lock.deadlocks, "deadlock"));
    }
    if !lock.pids.is_empty() {
        let or_more = if lock.has_more_pids { "more than " } else { "" };
        let waited = counted(count(lock.pids.len()), "process");
        let _ = write!(text, ", {or_more}{waited} waited");
    }
    for (ending, waits) in &lock.ended {
        let ending = match ending {
            Ending::LockTimeout => "by lock_timeout",
            Ending::StatementTimeout => "by statement_timeout",
            Ending::Cancel => "by a cancel",
            Ending::Termination => "with the connection",
            Ending::Other => "with the statement",
        };
        let _ = write!(text, ", {} ended {ending}", counted(*waits, "wait"));
    }
    let _ = write!(text, ", {place}");
    text
}

fn list(pids: impl Iterator<Item = u32>) -> String {
    let pids: BTreeSet<u32> = pids.collect();
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

fn counted(number: u64, what: &str) -> String {
    let plural = match number {
        1 => "",
        _ if what.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {what}{plural}")
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Two digits more than a person needs, and never more precise than the log.
fn duration(microseconds: u64) -> String {
    let milliseconds = microseconds / 1000;
    match milliseconds {
        0..1_000 => format!("{milliseconds} ms"),
        1_000..60_000 => format!("{}.{} s", milliseconds / 1000, milliseconds % 1000 / 100),
        60_000..3_600_000 => {
            format!("{}m{:02}s", milliseconds / 60_000, milliseconds / 1000 % 60)
        }
        _ => format!("{}h{:02}m", milliseconds / 3_600_000, milliseconds / 60_000 % 60),
    }
}
