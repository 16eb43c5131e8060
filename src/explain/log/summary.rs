//! What a log tells of advisory locks as a whole: its deadlocks, and who waited how long for what.
//!
//! It sees the text around one place at a time, in the order of the log, and never the log itself;
//! what it keeps is bounded, and what did not fit is counted. The server's sentences are those of
//! `DeadLockReport`, `ProcSleep` and `DescribeLockTag` in English; a log in another language is
//! copied and told nothing about.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use memchr::memmem;
use serde::Serialize;

use super::{TOKEN, Token, parse_token};
use crate::key::Key;

/// The last deadlocks are kept.
const MAX_DEADLOCKS: usize = 100;
/// The first keys are kept.
const MAX_KEYS: usize = 10_000;
/// Processes in one deadlock, holders of one lock, and processes remembered for a key.
const MAX_PROCESSES: usize = 32;
/// Bytes of a query that are shown.
const MAX_QUERY: usize = 120;
/// Bytes between the server's `Process` and `; blocked by`: longer than any lock is described.
const MAX_SENTENCE: usize = 300;

/// What was found in a log.
#[derive(Debug, Default, PartialEq)]
pub struct Summary {
    /// Lines of the log, a last one without its end included.
    pub lines: u64,
    /// Places where an advisory lock is named.
    pub mentions: u64,
    /// The last deadlocks that an advisory lock had part in, the oldest first.
    pub deadlocks: VecDeque<Deadlock>,
    /// Deadlocks with an advisory lock that came before those.
    pub deadlocks_left_out: u64,
    /// Deadlocks in which no advisory lock had part.
    pub other_deadlocks: u64,
    /// What is known of each lock, by the OID of its database and its key.
    pub keys: HashMap<(u32, Key), KeyUse>,
    /// Mentions of further keys, of which nothing is kept.
    pub mentions_left_out: u64,
    /// What each process waits for that was last said to wait.
    waits: HashMap<u32, (u32, Key)>,
    open: Option<Deadlock>,
    ends_within_line: bool,
}

/// One deadlock report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deadlock {
    /// The line of its first wait, from 1.
    pub line: u64,
    /// The time at the beginning of that line, as it is written there.
    pub at: Option<String>,
    /// Who waits for what, in the order of the report. The server ends the statement of the first.
    pub waits: Vec<LockWait>,
    /// Waits of the report that were too many to keep.
    pub waits_left_out: u64,
    /// Whether the last process waits for the first, as in a report that is whole.
    pub is_closed: bool,
}

/// One line of a deadlock report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockWait {
    /// Who waits.
    pub pid: u32,
    /// The mode it asks for, in the server's word.
    pub mode: String,
    /// For what.
    pub object: Object,
    /// Who is in the way.
    pub blocked_by: u32,
    /// How its statement begins, as far as the log says so.
    pub query: Option<String>,
}

/// What can be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    /// An advisory lock.
    Advisory {
        /// 0 for locks of the whole server.
        database: u32,
        /// Its key.
        key: Key,
    },
    /// Any other lock in the server's words, as `transaction 726`.
    Other(String),
}

/// What a log says of one lock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyUse {
    /// Places that name it.
    pub mentions: u64,
    /// Deadlocks it had part in.
    pub deadlocks: u64,
    /// Processes that waited for it or took it after a wait, the first few.
    pub pids: BTreeSet<u32>,
    /// Whether there were more of them.
    pub has_more_pids: bool,
    /// Processes whose wait has no end in the log, the first few, and who held the lock when they
    /// were last said to wait.
    pub waiting: BTreeMap<u32, Vec<u32>>,
    /// Waits that ended with their statement or connection, by what ended these.
    pub ended: BTreeMap<Ending, u64>,
    /// The longest wait.
    pub longest: Option<Wait>,
}

/// A wait that the server logged since it was longer than `deadlock_timeout`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Who waited.
    pub pid: u32,
    /// The mode it asked for, in the server's word.
    pub mode: String,
    /// For how long when the line was written.
    pub microseconds: u64,
    /// What that line said.
    pub outcome: Outcome,
    /// Who held the lock when the process was last said to wait, the first few.
    pub holders: Vec<u32>,
    /// The line, from 1.
    pub line: u64,
}

/// What a process that waits was said to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It waits on.
    StillWaiting,
    /// It has the lock.
    Acquired,
    /// It waits no longer and has no lock.
    Failed,
    /// Its statement or connection was ended while it waited, later than the line that says for how
    /// long it had.
    Ended,
}

/// What ended a statement or connection that waited.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// `lock_timeout`
    LockTimeout,
    /// `statement_timeout`
    StatementTimeout,
    /// `pg_cancel_backend()`, or the client's own wish
    Cancel,
    /// `pg_terminate_backend()`, a server that shuts down, and all else that ends a connection
    Termination,
    /// Another reason to end a statement
    Other,
}

/// The text around a place.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    /// Up to the place.
    pub(super) before: &'a [u8],
    /// From the place on.
    pub(super) after: &'a [u8],
}

impl Summary {
    /// Whether the log says nothing about advisory locks.
    pub fn is_empty(&self) -> bool {
        self.mentions == 0
    }

    /// Text without a place in it, all of which is skipped.
    pub(super) fn skip(&mut self, text: &[u8]) {
        let ends = memchr::memchr_iter(b'\n', text).count();
        self.lines = self.lines.saturating_add(u64::try_from(ends).unwrap_or(u64::MAX));
        if let Some(last) = text.last() {
            self.ends_within_line = *last != b'\n';
        }
    }

    /// An advisory lock is named.
    pub(super) fn observe_token(&mut self, scene: Scene<'_>) {
        let Token::Lock { len, database, key } = parse_token(scene.after) else { return };
        self.mentions += 1;
        let line = self.lines + 1;
        if self.keys.len() >= MAX_KEYS && !self.keys.contains_key(&(database, key)) {
            self.mentions_left_out += 1;
            return;
        }
        let lock = self.keys.entry((database, key)).or_default();
        lock.mentions += 1;
        if let Some((pid, outcome, mode)) = parse_event(scene.before) {
            let after = &scene.after[len..];
            lock.observe(pid, outcome, mode, after, line);
            self.waits.remove(&pid);
            if outcome == Outcome::StillWaiting && self.waits.len() < MAX_KEYS {
                self.waits.insert(pid, (database, key));
            }
        }
    }

    /// Something ended, or was done, for a reason; the place is ` due to `. Ends the wait of the
    /// process whose line it is.
    pub(super) fn observe_due_to(&mut self, scene: Scene<'_>, place_len: usize) {
        if self.waits.is_empty() {
            return;
        }
        let Some((head, ending)) = parse_ending(scene.before, &scene.after[place_len..]) else {
            return;
        };
        let Some(pid) = parse_pids(head).find(|pid| self.waits.contains_key(pid)) else { return };
        let lock = self.waits.remove(&pid);
        if let Some(lock) = lock.and_then(|lock| self.keys.get_mut(&lock)) {
            lock.end_wait(pid, ending);
        }
    }

    /// A line of a deadlock report ends; the place is `; blocked by process `.
    pub(super) fn observe_blocked_by(&mut self, scene: Scene<'_>, place_len: usize) {
        let Some((mut wait, start)) = parse_lock_wait(scene.before) else { return };
        let after = &scene.after[place_len..];
        let Some((blocked_by, rest)) = strip_number(after) else { return };
        wait.blocked_by = blocked_by;
        let is_continued =
            |open: &Deadlock| open.waits.last().is_some_and(|last| last.blocked_by == wait.pid);
        let begun = Deadlock {
            line: self.lines + 1,
            at: line_time(scene.before, start),
            waits: Vec::new(),
            waits_left_out: 0,
            is_closed: false,
        };
        let mut deadlock = match self.open.take() {
            Some(open) if is_continued(&open) => open,
            Some(cut_short) => {
                self.close(cut_short);
                begun
            }
            None => begun,
        };
        if deadlock.waits.len() < MAX_PROCESSES {
            deadlock.waits.push(wait);
        } else {
            // The chain goes on by its last process.
            deadlock.waits_left_out += 1;
            if let Some(last) = deadlock.waits.last_mut() {
                *last = wait;
            }
        }
        if deadlock.waits[0].pid == blocked_by {
            deadlock.is_closed = true;
            note_queries(&mut deadlock.waits, rest);
            self.close(deadlock);
        } else {
            self.open = Some(deadlock);
        }
    }

    /// The log is over.
    pub(super) fn finish(&mut self) {
        if let Some(deadlock) = self.open.take() {
            self.close(deadlock);
        }
        if self.ends_within_line {
            self.lines = self.lines.saturating_add(1);
            self.ends_within_line = false;
        }
    }

    fn close(&mut self, deadlock: Deadlock) {
        let mut locks = BTreeSet::new();
        for wait in &deadlock.waits {
            if let Object::Advisory { database, key } = wait.object {
                locks.insert((database, key));
            }
        }
        if locks.is_empty() {
            self.other_deadlocks += 1;
            return;
        }
        for lock in locks {
            if let Some(lock) = self.keys.get_mut(&lock) {
                lock.deadlocks += 1;
            }
        }
        if self.deadlocks.len() >= MAX_DEADLOCKS {
            self.deadlocks.pop_front();
            self.deadlocks_left_out += 1;
        }
        self.deadlocks.push_back(deadlock);
    }
}

impl KeyUse {
    fn observe(&mut self, pid: u32, outcome: Outcome, mode: &str, after: &[u8], line: u64) {
        if self.pids.len() < MAX_PROCESSES || self.pids.contains(&pid) {
            self.pids.insert(pid);
        } else {
            self.has_more_pids = true;
        }
        // The line that says how long it took does not say who was in the way; one before it did.
        let known = self.waiting.remove(&pid).unwrap_or_default();
        let holders = Some(parse_holders(after)).filter(|pids| !pids.is_empty()).unwrap_or(known);
        if let Some(microseconds) = parse_after_ms(after)
            && self.longest.as_ref().is_none_or(|longest| longest.microseconds <= microseconds)
        {
            let (mode, holders) = (mode.to_owned(), holders.clone());
            self.longest = Some(Wait { pid, mode, microseconds, outcome, holders, line });
        }
        if outcome == Outcome::StillWaiting && self.waiting.len() < MAX_PROCESSES {
            self.waiting.insert(pid, holders);
        }
    }

    fn end_wait(&mut self, pid: u32, ending: Ending) {
        self.waiting.remove(&pid);
        *self.ended.entry(ending).or_default() += 1;
        if let Some(longest) = &mut self.longest
            && longest.pid == pid
            && longest.outcome == Outcome::StillWaiting
        {
            longest.outcome = Outcome::Ended;
        }
    }
}

/// `ERROR:  canceling statement` before a place and `lock timeout` after it: what stands in the line
/// before, and what ended.
fn parse_ending<'a>(before: &'a [u8], after: &[u8]) -> Option<(&'a [u8], Ending)> {
    const REASONS: [(&[u8], Ending); 3] = [
        (b"lock timeout", Ending::LockTimeout),
        (b"statement timeout", Ending::StatementTimeout),
        (b"user request", Ending::Cancel),
    ];
    let start = memchr::memrchr(b'\n', before).map_or(0, |end| end + 1);
    let line = &before[start..];
    if let Some(head) = line.strip_suffix(b"terminating connection") {
        return Some((head, Ending::Termination));
    }
    let head = line.strip_suffix(b"canceling statement")?;
    let reason = REASONS.into_iter().find(|(words, _)| after.starts_with(words));
    Some((head, reason.map_or(Ending::Other, |(_, ending)| ending)))
}

/// The numbers at the head of a line that may be its process: in brackets or after `=` as a
/// `log_line_prefix` writes `%p`, as `"pid":` of jsonlog, and the fourth field of csvlog. Times and
/// counters stand otherwise, and a process may have any number.
fn parse_pids(head: &[u8]) -> impl Iterator<Item = u32> {
    const PID_FIELD: usize = 3;
    let field = head.split(|byte| *byte == b',').nth(PID_FIELD);
    let of_field = field.and_then(strip_number).filter(|(_, rest)| rest.is_empty());
    let starts = (1..head.len()).filter(|start| {
        let is_marked =
            matches!(head[start - 1], b'[' | b'(' | b'=') || head[..*start].ends_with(b"\"pid\":");
        is_marked && head[*start].is_ascii_digit()
    });
    let marked = starts.filter_map(|start| {
        let (number, rest) = strip_number(&head[start..])?;
        let is_whole =
            !rest.first().is_some_and(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
        is_whole.then_some(number)
    });
    of_field.map(|(number, _)| number).into_iter().chain(marked)
}

/// The server's words between the process and the mode.
const EVENTS: [(&[u8], Outcome); 6] = [
    (b" still waiting for ", Outcome::StillWaiting),
    (b" acquired ", Outcome::Acquired),
    (b" detected deadlock while waiting for ", Outcome::Failed),
    // By another order of the queue, in which it waits on.
    (b" avoided deadlock for ", Outcome::StillWaiting),
    (b" failed to acquire ", Outcome::Failed),
    (b" could not obtain ", Outcome::Failed),
];

/// `process 8797 still waiting for ExclusiveLock on ` at the end of a text.
fn parse_event(before: &[u8]) -> Option<(u32, Outcome, &str)> {
    let rest = before.strip_suffix(b" on ")?;
    let (rest, mode) = split_word(rest)?;
    EVENTS.into_iter().find_map(|(words, outcome)| {
        let rest = rest.strip_suffix(&words[..words.len() - 1])?;
        let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (rest, pid) = rest.split_at(rest.len() - digits);
        rest.ends_with(b"process ").then_some(())?;
        Some((std::str::from_utf8(pid).ok()?.parse().ok()?, outcome, mode))
    })
}

/// The blank and the word at the end of a text, cut off, and the word.
fn split_word(text: &[u8]) -> Option<(&[u8], &str)> {
    let letters = text.iter().rev().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let (rest, word) = text.split_at(text.len() - letters);
    let word = std::str::from_utf8(word).ok().filter(|word| !word.is_empty())?;
    Some((rest.strip_suffix(b" ")?, word))
}

/// ` after 100.118 ms` at the beginning of a text, in microseconds.
fn parse_after_ms(after: &[u8]) -> Option<u64> {
    let after = skip_annotation(after);
    let after = after.strip_prefix(b" by rearranging queue order").unwrap_or(after);
    let digits = after.strip_prefix(b" after ")?;
    let len = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole: u64 = std::str::from_utf8(&digits[..len]).ok()?.parse().ok()?;
    let rest = digits[len..].strip_prefix(b".")?;
    let fraction: u64 = std::str::from_utf8(rest.get(..3)?).ok()?.parse().ok()?;
    rest[3..].starts_with(b" ms").then(|| whole.saturating_mul(1000).saturating_add(fraction))
}

/// A log that was annotated before reads like one that was not.
fn skip_annotation(after: &[u8]) -> &[u8] {
    let line = memchr::memchr(b'\n', after).map_or(after, |end| &after[..end]);
    let end = line.starts_with(b" (").then(|| memmem::find(line, b") after ")).flatten();
    end.map_or(after, |end| &after[end + 1..])
}

/// `Processes holding the lock: 8782, 8784.` in the detail of the same message.
fn parse_holders(after: &[u8]) -> Vec<u32> {
    const HOLDING: &[u8] = b" holding the lock: ";
    // The next lock named is another message's; its detail is not this one's.
    let own = memmem::find(after, TOKEN).map_or(after, |next| &after[..next]);
    let Some(start) = memmem::find(own, HOLDING) else { return Vec::new() };
    let mut rest = &own[start + HOLDING.len()..];
    let mut holders = Vec::new();
    while let Some((pid, after)) = strip_number(rest).filter(|_| holders.len() < MAX_PROCESSES) {
        holders.push(pid);
        match after.strip_prefix(b", ") {
            Some(after) => rest = after,
            None => break,
        }
    }
    holders
}

/// `Process 8560 waits for ExclusiveLock on advisory lock [16384,0,42,1]` at the end of a text, and
/// where it begins. Who blocks it comes after.
fn parse_lock_wait(before: &[u8]) -> Option<(LockWait, usize)> {
    const PROCESS: &[u8] = b"Process ";
    let searched = before.len().saturating_sub(MAX_SENTENCE);
    let start = searched + memmem::rfind(&before[searched..], PROCESS)?;
    let (pid, rest) = strip_number(&before[start + PROCESS.len()..])?;
    let rest = rest.strip_prefix(b" waits for ")?;
    let letters = rest.iter().take_while(|byte| byte.is_ascii_alphabetic()).count();
    let (mode, rest) = rest.split_at(letters);
    let object = rest.strip_prefix(b" on ")?;
    let object = match parse_token(object) {
        Token::Lock { database, key, .. } => Object::Advisory { database, key },
        Token::Cut | Token::None if object.contains(&b'\n') => return None,
        Token::Cut | Token::None => Object::Other(printable(object)),
    };
    let mode = String::from_utf8_lossy(mode).into_owned();
    Some((LockWait { pid, mode, object, blocked_by: 0, query: None }, start))
}

/// The statements that follow the waits of a report, each on a line that the format writes in its
/// own way. A client's copy of the report has none.
fn note_queries(waits: &mut [LockWait], after_number: &[u8]) {
    let Some(mut rest) = after_number.strip_prefix(b".") else { return };
    let ends: &[&[u8]] = if rest.starts_with(b"\\n") {
        &[b"\\n", b"\","]
    } else if rest.starts_with(b"\n\t") || rest.starts_with(b"\r\n") {
        &[b"\n"]
    } else {
        &[b"\n", b"\","]
    };
    for wait in waits {
        let head = format!("Process {}: ", wait.pid);
        // The next line, with what a format may put in front of it; not some later report.
        let reach = &rest[..rest.len().min(head.len() + MAX_QUERY)];
        let Some(start) = memmem::find(reach, head.as_bytes()) else { return };
        let text = &rest[start + head.len()..];
        let end = ends.iter().filter_map(|end| memmem::find(text, end)).min();
        let whole = end.map_or(text, |end| &text[..end]);
        let shown = &whole[..whole.len().min(MAX_QUERY)];
        let mut query = printable(shown).replace("\\\"", "\"").replace("\"\"", "\"");
        if shown.len() < whole.len() {
            query.push('…');
        }
        wait.query = Some(query);
        rest = &text[whole.len()..];
    }
}

/// The time at the beginning of the line that a place is in, as `2026-11-30 19:08:49.380 UTC`.
/// Later times in a line are of other things, as the start of the session.
fn line_time(before: &[u8], place: usize) -> Option<String> {
    const SHAPE: &[u8] = b"dddd-dd-dd dd:dd:dd";
    const HEAD: usize = 120;
    let start = match memchr::memrchr(b'\n', &before[..place]) {
        Some(end) => end + 1,
        // The line may have begun long before, unless the log begins here.
        None if before.len() < super::BEFORE => 0,
        None => return None,
    };
    let line = &before[start..place];
    let head = &line[..line.len().min(HEAD)];
    let found = head.windows(SHAPE.len()).position(|text| {
        text.iter().zip(SHAPE).all(|(byte, shape)| match shape {
            b'd' => byte.is_ascii_digit(),
            b' ' => matches!(byte, b' ' | b'T'),
            shape => byte == shape,
        })
    })?;
    let rest = &head[found + SHAPE.len()..];
    let fraction = rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
    let zone = rest[fraction..].strip_prefix(b" ").map_or(0, |zone| {
        let is_zone = |byte: &&u8| byte.is_ascii_alphanumeric() || b"+-:/_".contains(byte);
        1 + zone.iter().take_while(is_zone).count()
    });
    let text = &head[found..found + SHAPE.len() + fraction + zone];
    Some(String::from_utf8_lossy(text).trim_end().to_owned())
}

fn strip_number(text: &[u8]) -> Option<(u32, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = text.split_at(digits);
    Some((std::str::from_utf8(number).ok()?.parse().ok()?, rest))
}

fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().trim().to_owned()
}
