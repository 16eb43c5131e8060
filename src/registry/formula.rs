//! How a text becomes a number: a function, what goes into it, and what is done with the result.
//!
//! This is the part of the language that stands for the code of applications. It is parsed once and
//! evaluated as often as there are values, databases and encodings; nothing is looked up here, all
//! that an evaluation needs comes in [`Facts`]. The functions themselves are in
//! [`function`](super::function); which key a number makes is [`pattern`](super::pattern)'s.
//!
//! The operations are always done in the order of [`Operations`], whatever their order in the file,
//! so that an entry reads the same to everybody.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use super::document::{Node, Position, Value};
use super::encoding::Encoding;
use super::fault::Faults;
use super::fields::Fields;
use super::function::{Function, InputError, Output, Word, parse_namespace};
use super::number::{parse_bigint, parse_within};
use super::template::{Binding, Template, unquoted_placeholder};

/// A hash as an entry writes it.
#[derive(Clone, Debug)]
pub(super) struct Formula {
    function: Function,
    input: Input,
    /// `None`: UTF-8, or for the server's own functions the database's.
    encoding: Option<Encoding>,
    operations: Operations,
    pub(super) at: Position,
}

#[derive(Clone, Debug)]
enum Input {
    Text(Template),
    /// Another hash, whose output is bytes.
    Bytes(Box<Formula>),
}

/// What is done with the result, in this order.
#[derive(Clone, Debug, Default)]
struct Operations {
    /// Of bytes, `[from, to)`. Without it the first eight, or all under `fold` and inside another
    /// hash.
    slice: Option<(usize, usize)>,
    /// Pieces of so many bytes are joined by exclusive or.
    fold: Option<usize>,
    is_little: bool,
    number: Arithmetic,
}

/// Operations on the number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Arithmetic {
    signed: bool,
    abs: bool,
    and: Option<i128>,
    xor: Option<i128>,
    multiply: Option<i128>,
    add: Option<i128>,
    modulo: Option<i128>,
}

/// What an evaluation may need to know.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    /// Values of placeholders.
    pub(super) bindings: &'a [Binding],
    /// How the database writes text; `None` when that is not known.
    pub(super) encoding: Option<Encoding>,
    /// What the server says where it computes another hash than this program.
    pub(super) server_hashes: &'a ServerHashes,
    /// OIDs of tables, by the name the entry uses.
    pub(super) oids: &'a dyn Fn(&str) -> Option<u32>,
}

/// Hashes that a server computes differently.
pub(super) type ServerHashes = HashMap<HashCall, i64>;

/// Why there is no number.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unfit {
    /// A placeholder or a table has no value yet.
    #[error("a placeholder has no value")]
    NoValue,
    /// The text is not ASCII, and the database's encoding is not known or cannot write it.
    #[error("the text cannot be written in the encoding")]
    Encoding,
    /// The same in the encoding that the entry gives.
    #[error("{0:?} cannot be written in the encoding that is given: write another, or other text")]
    Unwritable(String),
    #[error("{0}")]
    Input(#[from] InputError),
    #[error(
        "slice [{from}, {to}] goes past the end of the {length} bytes that {function} gives: \
         shorten it"
    )]
    Slice { from: usize, to: usize, length: usize, function: &'static str },
    #[error("{length} bytes cannot be folded into pieces of {piece}: choose a divisor")]
    Fold { length: usize, piece: usize },
    #[error("{length} bytes are more than the 8 of a number: add slice: [0, 8] or fold: 8")]
    TooLong { length: usize },
    #[error("the result does not fit 128 bits")]
    Overflow,
    #[error("the text contains NUL, which no text in PostgreSQL does")]
    Nul,
}

/// A hash function of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum HashFunction {
    /// `hashtext(text)`
    Hashtext,
    /// `hashtextextended(text, bigint)`
    Hashtextextended,
}

impl HashFunction {
    /// Its name in SQL.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hashtext => "hashtext",
            Self::Hashtextextended => "hashtextextended",
        }
    }
}

/// A call of a hash function of the server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashCall {
    /// The function.
    pub function: HashFunction,
    /// The text that is hashed.
    pub text: Arc<str>,
    /// The second argument of `hashtextextended`, else 0.
    pub seed: i64,
}

/// One hash that the registry relies on, to be compared with what the server says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HashCheck {
    /// What is called.
    pub call: HashCall,
    /// What this program computed; an `int4` for `hashtext`.
    pub value: i64,
}

impl HashCall {
    /// Whether databases in different encodings hash different bytes.
    pub fn is_ascii(&self) -> bool {
        self.text.is_ascii()
    }
}

/// As in SQL, with the text in double quotes: `hashtext("jobs")`.
impl fmt::Display for HashCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.function {
            HashFunction::Hashtext => write!(f, "hashtext({:?})", self.text),
            HashFunction::Hashtextextended => {
                write!(f, "hashtextextended({:?}, {})", self.text, self.seed)
            }
        }
    }
}

impl fmt::Display for HashCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.fmt(f)
    }
}

/// Fields that a hash may have beside its function.
const PARAMETERS: [&str; 6] = ["seed", "info", "salt", "namespace", "base", "encoding"];
const OPERATIONS: [&str; 10] =
    ["slice", "fold", "order", "signed", "abs", "and", "xor", "multiply", "add", "modulo"];
/// Operations that need bytes, and those that need a number.
const ON_BYTES: [&str; 3] = ["slice", "fold", "order"];
const ON_NUMBERS: [&str; 7] = ["signed", "abs", "and", "xor", "multiply", "add", "modulo"];

/// The functions, bytes first.
pub(super) const FUNCTIONS: [&str; 23] = [
    "md5",
    "sha1",
    "sha224",
    "sha256",
    "sha384",
    "sha512",
    "hkdf_sha256",
    "uuid5",
    "uuid",
    "hex",
    "crc32",
    "fnv1_32",
    "fnv1a_32",
    "fnv1_64",
    "fnv1a_64",
    "crc64_ecma",
    "djb2_xor",
    "ascii7",
    "phash2",
    "hashtext",
    "hashtextextended",
    "java_hash",
    "integer",
];

/// All fields that a hash may have.
pub(super) fn hash_fields() -> impl Iterator<Item = &'static str> {
    FUNCTIONS.into_iter().chain(PARAMETERS).chain(OPERATIONS)
}

/// Hashes in hashes deeper than this are no formula of anybody.
const MAX_NESTING: usize = 8;

impl Formula {
    /// A hash written as its own mapping.
    pub(super) fn parse(node: &Node, faults: &mut Faults<'_>) -> Option<Self> {
        let known: Vec<&str> = hash_fields().collect();
        let fields = Fields::read(node, "a hash", &known, faults)?;
        Self::parse_fields(&fields, node.at, faults)
    }

    /// A hash whose fields stand in a mapping that was read before.
    pub(super) fn parse_fields(
        fields: &Fields<'_>,
        at: Position,
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let formula = Self::parse_part(fields, at, 0, faults)?;
        if let Some(length) = formula.output_length(false)
            && length > 8
        {
            faults.add(at, Unfit::TooLong { length }.to_string());
            return None;
        }
        Some(formula)
    }

    fn parse_part(
        fields: &Fields<'_>,
        at: Position,
        depth: usize,
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let (name, input) =
            fields.only_one_of(&FUNCTIONS, "a function, as in { hashtext: jobs },", faults)?;
        let function = parse_function(name, fields, faults);
        let encoding = fields.get("encoding").map(|node| parse_encoding(node, faults));
        let input = parse_input(name, input, depth, faults);
        let is_inner = depth > 0;
        let operations = Operations::parse(fields, name, is_inner, faults);
        let (function, input, operations) = (function?, input?, operations?);
        if encoding.is_some() && matches!(input, Input::Bytes(_)) {
            let node = fields.get("encoding");
            faults.add(
                node.map_or(at, |node| node.at),
                "encoding is about a text, and bytes go in here: remove it",
            );
            return None;
        }
        let encoding = flatten(encoding)?;
        let formula = Self { function, input, encoding, operations, at };
        if formula.hashes_database_text()
            && let Input::Text(template) = &formula.input
            && template.contains('\0')
        {
            faults.add(
                template.at,
                format!(
                    "no text in PostgreSQL contains NUL, so no server can compute this {name}: \
                     remove \\0"
                ),
            );
            return None;
        }
        formula.check_lengths(is_inner, fields, faults)?;
        Some(formula)
    }

    /// What can be said of slices before any text is known.
    fn check_lengths(
        &self,
        is_inner: bool,
        fields: &Fields<'_>,
        faults: &mut Faults<'_>,
    ) -> Option<()> {
        let Some(length) = self.digest_length() else { return Some(()) };
        match self.operations.cut(length, is_inner, self.function.as_str()) {
            Ok(_) => Some(()),
            Err(unfit) => {
                let node = fields.get("slice").or_else(|| fields.get("fold"));
                faults.add(node.map_or(self.at, |node| node.at), unfit.to_string());
                None
            }
        }
    }

    /// How many bytes the function gives, where that does not depend on the text.
    fn digest_length(&self) -> Option<usize> {
        match (&self.function, &self.input) {
            (Function::Hex, Input::Bytes(inner)) => Some(2 * inner.output_length(true)?),
            (Function::Hex, Input::Text(_)) => None,
            (Function::Uuid, _) => Some(16),
            (function, _) if function.gives_bytes() => match function.apply(b"") {
                Ok(Output::Bytes(bytes)) => Some(bytes.len()),
                Ok(Output::Word(_)) | Err(_) => None,
            },
            _ => None,
        }
    }

    /// How many bytes are left after `slice` and `fold`.
    fn output_length(&self, is_inner: bool) -> Option<usize> {
        let length = self.digest_length()?;
        let (from, to) = self.operations.cut(length, is_inner, self.function.as_str()).ok()?;
        Some(self.operations.fold.unwrap_or(to - from))
    }

    fn hashes_database_text(&self) -> bool {
        self.function.hashes_database_text()
    }

    /// Every template in it, which is one.
    pub(super) fn template(&self) -> &Template {
        match &self.input {
            Input::Text(template) => template,
            Input::Bytes(inner) => inner.template(),
        }
    }

    /// The number; the server's functions that were called are added to `calls`.
    pub(super) fn evaluate(
        &self,
        facts: &Facts<'_>,
        calls: &mut Vec<HashCheck>,
    ) -> Result<i128, Unfit> {
        let word = match self.output(facts, calls)? {
            Output::Word(word) => word,
            Output::Bytes(bytes) => self.operations.word(&bytes, self.function.as_str())?,
        };
        self.operations.number.apply(word)
    }

    fn output(&self, facts: &Facts<'_>, calls: &mut Vec<HashCheck>) -> Result<Output, Unfit> {
        let input = match &self.input {
            Input::Text(template) => {
                let text = template.fill(facts.bindings).ok_or(Unfit::NoValue)?;
                let encoding = match self.encoding {
                    Some(encoding) => encoding,
                    // All encodings of the server write ASCII alike.
                    None if self.hashes_database_text() && !text.is_ascii() => {
                        facts.encoding.ok_or(Unfit::Encoding)?
                    }
                    None => Encoding::Utf8,
                };
                let bytes = encoding.encode(&text).ok_or_else(|| match self.encoding {
                    Some(_) => Unfit::Unwritable(text.clone()),
                    None => Unfit::Encoding,
                })?;
                return self.call(&bytes, Some(&text), facts, calls);
            }
            Input::Bytes(inner) => match inner.output(facts, calls)? {
                Output::Bytes(bytes) => {
                    inner.operations.cut_inner(bytes, inner.function.as_str())?
                }
                Output::Word(_) => return Err(Unfit::NoValue),
            },
        };
        let text = std::str::from_utf8(&input).ok().filter(|text| text.is_ascii());
        self.call(&input, text, facts, calls)
    }

    /// Calls the function; where the server has another opinion of its own function, it wins.
    fn call(
        &self,
        bytes: &[u8],
        text: Option<&str>,
        facts: &Facts<'_>,
        calls: &mut Vec<HashCheck>,
    ) -> Result<Output, Unfit> {
        if self.hashes_database_text() && bytes.contains(&0) {
            return Err(Unfit::Nul);
        }
        let output = self.function.apply(bytes)?;
        // With an encoding of its own the entry does not speak of the server's text.
        let (Output::Word(word), Some(text), None) = (&output, text, self.encoding) else {
            return Ok(output);
        };
        let (function, seed) = if self.function == Function::Hashtext {
            (HashFunction::Hashtext, 0)
        } else if let Function::Hashtextextended { seed } = self.function {
            (HashFunction::Hashtextextended, seed)
        } else {
            return Ok(output);
        };
        let call = HashCall { function, text: text.into(), seed };
        // The server was asked in UTF-8 where that matters.
        let is_comparable = call.is_ascii() || facts.encoding == Some(Encoding::Utf8);
        let server_value = facts.server_hashes.get(&call).copied().filter(|_| is_comparable);
        if let Ok(value) = i64::try_from(word.value) {
            calls.push(HashCheck { call, value });
        }
        Ok(Output::Word(Word { value: server_value.map_or(word.value, i128::from), ..*word }))
    }
}

impl Operations {
    fn parse(
        fields: &Fields<'_>,
        function: &str,
        is_inner: bool,
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let gives_bytes = FUNCTIONS.iter().position(|name| *name == function) < Some(10);
        let mut is_sound = true;
        let mut refuse = |names: &[&str], why: &str, faults: &mut Faults<'_>| {
            for name in names {
                if let Some(node) = fields.get(name) {
                    faults.add(node.at, format!("{name} {why}: remove it"));
                    is_sound = false;
                }
            }
        };
        if !gives_bytes {
            let why = format!("needs bytes, and {function} gives a number");
            refuse(&ON_BYTES, &why, faults);
        } else if is_inner {
            refuse(&["order"], "makes a number, and bytes are needed here", faults);
            refuse(&ON_NUMBERS, "needs a number, and bytes are needed here", faults);
        }
        if is_inner && !gives_bytes {
            faults.add(
                fields.at(),
                format!("{function} gives a number, and only bytes can be hashed again"),
            );
            is_sound = false;
        }
        let slice = fields.get("slice").map(|node| parse_slice(node, faults));
        let fold = fields.get("fold").map(|node| parse_fold(node, faults));
        let is_little = match fields.get("order") {
            None => Some(false),
            Some(node) => parse_order(node, faults),
        };
        let number = Arithmetic::parse(fields, faults);
        Some(Self {
            slice: flatten(slice)?,
            fold: flatten(fold)?,
            is_little: is_little?,
            number: number?,
        })
        .filter(|_| is_sound)
    }

    /// Which of `length` bytes are taken.
    fn cut(
        &self,
        length: usize,
        is_inner: bool,
        function: &'static str,
    ) -> Result<(usize, usize), Unfit> {
        let (from, to) = match self.slice {
            Some((from, to)) if to > length => {
                return Err(Unfit::Slice { from, to, length, function });
            }
            Some(slice) => slice,
            None if self.fold.is_some() || is_inner => (0, length),
            None => (0, length.min(8)),
        };
        match self.fold {
            Some(piece) if !(to - from).is_multiple_of(piece) => {
                Err(Unfit::Fold { length: to - from, piece })
            }
            Some(_) | None => Ok((from, to)),
        }
    }

    fn cut_inner(&self, mut bytes: Vec<u8>, function: &'static str) -> Result<Vec<u8>, Unfit> {
        let (from, to) = self.cut(bytes.len(), true, function)?;
        bytes.truncate(to);
        bytes.drain(..from);
        Ok(self.folded(&bytes))
    }

    fn folded(&self, bytes: &[u8]) -> Vec<u8> {
        let Some(piece) = self.fold else { return bytes.to_vec() };
        let mut folded = vec![0; piece];
        for bytes in bytes.chunks(piece) {
            folded.iter_mut().zip(bytes).for_each(|(byte, other)| *byte ^= other);
        }
        folded
    }

    fn word(&self, bytes: &[u8], function: &'static str) -> Result<Word, Unfit> {
        let (from, to) = self.cut(bytes.len(), false, function)?;
        let mut bytes = self.folded(&bytes[from..to]);
        if self.is_little {
            bytes.reverse();
        }
        let length = bytes.len();
        let bits = u32::try_from(8 * length).unwrap_or(u32::MAX);
        if bits > 64 {
            return Err(Unfit::TooLong { length });
        }
        let value = bytes.iter().fold(0, |value: i128, byte| (value << 8) | i128::from(*byte));
        Ok(Word { value, bits })
    }
}

impl Arithmetic {
    pub(super) fn parse(fields: &Fields<'_>, faults: &mut Faults<'_>) -> Option<Self> {
        // Factors are bigints, so that a product with any 64-bit word fits 128 bits.
        let bigint = i128::from(i64::MIN)..=i128::from(i64::MAX);
        let word = i128::from(i64::MIN)..=i128::from(u64::MAX);
        let positive = 1..=i128::from(u64::MAX);
        let mut number = |name, what, bounds| {
            flatten(fields.get(name).map(|node| parse_operand(node, what, bounds, faults)))
        };
        let and = number("and", "a mask of 64 bits", word.clone());
        let xor = number("xor", "a mask of 64 bits", word.clone());
        let multiply = number("multiply", "a factor", bigint);
        let add = number("add", "a summand", word);
        let modulo = number("modulo", "a modulus", positive);
        let mut flag = |name| match fields.get(name) {
            None => Some(false),
            Some(node) => parse_flag(name, node, faults),
        };
        let (signed, abs) = (flag("signed"), flag("abs"));
        Some(Self {
            signed: signed?,
            abs: abs?,
            and: and?,
            xor: xor?,
            multiply: multiply?,
            add: add?,
            modulo: modulo?,
        })
    }

    pub(super) fn apply(&self, word: Word) -> Result<i128, Unfit> {
        let mut value = word.value;
        if self.signed {
            let width = 1_i128 << word.bits;
            value = value.rem_euclid(width);
            if value >= width / 2 {
                value -= width;
            }
        }
        if self.abs {
            value = value.abs();
        }
        value = self.and.map_or(value, |mask| value & mask);
        value = self.xor.map_or(value, |mask| value ^ mask);
        if let Some(factor) = self.multiply {
            value = value.checked_mul(factor).ok_or(Unfit::Overflow)?;
        }
        if let Some(summand) = self.add {
            value = value.checked_add(summand).ok_or(Unfit::Overflow)?;
        }
        Ok(self.modulo.map_or(value, |modulus| value.rem_euclid(modulus)))
    }

    /// The word before `xor` and `add`, where nothing else was done to it: what a half of a key
    /// says about the number it was made of.
    pub(super) fn undo(&self, half: u32) -> Option<u32> {
        let invertible = Self { xor: self.xor, add: self.add, ..Self::default() };
        if *self != invertible {
            return None;
        }
        let value = i128::from(half) - self.add.unwrap_or(0);
        let value = value ^ self.xor.unwrap_or(0);
        u32::try_from(value.rem_euclid(1 << 32)).ok()
    }

    /// Whether [`undo`](Self::undo) has an answer.
    pub(super) fn is_invertible(&self) -> bool {
        self.undo(0).is_some()
    }
}

/// As a call, then the operations in their order: `crc32("{database}") * 2053462845`.
impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}(", self.function.as_str())?;
        match &self.input {
            Input::Text(template) => write!(f, "{:?}", template.text())?,
            Input::Bytes(inner) => inner.fmt(f)?,
        }
        if let Function::Hashtextextended { seed } = &self.function {
            write!(f, ", {seed}")?;
        } else if let Function::Integer { base } = &self.function {
            write!(f, ", base {base}")?;
        }
        f.write_str(")")?;
        let Operations { slice, fold, is_little, number } = &self.operations;
        if let Some((from, to)) = slice {
            write!(f, "[{from}..{to}]")?;
        }
        if let Some(piece) = fold {
            write!(f, " folded to {piece} bytes")?;
        }
        if *is_little {
            f.write_str(" little-endian")?;
        }
        number.fmt(f)
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { signed, abs, and, xor, multiply, add, modulo } = self;
        if *signed {
            f.write_str(" signed")?;
        }
        if *abs {
            f.write_str(" abs")?;
        }
        for (sign, operand) in [("&", and), ("xor", xor)] {
            if let Some(operand) = operand {
                write!(f, " {sign} {operand:#x}")?;
            }
        }
        for (sign, operand) in [("*", multiply), ("+", add), ("mod", modulo)] {
            if let Some(operand) = operand {
                write!(f, " {sign} {operand}")?;
            }
        }
        Ok(())
    }
}

/// A field that is not there is fine; one that is wrong is not.
#[expect(clippy::option_option, reason = "not there, there and wrong, there and right")]
fn flatten<T>(field: Option<Option<T>>) -> Option<Option<T>> {
    match field {
        None => Some(None),
        Some(value) => value.map(Some),
    }
}

fn parse_function(name: &str, fields: &Fields<'_>, faults: &mut Faults<'_>) -> Option<Function> {
    let mut is_sound = true;
    for (parameter, function) in [
        ("seed", "hashtextextended"),
        ("info", "hkdf_sha256"),
        ("salt", "hkdf_sha256"),
        ("namespace", "uuid5"),
        ("base", "integer"),
    ] {
        if name != function
            && let Some(node) = fields.get(parameter)
        {
            let mend = if name == "hashtext" && parameter == "seed" {
                "use hashtextextended, or remove the seed".to_owned()
            } else {
                format!("it belongs to {function}; remove it")
            };
            faults.add(node.at, format!("{name} takes no {parameter}: {mend}"));
            is_sound = false;
        }
    }
    let function = match name {
        "md5" => Function::Md5,
        "sha1" => Function::Sha1,
        "sha224" => Function::Sha224,
        "sha256" => Function::Sha256,
        "sha384" => Function::Sha384,
        "sha512" => Function::Sha512,
        "hkdf_sha256" => {
            let mut bytes = |field| match fields.get(field) {
                None => Some(Vec::new()),
                Some(node) => parse_text(field, node, faults).map(String::into_bytes),
            };
            let (info, salt) = (bytes("info"), bytes("salt"));
            Function::HkdfSha256 { info: info?, salt: salt? }
        }
        "uuid5" => Function::Uuid5 { namespace: parse_uuid_namespace(fields, faults)? },
        "uuid" => Function::Uuid,
        "hex" => Function::Hex,
        "crc32" => Function::Crc32,
        "fnv1_32" => Function::Fnv1_32,
        "fnv1a_32" => Function::Fnv1a32,
        "fnv1_64" => Function::Fnv1_64,
        "fnv1a_64" => Function::Fnv1a64,
        "crc64_ecma" => Function::Crc64Ecma,
        "djb2_xor" => Function::Djb2Xor,
        "ascii7" => Function::Ascii7,
        "phash2" => Function::Phash2,
        "hashtext" => Function::Hashtext,
        "hashtextextended" => {
            let seed = match fields.get("seed") {
                Some(seed) => parse_seed(seed, faults),
                None => Some(0),
            };
            Function::Hashtextextended { seed: seed? }
        }
        "java_hash" => Function::JavaHash,
        _ => {
            let base = match fields.get("base") {
                Some(node) => parse_operand(node, "a base", 2..=36, faults),
                None => Some(10),
            };
            Function::Integer { base: u32::try_from(base?).ok()? }
        }
    };
    Some(function).filter(|_| is_sound)
}

fn parse_uuid_namespace(fields: &Fields<'_>, faults: &mut Faults<'_>) -> Option<[u8; 16]> {
    let Some(node) = fields.get("namespace") else {
        faults.add(
            fields.at(),
            "uuid5 needs a namespace: add namespace: dns, url, oid, x500 or a UUID",
        );
        return None;
    };
    let text = parse_text("namespace", node, faults)?;
    let namespace = parse_namespace(&text);
    if namespace.is_none() {
        faults
            .add(node.at, format!("{text:?} is no namespace: write dns, url, oid, x500 or a UUID"));
    }
    namespace
}

fn parse_encoding(node: &Node, faults: &mut Faults<'_>) -> Option<Encoding> {
    let text = parse_text("encoding", node, faults)?;
    let encoding = Encoding::of_user(&text);
    if encoding.is_none() {
        faults.add(
            node.at,
            format!(
                "unknown encoding {text:?}: write utf-8, utf-16le, utf-16be, or a name that \
                 PostgreSQL has for it, as in latin1"
            ),
        );
    }
    encoding
}

fn parse_input(
    function: &str,
    node: &Node,
    depth: usize,
    faults: &mut Faults<'_>,
) -> Option<Input> {
    if let Some(message) = unquoted_placeholder(node) {
        faults.add(node.at, message);
        return None;
    }
    match &node.value {
        Value::Mapping(_) if depth >= MAX_NESTING => {
            faults.add(node.at, format!("hashes of hashes more than {MAX_NESTING} deep"));
            None
        }
        Value::Mapping(_) => {
            let known: Vec<&str> = hash_fields().collect();
            let fields = Fields::read(node, "a hash", &known, faults)?;
            let inner = Formula::parse_part(&fields, node.at, depth + 1, faults)?;
            Some(Input::Bytes(Box::new(inner)))
        }
        Value::Scalar { .. } | Value::Sequence(_) => {
            let text = parse_text(function, node, faults)?;
            let template = Template::parse(&text, node.at);
            template.map_err(|error| faults.add(node.at, error.to_string())).ok().map(Input::Text)
        }
    }
}

/// A text, whatever else YAML may see in it; quotes decide between nothing and the empty text.
pub(super) fn parse_text(what: &str, node: &Node, faults: &mut Faults<'_>) -> Option<String> {
    let Value::Scalar { text, .. } = &node.value else {
        faults.add(node.at, format!("{what} takes a text, found {}", node.kind()));
        return None;
    };
    if node.is_null() {
        let meant = if text == "~" { "" } else { text };
        faults.add(
            node.at,
            format!("{what} takes a text, found nothing: write {meant:?} if that is the text"),
        );
        return None;
    }
    Some(text.clone())
}

fn parse_seed(node: &Node, faults: &mut Faults<'_>) -> Option<i64> {
    match &node.value {
        Value::Scalar { text, plain: true } if !node.is_null() => {
            parse_bigint(text).map_err(|error| faults.add(node.at, error.to_string())).ok()
        }
        Value::Scalar { .. } | Value::Sequence(_) | Value::Mapping(_) => {
            faults.add(node.at, "the seed is a number without quotes");
            None
        }
    }
}

/// A number without quotes between two bounds.
pub(super) fn parse_operand(
    node: &Node,
    what: &'static str,
    bounds: std::ops::RangeInclusive<i128>,
    faults: &mut Faults<'_>,
) -> Option<i128> {
    match &node.value {
        Value::Scalar { text, plain: true } if !node.is_null() => {
            let number = parse_within(text, what, bounds);
            number.map_err(|error| faults.add(node.at, error.to_string())).ok()
        }
        Value::Scalar { .. } | Value::Sequence(_) | Value::Mapping(_) => {
            faults
                .add(node.at, format!("{what} is a number without quotes, found {}", node.kind()));
            None
        }
    }
}

fn parse_slice(node: &Node, faults: &mut Faults<'_>) -> Option<(usize, usize)> {
    let Value::Sequence(ends) = &node.value else {
        faults.add(
            node.at,
            "a slice is a list of its first byte and the byte after its last: [0, 8]",
        );
        return None;
    };
    let [from, to] = ends.as_slice() else {
        faults.add(
            node.at,
            "a slice is a list of its first byte and the byte after its last: [0, 8]",
        );
        return None;
    };
    let mut end = |node| parse_operand(node, "an end of a slice", 0..=4096, faults);
    let (from, to) = (end(from), end(to));
    let (from, to) = (usize::try_from(from?).ok()?, usize::try_from(to?).ok()?);
    if from >= to {
        faults.add(node.at, format!("slice [{from}, {to}] is empty: its end is the byte after"));
        return None;
    }
    Some((from, to))
}

fn parse_fold(node: &Node, faults: &mut Faults<'_>) -> Option<usize> {
    let piece = parse_operand(node, "the length of a piece in bytes", 1..=8, faults)?;
    usize::try_from(piece).ok()
}

/// Whether it is little-endian.
fn parse_order(node: &Node, faults: &mut Faults<'_>) -> Option<bool> {
    match &node.value {
        Value::Scalar { text, .. } if text == "big" => Some(false),
        Value::Scalar { text, .. } if text == "little" => Some(true),
        Value::Scalar { .. } | Value::Sequence(_) | Value::Mapping(_) => {
            faults.add(node.at, "order is big or little");
            None
        }
    }
}

pub(super) fn parse_flag(name: &str, node: &Node, faults: &mut Faults<'_>) -> Option<bool> {
    match &node.value {
        Value::Scalar { text, plain: true } if text == "true" => Some(true),
        Value::Scalar { text, plain: true } if text == "false" => Some(false),
        Value::Scalar { .. } | Value::Sequence(_) | Value::Mapping(_) => {
            faults.add(node.at, format!("{name} is true or false"));
            None
        }
    }
}
