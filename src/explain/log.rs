//! The log stream: server logs through the program, with every advisory lock in them named.
//!
//! A log is copied byte for byte, and after each `advisory lock [db,classid,objid,objsubid]` stands
//! what the key is. Nothing is known of lines, formats or encodings here: stderr, csvlog and
//! jsonlog, CRLF, NUL and bytes of no encoding pass as they are, in the memory of one buffer. What
//! is worth telling at the end (deadlocks, waits) is collected by `summary` from the text around
//! each place; who names a key is the caller's to say.

use std::collections::HashMap;
use std::io::{self, BufWriter, Read, Write};

use memchr::memmem::Finder;

use crate::key::Key;
pub use report::Report;
use summary::Scene;
pub use summary::{Deadlock, Ending, KeyUse, LockWait, Object, Outcome, Summary, Wait};

mod render;
mod report;
mod summary;

/// What the server writes before the four numbers of an advisory lock (`DescribeLockTag`).
pub(super) const TOKEN: &[u8] = b"advisory lock [";
/// What stands between the two processes in a line of a deadlock report.
const BLOCKED_BY: &[u8] = b"; blocked by process ";
/// What stands between what the server ended, a statement or a connection, and why.
const DUE_TO: &[u8] = b" due to ";

/// Bytes read at a time: they stay in the processor's cache for all searches.
const BLOCK: usize = 256 << 10;
/// How far before a place the text about it is looked for: the head of a line of jsonlog.
const BEFORE: usize = 1024;
/// How far after a place: the rest of a report and its first queries.
const AFTER: usize = 4096;
/// Annotations that are remembered; they are all forgotten when there are more.
const CACHED_ANNOTATIONS: usize = 4096;

/// Why a log was not copied to its end.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The text could not be read.
    #[error("cannot read the log")]
    Read(#[source] io::Error),
    /// Whoever reads the output may be gone.
    #[error("cannot write the annotated log")]
    Write(#[source] io::Error),
}

/// Copies a log and writes after each advisory lock what `annotate` says of it, in parentheses.
/// The database is an OID, 0 for locks of the whole server.
pub fn copy_log(
    input: impl Read,
    output: impl Write,
    annotate: impl FnMut(u32, Key) -> String,
) -> Result<Summary, LogError> {
    copy_in_blocks(input, output, annotate, BLOCK)
}

fn copy_in_blocks(
    mut input: impl Read,
    output: impl Write,
    annotate: impl FnMut(u32, Key) -> String,
    block: usize,
) -> Result<Summary, LogError> {
    let mut annotations = Annotations { annotate, known: HashMap::new() };
    // What follows a long run without a lock goes through unbuffered; small pieces do not.
    let mut output = BufWriter::with_capacity(64 << 10, output);
    let mut window = Window::new(block);
    loop {
        window.fetch(&mut input).map_err(LogError::Read)?;
        window.write(&mut output, &mut annotations).map_err(LogError::Write)?;
        // A log that is followed while it grows is seen as soon as it is read.
        output.flush().map_err(LogError::Write)?;
        window.observe();
        if window.is_at_end {
            return Ok(window.summary);
        }
    }
}

/// The part of the log in memory. Two marks move through it: up to `written` it is copied, up to
/// `observed` it is summed up. The second lags behind by [`AFTER`], so that what is seen around a
/// place does not depend on where blocks end.
struct Window {
    bytes: Vec<u8>,
    len: usize,
    written: usize,
    observed: usize,
    is_at_end: bool,
    token: Finder<'static>,
    blocked_by: Finder<'static>,
    due_to: Finder<'static>,
    places: Vec<(usize, Place)>,
    summary: Summary,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Token,
    BlockedBy,
    DueTo,
}

impl Window {
    fn new(block: usize) -> Self {
        Self {
            bytes: vec![0; BEFORE + AFTER + MAX_TOKEN + block.max(1)],
            len: 0,
            written: 0,
            observed: 0,
            is_at_end: false,
            token: Finder::new(TOKEN),
            blocked_by: Finder::new(BLOCKED_BY),
            due_to: Finder::new(DUE_TO),
            places: Vec::new(),
            summary: Summary::default(),
        }
    }

    /// Makes room and reads once.
    fn fetch(&mut self, input: &mut impl Read) -> io::Result<()> {
        let kept = self.written.min(self.observed.saturating_sub(BEFORE));
        self.bytes.copy_within(kept..self.len, 0);
        self.len -= kept;
        self.written -= kept;
        self.observed -= kept;
        let count = loop {
            match input.read(&mut self.bytes[self.len..]) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                outcome => break outcome?,
            }
        };
        self.len += count;
        self.is_at_end = count == 0;
        Ok(())
    }

    /// Copies all but what may turn out to be a lock when more is read.
    fn write<A: FnMut(u32, Key) -> String>(
        &mut self,
        output: &mut impl Write,
        annotations: &mut Annotations<A>,
    ) -> io::Result<()> {
        let text = &self.bytes[..self.len];
        let mut held_back = None;
        let mut searched = self.written;
        while let Some(found) = self.token.find(&text[searched..]) {
            let start = searched + found;
            match parse_token(&text[start..]) {
                Token::Lock { len, database, key } => {
                    output.write_all(&text[self.written..start + len])?;
                    output.write_all(annotations.of(database, key).as_bytes())?;
                    self.written = start + len;
                    searched = self.written;
                }
                Token::Cut if !self.is_at_end => {
                    held_back = Some(start);
                    break;
                }
                Token::Cut | Token::None => searched = start + TOKEN.len(),
            }
        }
        let end = match held_back {
            Some(start) => start,
            None if self.is_at_end => self.len,
            None => self.len - begun_token(&text[self.written..]),
        };
        output.write_all(&text[self.written..end])?;
        self.written = end;
        Ok(())
    }

    /// Sums up every place around which enough is known.
    fn observe(&mut self) {
        let end = if self.is_at_end { self.len } else { self.len.saturating_sub(AFTER) };
        if end <= self.observed && !self.is_at_end {
            return;
        }
        let text = &self.bytes[..self.len];
        self.places.clear();
        for (finder, place) in [
            (&self.token, Place::Token),
            (&self.blocked_by, Place::BlockedBy),
            (&self.due_to, Place::DueTo),
        ] {
            // A place counts where it begins, and may end behind the mark.
            let searched = &text[self.observed..self.len.min(end + finder.needle().len() - 1)];
            self.places
                .extend(finder.find_iter(searched).map(|found| (self.observed + found, place)));
        }
        self.places.sort_unstable();
        for &(start, place) in &self.places {
            self.summary.skip(&text[self.observed..start]);
            self.observed = start;
            let scene = Scene {
                before: &text[start.saturating_sub(BEFORE)..start],
                after: &text[start..self.len.min(start + AFTER)],
            };
            match place {
                Place::Token => self.summary.observe_token(scene),
                Place::BlockedBy => self.summary.observe_blocked_by(scene, BLOCKED_BY.len()),
                Place::DueTo => self.summary.observe_due_to(scene, DUE_TO.len()),
            }
        }
        self.summary.skip(&text[self.observed..end]);
        self.observed = end;
        if self.is_at_end {
            self.summary.finish();
        }
    }
}

/// The most bytes an advisory lock is written with.
const MAX_TOKEN: usize = TOKEN.len() + 4 * "4294967295,".len();

/// What begins with [`TOKEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A lock, and how many bytes it is written with.
    Lock { len: usize, database: u32, key: Key },
    /// The text ends within it.
    Cut,
    /// Something else.
    None,
}

/// Reads `advisory lock [db,classid,objid,objsubid]` at the beginning of a text.
pub(super) fn parse_token(text: &[u8]) -> Token {
    let Some(numbers) = text.strip_prefix(TOKEN) else { return Token::None };
    let mut rest = numbers;
    let mut fields = [0_u32; 4];
    for (field, end) in fields.iter_mut().zip(*b",,,]") {
        let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, after) = rest.split_at(digits);
        let parsed = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok());
        match (parsed, after.first()) {
            // Zeros in front would let a token be of any length; the server writes none.
            _ if digits > "4294967295".len() => return Token::None,
            (_, None) => return Token::Cut,
            (Some(value), Some(byte)) if *byte == end => *field = value,
            (_, Some(_)) => return Token::None,
        }
        rest = &after[1..];
    }
    let [database, classid, objid, objsubid] = fields;
    match u16::try_from(objsubid) {
        Ok(objsubid) => Token::Lock {
            len: text.len() - rest.len(),
            database,
            key: Key::from_columns(classid, objid, objsubid),
        },
        Err(_) => Token::None,
    }
}

/// How many bytes at the end of a text are the beginning of [`TOKEN`].
fn begun_token(text: &[u8]) -> usize {
    (1..TOKEN.len()).rev().find(|len| text.ends_with(&TOKEN[..*len])).unwrap_or(0)
}

/// What was said of locks before: a log repeats few of them often.
struct Annotations<A> {
    annotate: A,
    known: HashMap<(u32, Key), String>,
}

impl<A: FnMut(u32, Key) -> String> Annotations<A> {
    fn of(&mut self, database: u32, key: Key) -> &str {
        if self.known.len() >= CACHED_ANNOTATIONS && !self.known.contains_key(&(database, key)) {
            self.known.clear();
        }
        self.known
            .entry((database, key))
            .or_insert_with(|| format!(" ({})", without_syntax(&(self.annotate)(database, key))))
    }
}

/// Lines of csvlog and jsonlog stay what they are: quotes, backslashes and control characters
/// would end their fields.
fn without_syntax(text: &str) -> String {
    let harmless = |c: char| match c {
        '"' => '\'',
        '\\' => '/',
        c if c.is_control() => ' ',
        c => c,
    };
    text.chars().map(harmless).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const STDERR: &str = include_str!("../../tests/golden/explain/log/stderr.log");
    const CSVLOG: &str = include_str!("../../tests/golden/explain/log/csvlog.csv");
    const JSONLOG: &str = include_str!("../../tests/golden/explain/log/jsonlog.json");

    /// What stands after a lock in these tests, and nowhere else.
    const MARK: &str = "as the test says";

    fn copied(text: &[u8]) -> (Vec<u8>, Summary) {
        let mut output = Vec::new();
        let summary = copy_log(text, &mut output, |_, _| MARK.to_owned()).unwrap();
        (output, summary)
    }

    fn summary(text: &str) -> Summary {
        copied(text.as_bytes()).1
    }

    fn without_marks(mut text: &[u8]) -> Vec<u8> {
        let mark = format!(" ({MARK})");
        let mut rest = Vec::new();
        while let Some(start) = memchr::memmem::find(text, mark.as_bytes()) {
            rest.extend_from_slice(&text[..start]);
            text = &text[start + mark.len()..];
        }
        rest.extend_from_slice(text);
        rest
    }

    /// Gives a few bytes at a time, as a pipe may.
    struct Trickle<'a> {
        text: &'a [u8],
        sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    }

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let size = self.sizes.next().copied().unwrap_or(1).min(buffer.len());
            (&mut self.text).read(&mut buffer[..size])
        }
    }

    #[test]
    fn a_lock_is_named_where_it_stands_and_all_else_stays() {
        let mut asked = Vec::new();
        let mut output = Vec::new();
        let text = b"\xff\0on advisory lock [16384,10,4294967294,2]; x\r\nadvisory lock [1,2,3]";
        copy_log(&text[..], &mut output, |database, key| {
            asked.push((database, key));
            format!("pair {key}: \"a\\b\nc\"")
        })
        .unwrap();
        let expected = b"\xff\0on advisory lock [16384,10,4294967294,2] (pair (10,-2): 'a/b c')\
            ; x\r\nadvisory lock [1,2,3]";
        assert_eq!(output, expected);
        assert_eq!(asked, [(16384, Key::pair(10, -2))]);
    }

    #[test]
    fn numbers_that_no_server_writes_are_no_lock() {
        for text in [
            "advisory lock [16384,0,4294967296,1]",
            "advisory lock [16384,0,42,65536]",
            "advisory lock [16384,0,42,1",
            "advisory lock [16384,0,-42,1]",
            "advisory lock [16384,,42,1]",
            "advisory lock [16384,0,42,1,1]",
            "advisory lock [00000000001,0,42,1]",
            "user lock [16384,0,42]",
            "Advisory lock [16384,0,42,1]",
        ] {
            let (output, summary) = copied(text.as_bytes());
            assert_eq!(output, text.as_bytes());
            assert!(summary.is_empty(), "{text}");
        }
    }

    #[test]
    fn one_log_in_three_formats_tells_the_same() {
        let told = |text: &str| {
            let mut summary = summary(text);
            summary.lines = 0;
            summary.deadlocks.iter_mut().for_each(|deadlock| deadlock.line = 0);
            let waits = summary.keys.values_mut().filter_map(|lock| lock.longest.as_mut());
            waits.for_each(|wait| wait.line = 0);
            summary
        };
        assert_eq!(told(STDERR), told(CSVLOG));
        assert_eq!(told(STDERR), told(JSONLOG));
        assert_eq!(summary(STDERR).lines, 65);
    }

    #[test]
    fn the_server_cancels_the_first_process_of_its_report() {
        let deadlock = &summary(STDERR).deadlocks[1];
        assert_eq!((deadlock.line, deadlock.is_closed), (20, true));
        assert_eq!(deadlock.at.as_deref(), Some("2026-11-30 19:08:50.039 UTC"));
        let wait = |pid, mode: &str, object, blocked_by, query: &str| LockWait {
            pid,
            mode: mode.to_owned(),
            object,
            blocked_by,
            query: Some(query.to_owned()),
        };
        let transaction = Object::Other("transaction 726".to_owned());
        let lock = Object::Advisory { database: 16384, key: Key::bigint(-1) };
        assert_eq!(
            deadlock.waits,
            [
                wait(8693, "ShareLock", transaction, 8695, "update account set v=1 where id=1;"),
                wait(8695, "ExclusiveLock", lock, 8693, "select pg_advisory_xact_lock(-1);"),
            ]
        );
    }

    #[test]
    fn a_client_has_the_report_without_queries_and_times() {
        let summary = summary(
            "Process 201 waits for ExclusiveLock on advisory lock [16384,18028,1462734915,1]; \
             blocked by process 200.\n\
             Process 200 waits for ShareLock on virtual transaction 5/4; blocked by process 201.",
        );
        let [deadlock] = summary.deadlocks.iter().collect::<Vec<_>>()[..] else {
            panic!("{summary:?}");
        };
        let flyway = Key::bigint(77_431_133_147_203);
        assert_eq!(deadlock.waits[0].pid, 201);
        assert_eq!(deadlock.waits[0].object, Object::Advisory { database: 16384, key: flyway });
        assert_eq!(deadlock.waits[1].object, Object::Other("virtual transaction 5/4".to_owned()));
        assert_eq!((&deadlock.at, &deadlock.waits[1].query), (&None, &None));
        assert_eq!(summary.keys[&(16384, flyway)].longest, None);
    }

    #[test]
    fn the_longest_wait_remembers_who_held_the_lock() {
        let summary = summary(STDERR);
        let lock = &summary.keys[&(16384, Key::bigint(6_110_350_855_857_795_459))];
        let longest = Wait {
            pid: 8797,
            mode: "ExclusiveLock".to_owned(),
            microseconds: 840_046,
            outcome: Outcome::Acquired,
            holders: vec![8782, 8784],
            line: 39,
        };
        assert_eq!(lock.longest, Some(longest));
        assert_eq!(lock.mentions, 4);
        assert!(lock.waiting.is_empty() && lock.pids.len() == 2);
    }

    #[test]
    fn a_statement_that_is_cancelled_ends_the_wait_of_its_process() {
        let lock = |text: &str, key: i64| summary(text).keys[&(16384, Key::bigint(key))].clone();
        for text in [STDERR, CSVLOG, JSONLOG] {
            let timed_out = lock(text, 5150);
            assert!(timed_out.waiting.is_empty());
            assert_eq!(timed_out.ended.into_iter().collect::<Vec<_>>(), [(Ending::LockTimeout, 1)]);
            assert_eq!(timed_out.longest.unwrap().outcome, Outcome::Ended);
        }
        let waits = "[101] LOG:  process 101 still waiting for ShareLock on advisory lock \
                     [16384,0,334,1] after 1000.294 ms\n";
        for (line, ended) in [
            (
                "pid=101 ERROR:  canceling statement due to statement timeout",
                Some(Ending::StatementTimeout),
            ),
            ("(101) ERROR:  canceling statement due to user request", Some(Ending::Cancel)),
            (
                "[101] ERROR:  canceling statement due to conflict with recovery",
                Some(Ending::Other),
            ),
            (
                "[101] FATAL:  terminating connection due to administrator command",
                Some(Ending::Termination),
            ),
            // Somebody else's, or nobody knows whose.
            ("[102] ERROR:  canceling statement due to lock timeout", None),
            ("101 ERROR:  canceling statement due to lock timeout", None),
            ("[101.3] ERROR:  canceling statement due to lock timeout", None),
            ("[101] LOG:  unexpected EOF due to a lock timeout", None),
        ] {
            let lock = lock(&format!("{waits}{line}\n"), 334);
            assert_eq!(lock.ended.keys().next().copied(), ended, "{line}");
            assert_eq!(lock.waiting.is_empty(), ended.is_some(), "{line}");
        }
        // The wait was over already.
        let acquired =
            "process 101 acquired ShareLock on advisory lock [16384,0,334,1] after 2000.1 ms";
        let cancelled = "[101] ERROR:  canceling statement due to user request";
        assert!(lock(&format!("{waits}{acquired}\n{cancelled}\n"), 334).ended.is_empty());
    }

    #[test]
    fn a_log_that_was_annotated_before_tells_the_same() {
        let (annotated, first) = copied(STDERR.as_bytes());
        assert_eq!(copied(&annotated).1, first);
    }

    #[test]
    fn lines_of_jsonlog_stay_json_whatever_the_name() {
        let mut output = Vec::new();
        let name = |_, _| "\"},\\\n\u{7}{\"".to_owned();
        let summary = copy_log(JSONLOG.as_bytes(), &mut output, name).unwrap();
        assert!(summary.mentions > 0);
        for line in output.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let _: serde_json::Value = serde_json::from_slice(line).unwrap();
        }
    }

    #[test]
    fn the_last_deadlocks_are_kept_and_the_others_counted() {
        let report = |pid: u32| {
            format!(
                "Process {pid} waits for ShareLock on advisory lock [1,0,42,1]; blocked by \
                 process 7.\nProcess 7 waits for ShareLock on transaction 5; blocked by process \
                 {pid}.\n"
            )
        };
        let mut log: String = (1000..1150).map(report).collect();
        log.push_str(
            "Process 1 waits for ShareLock on transaction 5; blocked by process 2.\n\
             Process 2 waits for ShareLock on transaction 6; blocked by process 1.\n\
             Process 3 waits for ShareLock on advisory lock [1,0,42,1]; blocked by process 4.\n",
        );
        let summary = summary(&log);
        assert_eq!((summary.deadlocks.len(), summary.deadlocks_left_out), (100, 51));
        assert_eq!(summary.deadlocks[0].waits[0].pid, 1051);
        assert_eq!(summary.other_deadlocks, 1);
        assert!(!summary.deadlocks[99].is_closed);
    }

    #[test]
    fn a_report_that_is_cut_short_is_told_beside_the_next() {
        let summary = summary(
            "Process 3 waits for ShareLock on advisory lock [1,0,42,1]; blocked by process 4.\n\
             Process 5 waits for ShareLock on advisory lock [1,0,42,1]; blocked by process 6.\n\
             Process 6 waits for ShareLock on advisory lock [1,0,43,1]; blocked by process 5.\n",
        );
        let told: Vec<_> =
            summary.deadlocks.iter().map(|it| (it.waits[0].pid, it.is_closed)).collect();
        assert_eq!(told, [(3, false), (5, true)]);
        assert_eq!(summary.keys[&(1, Key::bigint(42))].deadlocks, 2);
    }

    #[test]
    fn keys_past_the_bound_are_copied_and_counted() {
        let log: String = (0..10_003).map(|key| format!("advisory lock [1,0,{key},1]\n")).collect();
        let (output, summary) = copied(log.as_bytes());
        assert_eq!(without_marks(&output), log.as_bytes());
        assert_eq!((summary.keys.len(), summary.mentions_left_out), (10_000, 3));
        assert_eq!((summary.mentions, summary.lines), (10_003, 10_003));
    }

    #[test]
    fn a_reader_that_leaves_is_told_from_a_log_that_cannot_be_read() {
        struct Closed;
        impl Write for Closed {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        impl Read for Closed {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::ErrorKind::IsADirectory.into())
            }
        }
        let name = |_, _| String::new();
        assert!(matches!(copy_log(&b"x"[..], Closed, name), Err(LogError::Write(_))));
        assert!(matches!(copy_log(Closed, io::sink(), name), Err(LogError::Read(_))));
    }

    /// Pieces that a log is made of, so that chance makes sentences of them.
    fn log_text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            4 => Just(b"advisory lock [".to_vec()),
            4 => Just(b"16384,0,42,1]".to_vec()),
            2 => Just(b"Process 7 waits for ExclusiveLock on advisory lock [1,2,3,2]".to_vec()),
            2 => Just(b"Process 8 waits for ShareLock on transaction 5".to_vec()),
            2 => Just(b"; blocked by process 8.\n\t".to_vec()),
            2 => Just(b"; blocked by process 7.\\n".to_vec()),
            1 => Just(b"Process 7: select 1".to_vec()),
            2 => Just(b"process 7 still waiting for ShareLock on advisory lock [1,2,3,1]".to_vec()),
            1 => Just(b"process 7 acquired ShareLock on advisory lock [1,2,3,1]".to_vec()),
            2 => Just(b" after 100.118 ms".to_vec()),
            1 => Just(b"DETAIL:  Processes holding the lock: 8, 9. Wait queue: 7.".to_vec()),
            1 => Just(b"\n2026-11-30 19:08:49.380 UTC [8560] ".to_vec()),
            1 => Just(vec![b'x'; 5000]),
            2 => any::<[u8; 3]>().prop_map(Vec::from),
            1 => prop::collection::vec(any::<u8>(), 0..40),
        ];
        prop::collection::vec(piece, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #[test]
        fn any_bytes_come_out_as_they_went_in(text in log_text()) {
            let (output, summary) = copied(&text);
            prop_assert_eq!(without_marks(&output), text.clone());
            let ends = text.iter().filter(|byte| **byte == b'\n').count();
            let unfinished = text.last().is_some_and(|last| *last != b'\n');
            prop_assert_eq!(summary.lines, ends as u64 + u64::from(unfinished));
        }

        #[test]
        fn where_blocks_end_makes_no_difference(
            text in log_text(),
            block in 1_usize..3000,
            sizes in prop::collection::vec(1_usize..400, 1..8),
        ) {
            let mut output = Vec::new();
            let input = Trickle { text: &text, sizes: sizes.iter().cycle() };
            let name = |_, _| MARK.to_owned();
            let summary = copy_in_blocks(input, &mut output, name, block).unwrap();
            let (whole, expected) = copied(&text);
            prop_assert_eq!(output, whole);
            prop_assert_eq!(summary, expected);
        }
    }
}
