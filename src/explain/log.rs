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
pub use summary::{Deadlock, KeyUse, LockWait, Object, Outcome, Summary, Wait};

mod render;
mod report;
mod summary;

/// What the server writes before the four numbers of an advisory lock (`DescribeLockTag`).
pub(super) const TOKEN: &[u8] = b"advisory lock [";
/// What stands between the two processes in a line of a deadlock report.
const BLOCKED_BY: &[u8] = b"; blocked by process ";

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
    places: Vec<(usize, Place)>,
    summary: Summary,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Token,
    BlockedBy,
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
        for (finder, place) in [(&self.token, Place::Token), (&self.blocked_by, Place::BlockedBy)] {
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
