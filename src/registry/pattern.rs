//! The key of an entry: the grammar of `key` and `keys`, and which keys it stands for.
//!
//! A [`KeyRule`] is what the file says; a [`Shape`] is which keys that means once values, database
//! and server are known. A look-up compares shapes only, so whatever is costly (hashes) is done
//! once. Every refusal says what to write instead. Which databases and servers a key is named in,
//! and who else claims it, is not known here.

use std::fmt;
use std::sync::Arc;

use super::document::{Node, Position, Value};
use super::fault::Faults;
use super::fields::Fields;
use super::formula::{
    Arithmetic, FUNCTIONS, Facts, Formula, HashCheck, Unfit, hash_fields, parse_operand, parse_text,
};
use super::function::decode_ascii7;
use super::number::{IntegerError, parse_bigint, parse_int4};
use super::template::{DATABASE, Template, unquoted_placeholder};
use crate::key::Key;

/// One key of an entry, as it is written.
#[derive(Debug)]
pub(super) struct KeyRule {
    form: Form,
    /// As the file means it: `42`, `hashtext("jobs")`, `(7,*)`.
    pub(super) written: Arc<str>,
    pub(super) at: Position,
}

#[derive(Debug)]
enum Form {
    Bigint(Half),
    Halves(Space, Half, Half),
    /// One 64-bit number as a pair.
    Split(Box<Formula>),
    /// Any pair that is a well-formed packing of 7-bit characters.
    Packing,
    Range(i64, i64),
    /// Any bigint that is this times a number of 32 bits.
    MultipleOf(i64),
}

/// What two halves make, and how each is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    /// Two `int4`.
    Pair,
    /// The halves of a bigint: the high one has the sign.
    Packed,
    /// The columns of `pg_locks` under another `objsubid`.
    Class(u16),
}

/// What fills a place.
#[derive(Debug)]
enum Half {
    Number(i64),
    Hash(Box<Formula>),
    /// The OID of a table, and what is done to it.
    Oid(String, Box<Arithmetic>),
    /// Anything; as an OID it is shown without a sign, and as it was before the arithmetic.
    Any(Option<Box<Arithmetic>>),
    Range(i64, i64),
}

/// The keys that a rule stands for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Shape {
    One(Key),
    /// A key space by its `objsubid`, and what is said of its halves.
    Halves(u16, Part, Part),
    Range(i64, i64),
    MultipleOf(i64),
    Packing,
}

/// What is said of one half of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Part {
    One(u32),
    Any,
    /// Both ends included; `true` where the half has a sign.
    Range(i64, i64, bool),
}

/// How precise a rule is about its keys, the most precise first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Rank {
    /// A number or a hash.
    Exact,
    /// A hash of one of several values.
    Values,
    /// A half is free or a range.
    Half,
    /// A range of bigints.
    Range,
    /// Only the form of the key gives it away.
    Recognition,
}

const PAIR_CLASS: u16 = 2;
const BIGINT_CLASS: u16 = 1;

impl KeyRule {
    /// Whether it stands for one key, whatever its value turns out to be.
    pub(super) fn is_one_key(&self) -> bool {
        match &self.form {
            Form::Bigint(_) | Form::Split(_) => true,
            Form::Halves(_, high, low) => high.is_one() && low.is_one(),
            Form::Packing | Form::Range(..) | Form::MultipleOf(_) => false,
        }
    }

    /// How many parts of the key are free to be shown.
    pub(super) fn free_parts(&self) -> usize {
        match &self.form {
            Form::Bigint(_) | Form::Split(_) => 0,
            Form::Halves(_, high, low) => usize::from(!high.is_one()) + usize::from(!low.is_one()),
            Form::Packing | Form::Range(..) | Form::MultipleOf(_) => 1,
        }
    }

    /// Every template in it.
    pub(super) fn templates(&self) -> Vec<&Template> {
        self.formulas().into_iter().map(Formula::template).collect()
    }

    fn formulas(&self) -> Vec<&Formula> {
        let of_halves = self.halves().filter_map(|half| match half {
            Half::Hash(formula) => Some(&**formula),
            Half::Number(_) | Half::Oid(..) | Half::Any(_) | Half::Range(..) => None,
        });
        let split = match &self.form {
            Form::Split(formula) => Some(&**formula),
            Form::Bigint(_)
            | Form::Halves(..)
            | Form::Packing
            | Form::Range(..)
            | Form::MultipleOf(_) => None,
        };
        of_halves.chain(split).collect()
    }

    /// What fills its places, where it has any.
    fn halves(&self) -> impl Iterator<Item = &Half> {
        let (first, second) = match &self.form {
            Form::Bigint(half) => (Some(half), None),
            Form::Halves(_, high, low) => (Some(high), Some(low)),
            Form::Split(_) | Form::Packing | Form::Range(..) | Form::MultipleOf(_) => (None, None),
        };
        first.into_iter().chain(second)
    }

    /// The `objsubid` that it is about, where that is an extension's own.
    pub(super) fn class(&self) -> Option<u16> {
        match &self.form {
            Form::Halves(Space::Class(class), ..) => Some(*class),
            Form::Halves(Space::Pair | Space::Packed, ..)
            | Form::Bigint(_)
            | Form::Split(_)
            | Form::Packing
            | Form::Range(..)
            | Form::MultipleOf(_) => None,
        }
    }

    /// Tables whose OIDs are asked for.
    pub(super) fn tables(&self) -> Vec<&str> {
        let of_halves = self.halves().filter_map(|half| match half {
            Half::Oid(table, _) => Some(table.as_str()),
            Half::Number(_) | Half::Hash(_) | Half::Any(_) | Half::Range(..) => None,
        });
        of_halves.collect()
    }

    /// Whether it stands for other keys in each database: it has the database's name in it, or the
    /// OID of a table.
    pub(super) fn is_about_database(&self) -> bool {
        let has_name = |template: &&Template| template.placeholders().any(|it| &**it == DATABASE);
        !self.tables().is_empty() || self.templates().iter().any(has_name)
    }

    /// The keys, once the facts are there.
    pub(super) fn shape(
        &self,
        facts: &Facts<'_>,
        calls: &mut Vec<HashCheck>,
    ) -> Result<Shape, Unfit> {
        Ok(match &self.form {
            Form::Bigint(half) => match half.part(facts, calls)? {
                Value64::One(word) => Shape::One(Key::bigint(word)),
                Value64::Free(_) => return Err(Unfit::NoValue),
            },
            Form::Split(formula) => {
                let word = low_64(formula.evaluate(facts, calls)?);
                Shape::One(Key::from_word(word.cast_unsigned(), PAIR_CLASS))
            }
            Form::Halves(space, high, low) => {
                let has_signs = space.signs();
                let high = high.part(facts, calls)?.part(has_signs.0);
                let low = low.part(facts, calls)?.part(has_signs.1);
                match (high, low) {
                    (Part::One(high), Part::One(low)) => {
                        Shape::One(Key::from_columns(high, low, space.class()))
                    }
                    (high, low) => Shape::Halves(space.class(), high, low),
                }
            }
            Form::Packing => Shape::Packing,
            Form::Range(from, to) => Shape::Range(*from, *to),
            Form::MultipleOf(factor) => Shape::MultipleOf(*factor),
        })
    }

    /// What of `key` the rule leaves free, in the order of the key.
    pub(super) fn free_values(&self, key: Key) -> Vec<String> {
        match &self.form {
            Form::Bigint(_) | Form::Split(_) => Vec::new(),
            Form::Halves(space, high, low) => {
                let signs = space.signs();
                let high = high.free_value(key.classid(), signs.0);
                let low = low.free_value(key.objid(), signs.1);
                high.into_iter().chain(low).collect()
            }
            Form::Packing => packing_of(key).into_iter().collect(),
            Form::Range(..) => key.as_bigint().map(|key| key.to_string()).into_iter().collect(),
            Form::MultipleOf(factor) => {
                let quotient = key.as_bigint().and_then(|key| quotient(key, *factor));
                quotient.map(|quotient| quotient.to_string()).into_iter().collect()
            }
        }
    }
}

/// A number, or what is said in place of one.
enum Value64 {
    One(i64),
    Free(Part),
}

impl Value64 {
    /// As one half of a key: a computed value of more width wraps, as a cast to a narrower integer
    /// does in most languages.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the low 32 bits are what is meant"
    )]
    fn part(self, has_sign: bool) -> Part {
        match self {
            Self::One(word) => Part::One(word as u32),
            Self::Free(Part::Range(from, to, _)) => Part::Range(from, to, has_sign),
            Self::Free(part) => part,
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low 64 bits are what is meant")]
fn low_64(value: i128) -> i64 {
    value as i64
}

impl Half {
    fn is_one(&self) -> bool {
        match self {
            Self::Number(_) | Self::Hash(_) | Self::Oid(..) => true,
            Self::Any(_) | Self::Range(..) => false,
        }
    }

    fn part(&self, facts: &Facts<'_>, calls: &mut Vec<HashCheck>) -> Result<Value64, Unfit> {
        Ok(match self {
            Self::Number(number) => Value64::One(*number),
            Self::Hash(formula) => Value64::One(low_64(formula.evaluate(facts, calls)?)),
            Self::Oid(table, arithmetic) => {
                let oid = (facts.oids)(table).ok_or(Unfit::NoValue)?;
                let word = super::function::Word { value: i128::from(oid), bits: 32 };
                Value64::One(low_64(arithmetic.apply(word)?))
            }
            Self::Any(_) => Value64::Free(Part::Any),
            Self::Range(from, to) => Value64::Free(Part::Range(*from, *to, false)),
        })
    }

    fn free_value(&self, half: u32, has_sign: bool) -> Option<String> {
        match self {
            Self::Number(_) | Self::Hash(_) | Self::Oid(..) => None,
            Self::Any(Some(arithmetic)) => arithmetic.undo(half).map(|oid| oid.to_string()),
            Self::Any(None) | Self::Range(..) => Some(signed(half, has_sign).to_string()),
        }
    }
}

impl Space {
    fn class(self) -> u16 {
        match self {
            Self::Pair => PAIR_CLASS,
            Self::Packed => BIGINT_CLASS,
            Self::Class(class) => class,
        }
    }

    /// Whether the high and the low half have a sign.
    fn signs(self) -> (bool, bool) {
        match self {
            Self::Pair => (true, true),
            Self::Packed => (true, false),
            Self::Class(_) => (false, false),
        }
    }
}

fn signed(half: u32, has_sign: bool) -> i64 {
    if has_sign { half.cast_signed().into() } else { half.into() }
}

impl Part {
    pub(super) fn matches(self, half: u32) -> bool {
        match self {
            Self::One(one) => half == one,
            Self::Any => true,
            Self::Range(from, to, has_sign) => (from..=to).contains(&signed(half, has_sign)),
        }
    }

    /// What both say, if some half is both.
    fn meeting(self, other: Self) -> Option<Self> {
        match (self, other) {
            (Self::Any, part) | (part, Self::Any) => Some(part),
            (Self::One(one), part) | (part, Self::One(one)) => {
                part.matches(one).then_some(Self::One(one))
            }
            (Self::Range(from, to, has_sign), Self::Range(other_from, other_to, _)) => {
                let (from, to) = (from.max(other_from), to.min(other_to));
                (from <= to).then_some(Self::Range(from, to, has_sign))
            }
        }
    }
}

impl Shape {
    pub(super) fn matches(&self, key: Key) -> bool {
        match self {
            Self::One(one) => *one == key,
            Self::Halves(class, high, low) => {
                key.objsubid() == *class && high.matches(key.classid()) && low.matches(key.objid())
            }
            Self::Range(from, to) => {
                key.as_bigint().is_some_and(|key| (*from..=*to).contains(&key))
            }
            Self::MultipleOf(factor) => {
                key.as_bigint().is_some_and(|key| quotient(key, *factor).is_some())
            }
            Self::Packing => packing_of(key).is_some(),
        }
    }

    /// The keys that have both shapes, if any. Only shapes of one rank are compared.
    pub(super) fn meeting(&self, other: &Self) -> Option<Self> {
        match (self, other) {
            (Self::Halves(class, high, low), Self::Halves(other, other_high, other_low)) => {
                let high = high.meeting(*other_high).filter(|_| class == other)?;
                Some(match (high, low.meeting(*other_low)?) {
                    (Part::One(high), Part::One(low)) => {
                        Self::One(Key::from_columns(high, low, *class))
                    }
                    (high, low) => Self::Halves(*class, high, low),
                })
            }
            (Self::Range(from, to), Self::Range(other_from, other_to)) => {
                let (from, to) = (*from.max(other_from), *to.min(other_to));
                (from <= to).then_some(Self::Range(from, to))
            }
            (shape, other) => (shape == other).then(|| shape.clone()),
        }
    }

    pub(super) fn rank(&self) -> Rank {
        match self {
            Self::One(_) => Rank::Exact,
            Self::Halves(..) => Rank::Half,
            Self::Range(..) => Rank::Range,
            Self::MultipleOf(_) | Self::Packing => Rank::Recognition,
        }
    }

    /// How large the numbers are that the shape fixes: small ones are everybody's. `None` where
    /// more than a number gives the key away.
    pub(super) fn magnitude(&self) -> Option<u64> {
        let halves = |class: u16, high: Option<u32>, low: Option<u32>| match class {
            BIGINT_CLASS => match (high, low) {
                (Some(high), _) if high != 0 && high != u32::MAX => None,
                (_, low) => low.map(u64::from),
            },
            PAIR_CLASS => {
                let magnitude = |half: u32| u64::from(half.cast_signed().unsigned_abs());
                high.into_iter().chain(low).map(magnitude).max()
            }
            _ => None,
        };
        match self {
            Self::One(key) => match key.as_bigint() {
                Some(number) => Some(number.unsigned_abs()),
                None => halves(key.objsubid(), Some(key.classid()), Some(key.objid())),
            },
            Self::Halves(class, high, low) => {
                let one = |part: &Part| match part {
                    Part::One(half) => Some(*half),
                    Part::Any | Part::Range(..) => None,
                };
                halves(*class, one(high), one(low))
            }
            Self::Range(from, to) => Some(from.unsigned_abs().max(to.unsigned_abs())),
            Self::MultipleOf(_) | Self::Packing => None,
        }
    }
}

/// As the `key` label writes it: `42`, `(7,*)`, `packed(5,*)`, `1000000-1999999`.
impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let part = |part: &Part, has_sign: bool| match part {
            Part::One(half) => signed(*half, has_sign).to_string(),
            Part::Any => "*".to_owned(),
            Part::Range(from, to, _) => range_text(*from, *to),
        };
        match self {
            Self::One(key) => key.fmt(f),
            Self::Halves(PAIR_CLASS, high, low) => {
                write!(f, "({},{})", part(high, true), part(low, true))
            }
            Self::Halves(BIGINT_CLASS, high, low) => {
                write!(f, "packed({},{})", part(high, true), part(low, false))
            }
            Self::Halves(class, high, low) => {
                write!(f, "class {class}: {}/{}", part(high, false), part(low, false))
            }
            Self::Range(from, to) => f.write_str(&range_text(*from, *to)),
            Self::MultipleOf(factor) => write!(f, "multiple of {factor}"),
            Self::Packing => f.write_str("ascii7"),
        }
    }
}

fn range_text(from: i64, to: i64) -> String {
    if from < 0 { format!("{from} to {to}") } else { format!("{from}-{to}") }
}

impl fmt::Display for KeyRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bigint(half) => half.fmt(f),
            Self::Halves(Space::Pair, high, low) => write!(f, "({high},{low})"),
            Self::Halves(Space::Packed, high, low) => write!(f, "packed({high},{low})"),
            Self::Halves(Space::Class(class), high, low) => {
                write!(f, "class {class}: {high}/{low}")
            }
            Self::Split(formula) => write!(f, "split {formula}"),
            Self::Packing => f.write_str("split ascii7(*)"),
            Self::Range(from, to) => f.write_str(&range_text(*from, *to)),
            Self::MultipleOf(factor) => write!(f, "multiple of {factor}"),
        }
    }
}

impl fmt::Display for Half {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Hash(formula) => formula.fmt(f),
            Self::Oid(table, arithmetic) => write!(f, "oid({table:?}){arithmetic}"),
            Self::Any(None) => f.write_str("*"),
            Self::Any(Some(arithmetic)) => write!(f, "oid(*){arithmetic}"),
            Self::Range(from, to) => f.write_str(&range_text(*from, *to)),
        }
    }
}

/// The 32-bit number, not 0, that makes `key` when multiplied by `factor`.
fn quotient(key: i64, factor: i64) -> Option<u32> {
    let quotient = key.checked_div(factor)?;
    let is_whole = key.checked_rem(factor) == Some(0);
    u32::try_from(quotient).ok().filter(|quotient| is_whole && *quotient != 0)
}

/// The text of a pair that is a packing of 7-bit characters.
pub(super) fn packing_of(key: Key) -> Option<String> {
    key.as_pair()?;
    decode_ascii7((u64::from(key.classid()) << 32) | u64::from(key.objid()))
}

/// Forms beside the functions, of which each is short for a bigint.
const FORMS: [&str; 7] = ["bigint", "pair", "split", "packed", "range", "class", "multiple_of"];
const CLASS_FIELDS: [&str; 2] = ["classid", "objid"];

/// One key.
pub(super) fn parse_key(node: &Node, faults: &mut Faults<'_>) -> Option<KeyRule> {
    let form = parse_form(node, faults)?;
    let written = form.to_string().into();
    Some(KeyRule { form, written, at: node.at })
}

fn parse_form(node: &Node, faults: &mut Faults<'_>) -> Option<Form> {
    match &node.value {
        Value::Scalar { .. } => parse_bigint_form(node, faults),
        Value::Sequence(_) => {
            faults.add(
                node.at,
                "expected one key, found a list: several keys go under keys, \
                 the halves of a pair into { pair: [7, 9] }",
            );
            None
        }
        Value::Mapping(_) => {
            let known: Vec<&str> =
                FORMS.into_iter().chain(CLASS_FIELDS).chain(hash_fields()).collect();
            let fields = Fields::read(node, "a key", &known, faults)?;
            let deciders: Vec<&str> = FORMS.into_iter().chain(FUNCTIONS).collect();
            let (name, value) = fields.only_one_of(
                &deciders,
                "one of bigint, pair, split, packed, range, class or a function, as in \
                 { hashtext: jobs },",
                faults,
            )?;
            if FORMS.contains(&name) {
                let others: Vec<&str> = hash_fields()
                    .chain(CLASS_FIELDS)
                    .filter(|field| name != "class" || !CLASS_FIELDS.contains(field))
                    .collect();
                fields.refuse_beside(name, &others, faults);
            } else {
                fields.refuse_beside(name, &CLASS_FIELDS, faults);
            }
            match name {
                "bigint" => parse_bigint_form(value, faults),
                "pair" => parse_pair(value, faults),
                "split" => parse_split(value, faults),
                "packed" => parse_packed(value, faults),
                "range" => {
                    let (from, to) = parse_range(value, i64::MIN, i64::MAX, faults)?;
                    Some(Form::Range(from, to))
                }
                "class" => parse_class(&fields, value, faults),
                "multiple_of" => {
                    let bounds = 2..=i128::from(i64::MAX);
                    let factor = parse_operand(value, "a factor", bounds, faults)?;
                    i64::try_from(factor).ok().map(Form::MultipleOf)
                }
                _ => {
                    let formula = Formula::parse_fields(&fields, node.at, faults)?;
                    Some(Form::Bigint(Half::Hash(Box::new(formula))))
                }
            }
        }
    }
}

fn parse_bigint_form(node: &Node, faults: &mut Faults<'_>) -> Option<Form> {
    match parse_half(node, Place::Bigint, faults)? {
        Half::Any(_) | Half::Range(..) => {
            faults.add(
                node.at,
                "a bigint key cannot be free: for a half-free pair write { pair: [7, \"*\"] }",
            );
            None
        }
        half @ (Half::Number(_) | Half::Hash(_) | Half::Oid(..)) => Some(Form::Bigint(half)),
    }
}

fn parse_pair(node: &Node, faults: &mut Faults<'_>) -> Option<Form> {
    let Some([first, second]) = two_halves(node) else {
        faults.add(node.at, "a pair has two halves in a list, as in { pair: [7, 9] }");
        return None;
    };
    let first = parse_half(first, Place::Int4, faults);
    let second = parse_half(second, Place::Int4, faults);
    let (first, second) = (first?, second?);
    if matches!((&first, &second), (Half::Any(_), Half::Any(_))) {
        faults.add(
            node.at,
            "both halves of the pair are free, which would name every pair: fix one of them",
        );
        return None;
    }
    Some(Form::Halves(Space::Pair, first, second))
}

fn parse_packed(node: &Node, faults: &mut Faults<'_>) -> Option<Form> {
    let Some([high, low]) = two_halves(node) else {
        faults.add(
            node.at,
            "packed has the high and the low half of one bigint in a list, as in \
             { packed: [5, \"*\"] }",
        );
        return None;
    };
    let high = parse_half(high, Place::High, faults);
    let low = parse_half(low, Place::Low, faults);
    let (high, low) = (high?, low?);
    if matches!((&high, &low), (Half::Any(_), Half::Any(_))) {
        faults.add(
            node.at,
            "both halves are free, which would name every bigint: fix one of them, or give a range",
        );
        return None;
    }
    Some(Form::Halves(Space::Packed, high, low))
}

fn parse_split(node: &Node, faults: &mut Faults<'_>) -> Option<Form> {
    if let Value::Mapping(pairs) = &node.value
        && let [(Node { value: Value::Scalar { text: name, .. }, .. }, input)] = pairs.as_slice()
        && name == "ascii7"
        && is_star(input)
    {
        return Some(Form::Packing);
    }
    Formula::parse(node, faults).map(Box::new).map(Form::Split)
}

fn parse_class(fields: &Fields<'_>, node: &Node, faults: &mut Faults<'_>) -> Option<Form> {
    let class = parse_operand(node, "an objsubid", 0..=i128::from(u16::MAX), faults);
    let mut half = |name: &str| match fields.get(name) {
        Some(node) => parse_half(node, Place::Column, faults),
        None => {
            faults.add(
                node.at,
                format!("class needs {name} too: add {name}: and a number, or \"*\" for any"),
            );
            None
        }
    };
    let (classid, objid) = (half("classid"), half("objid"));
    let class = u16::try_from(class?).ok()?;
    if matches!(class, BIGINT_CLASS | PAIR_CLASS) {
        faults.add(
            node.at,
            "objsubid 1 is a bigint key and 2 a pair: write the number, or { pair: [7, 9] }",
        );
        return None;
    }
    Some(Form::Halves(Space::Class(class), classid?, objid?))
}

fn two_halves(node: &Node) -> Option<[&Node; 2]> {
    match &node.value {
        Value::Sequence(halves) => halves.iter().collect::<Vec<_>>().try_into().ok(),
        Value::Scalar { .. } | Value::Mapping(_) => None,
    }
}

fn parse_range(
    node: &Node,
    smallest: i64,
    largest: i64,
    faults: &mut Faults<'_>,
) -> Option<(i64, i64)> {
    let Some([from, to]) = two_halves(node) else {
        faults.add(node.at, "a range has its first and its last number in a list: [1, 99]");
        return None;
    };
    let bounds = i128::from(smallest)..=i128::from(largest);
    let from = parse_operand(from, "an end of this range", bounds.clone(), faults);
    let to = parse_operand(to, "an end of this range", bounds, faults);
    let (from, to) = (i64::try_from(from?).ok()?, i64::try_from(to?).ok()?);
    if from > to {
        faults.add(node.at, format!("the range [{from}, {to}] is empty: write [{to}, {from}]"));
        return None;
    }
    Some((from, to))
}

/// Where a number stands, which decides its width and what may be written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The whole key.
    Bigint,
    /// In a pair.
    Int4,
    /// The high half of a bigint.
    High,
    /// The low half of a bigint.
    Low,
    /// A column of `pg_locks`.
    Column,
}

impl Place {
    fn parse_number(self, text: &str) -> Result<i64, IntegerError> {
        match self {
            Self::Bigint => parse_bigint(text),
            Self::Int4 | Self::High => parse_int4(text).map(i64::from),
            Self::Low => {
                let bounds = i128::from(i32::MIN)..=i128::from(u32::MAX);
                super::number::parse_within(text, "the low half of a bigint", bounds).map(low_64)
            }
            Self::Column => {
                let bounds = 0..=i128::from(u32::MAX);
                super::number::parse_within(text, "a column of pg_locks", bounds).map(low_64)
            }
        }
    }

    /// What a range may span here, where one may stand.
    fn range(self) -> Option<(i64, i64)> {
        match self {
            Self::Bigint | Self::Int4 | Self::Column => None,
            Self::High => Some((i32::MIN.into(), i32::MAX.into())),
            Self::Low => Some((0, u32::MAX.into())),
        }
    }
}

const OID_FIELDS: [&str; 8] = ["oid", "signed", "abs", "and", "xor", "multiply", "add", "modulo"];

fn parse_half(node: &Node, place: Place, faults: &mut Faults<'_>) -> Option<Half> {
    match &node.value {
        Value::Scalar { .. } if node.is_null() => {
            faults.add(node.at, "expected a number or a hash, found nothing");
            None
        }
        Value::Scalar { .. } if is_star(node) => Some(Half::Any(None)),
        Value::Scalar { text, plain: false } => {
            faults.add(node.at, quoted_text(text, place));
            None
        }
        Value::Scalar { text, plain: true } => match place.parse_number(text) {
            Ok(number) => Some(Half::Number(number)),
            Err(IntegerError::NotAnInteger(text)) => {
                faults.add(node.at, format!("{text:?} is not a number: {}", for_its_hash(&text)));
                None
            }
            Err(error) => {
                faults.add(node.at, error.to_string());
                None
            }
        },
        Value::Sequence(_) => {
            faults.add(node.at, "expected a number or a hash, found a list");
            None
        }
        Value::Mapping(pairs) => {
            let has = |field: &str| {
                pairs.iter().any(
                    |(name, _)| matches!(&name.value, Value::Scalar { text, .. } if text == field),
                )
            };
            if has("oid") {
                return parse_oid(node, faults);
            }
            if let Some((smallest, largest)) = place.range().filter(|_| has("range")) {
                let fields = Fields::read(node, "a range", &["range"], faults)?;
                let (from, to) = parse_range(fields.get("range")?, smallest, largest, faults)?;
                return Some(Half::Range(from, to));
            }
            if let Some(message) = unquoted_placeholder(node) {
                faults.add(node.at, message);
                return None;
            }
            Formula::parse(node, faults).map(Box::new).map(Half::Hash)
        }
    }
}

fn parse_oid(node: &Node, faults: &mut Faults<'_>) -> Option<Half> {
    let fields = Fields::read(node, "an OID", &OID_FIELDS, faults)?;
    let table = fields.get("oid")?;
    let arithmetic = Arithmetic::parse(&fields, faults);
    if is_star(table) {
        let arithmetic = arithmetic?;
        if !arithmetic.is_invertible() {
            faults.add(
                node.at,
                "the OID in such a key cannot be told from it: only xor and add can be undone",
            );
            return None;
        }
        return Some(Half::Any(Some(Box::new(arithmetic))));
    }
    let name = parse_text("oid", table, faults)?;
    let is_qualified = name.split('.').filter(|part| !part.trim().is_empty()).count() >= 2;
    if !is_qualified || name.contains('\0') {
        faults.add(
            table.at,
            format!("{name:?} has no schema: write the table as schema.table, or \"*\" for any"),
        );
        return None;
    }
    Some(Half::Oid(name, Box::new(arithmetic?)))
}

fn is_star(node: &Node) -> bool {
    matches!(&node.value, Value::Scalar { text, plain: false } if text == "*")
}

fn quoted_text(text: &str, place: Place) -> String {
    let or_the_number = if place.parse_number(text).is_ok() {
        format!("write {text} for the number, or ")
    } else {
        String::new()
    };
    format!("{text:?} in quotes is a text: {or_the_number}{}", for_its_hash(text))
}

fn for_its_hash(text: &str) -> String {
    format!("write {{ hashtext: {text:?} }} or {{ hashtextextended: {text:?} }} for its hash")
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::super::document::parse_document;
    use super::super::encoding::Encoding;
    use super::super::formula::ServerHashes;
    use super::super::hash::hashtext;
    use super::*;

    fn parse(text: &str) -> Result<KeyRule, Vec<String>> {
        let source = Source { name: "f".into(), text: text.into() };
        let mut faults = Faults::new(&source);
        let pattern =
            parse_document(&source, &mut faults).and_then(|root| parse_key(&root, &mut faults));
        let faults = faults.finish();
        match pattern {
            Some(pattern) if faults.is_empty() => Ok(pattern),
            _ => Err(faults
                .iter()
                .map(|f| format!("{}:{}: {}", f.line, f.column, f.message))
                .collect()),
        }
    }

    fn half(class: u16, high: Option<i32>, low: Option<i32>) -> Shape {
        let part = |half: Option<i32>| half.map_or(Part::Any, |it| Part::One(it.cast_unsigned()));
        Shape::Halves(class, part(high), part(low))
    }

    #[test]
    fn each_form_stands_for_its_keys() {
        let one = Shape::One;
        let bigint = |number| Shape::One(Key::bigint(number));
        let cases = [
            ("42", one(Key::bigint(42)), "42"),
            ("0x2a", one(Key::bigint(42)), "42"),
            ("{ bigint: -1 }", one(Key::bigint(-1)), "-1"),
            ("{ hashtext: jobs }", one(Key::bigint(-1_679_774_495)), "hashtext(\"jobs\")"),
            (
                "{ bigint: { hashtext: jobs } }",
                one(Key::bigint(-1_679_774_495)),
                "hashtext(\"jobs\")",
            ),
            (
                "{ hashtextextended: \"cron:recalc-reward-points\" }",
                one(Key::bigint(6_110_350_855_857_795_459)),
                "hashtextextended(\"cron:recalc-reward-points\", 0)",
            ),
            (
                "{ hashtextextended: jobs, seed: -1 }",
                one(Key::bigint(-7_996_330_531_658_456_789)),
                "hashtextextended(\"jobs\", -1)",
            ),
            ("{ pair: [7, 9] }", one(Key::pair(7, 9)), "(7,9)"),
            ("{ pair: [7, \"*\"] }", half(PAIR_CLASS, Some(7), None), "(7,*)"),
            ("{ pair: ['*', -9] }", half(PAIR_CLASS, None, Some(-9)), "(*,-9)"),
            (
                "{ pair: [{ hashtext: jobs }, { hashtext: \"job:nightly\" }] }",
                one(Key::pair(-1_679_774_495, 1_973_311_789)),
                "(hashtext(\"jobs\"),hashtext(\"job:nightly\"))",
            ),
            // Under seed 0 the low half of the long hash is the short one.
            (
                "{ pair: [{ hashtextextended: jobs }, \"*\"] }",
                half(PAIR_CLASS, Some(-1_679_774_495), None),
                "(hashtextextended(\"jobs\", 0),*)",
            ),
            // Scalars are texts where a text is asked for, whatever else YAML may see in them.
            ("{ hashtext: 010 }", one(Key::bigint(hashtext(b"010").into())), "hashtext(\"010\")"),
            ("{ hashtext: yes }", one(Key::bigint(hashtext(b"yes").into())), "hashtext(\"yes\")"),
            ("{ hashtext: \"\" }", one(Key::bigint(hashtext(b"").into())), "hashtext(\"\")"),
            (
                "{ hashtext: 'a{{b}}' }",
                one(Key::bigint(hashtext(b"a{b}").into())),
                "hashtext(\"a{b}\")",
            ),
            ("{ crc32: mydb }", bigint(285_543_882), "crc32(\"mydb\")"),
            (
                "{ crc32: mydb, multiply: 2053462845 }",
                bigint(586_353_752_304_064_290),
                "crc32(\"mydb\") * 2053462845",
            ),
            // The order in the file is not the order in which it is done.
            (
                "{ crc32: /mydb, modulo: 4294967296, multiply: 1486364155 }",
                bigint(2_054_976_106),
                "crc32(\"/mydb\") * 1486364155 mod 4294967296",
            ),
            (
                "{ sha256: my_lock, order: little }",
                bigint(-7_326_441_835_665_241_985),
                "sha256(\"my_lock\") little-endian",
            ),
            (
                "{ sha256: \"default3f0d0c6e-7b0a-4a58-9a3e-0e5b0f4c2a11\", slice: [12, 20], \
                 add: -9223372036854775808 }",
                bigint(-7_102_997_049_612_220_098),
                "sha256(\"default3f0d0c6e-7b0a-4a58-9a3e-0e5b0f4c2a11\")[12..20] \
                 + -9223372036854775808",
            ),
            (
                "{ uuid: 018f9f3c-6d7e-7b42-9a55-1c2d3e4f5a6b, fold: 8, and: 0x7fffffffffffffff }",
                bigint(2_007_060_694_380_388_649),
                "uuid(\"018f9f3c-6d7e-7b42-9a55-1c2d3e4f5a6b\") folded to 8 bytes \
                 & 0x7fffffffffffffff",
            ),
            (
                "{ djb2_xor: \"create-project:6f1c2d3e\", signed: true, abs: true }",
                bigint(1_695_283_356),
                "djb2_xor(\"create-project:6f1c2d3e\") signed abs",
            ),
            (
                "{ pair: [{ crc32: { hex: { sha1: \"ClosureTree::Category\" }, slice: [0, 33] }, \
                 and: 0x7fffffff }, 0] }",
                one(Key::pair(433_585_466, 0)),
                "(crc32(hex(sha1(\"ClosureTree::Category\"))[0..33]) & 0x7fffffff,0)",
            ),
            (
                "{ split: { ascii7: jobs } }",
                one(Key::pair(-708_896_969, -1)),
                "split ascii7(\"jobs\")",
            ),
            (
                "{ phash2: \"{{:ecto, nil, MyApp.Repo}}\" }",
                bigint(41_811_489),
                "phash2(\"{:ecto, nil, MyApp.Repo}\")",
            ),
            ("{ range: [1, 99] }", Shape::Range(1, 99), "1-99"),
            ("{ range: [-9, 9] }", Shape::Range(-9, 9), "-9 to 9"),
            ("{ packed: [5, 42] }", bigint((5 << 32) + 42), "packed(5,42)"),
            ("{ packed: [-1, 4294967295] }", bigint(-1), "packed(-1,4294967295)"),
            ("{ packed: [5, \"*\"] }", half(BIGINT_CLASS, Some(5), None), "packed(5,*)"),
            (
                "{ packed: [{ range: [1, 9] }, \"*\"] }",
                Shape::Halves(BIGINT_CLASS, Part::Range(1, 9, true), Part::Any),
                "packed(1-9,*)",
            ),
            (
                "{ class: 4, classid: 0, objid: 102008 }",
                one(Key::from_columns(0, 102_008, 4)),
                "class 4: 0/102008",
            ),
            ("{ class: 4, classid: 0, objid: \"*\" }", half(4, Some(0), None), "class 4: 0/*"),
            (
                "{ multiple_of: 2053462845 }",
                Shape::MultipleOf(2_053_462_845),
                "multiple of 2053462845",
            ),
            ("{ split: { ascii7: \"*\" } }", Shape::Packing, "split ascii7(*)"),
            (
                "{ pair: [{ oid: app.jobs }, { hashtext: a }] }",
                one(Key::pair(16384, 1_075_015_857)),
                "(oid(\"app.jobs\"),hashtext(\"a\"))",
            ),
            (
                "{ pair: [16185446, { oid: \"*\", xor: 0x80000000 }] }",
                half(PAIR_CLASS, Some(16_185_446), None),
                "(16185446,oid(*) xor 0x80000000)",
            ),
        ];
        for (text, keys, written) in cases {
            let pattern = parse(text).unwrap_or_else(|faults| panic!("{text}: {faults:?}"));
            let hashes = ServerHashes::new();
            let facts = Facts {
                bindings: &[],
                encoding: Some(Encoding::Utf8),
                server_hashes: &hashes,
                oids: &|table| (table == "app.jobs").then_some(16384),
            };
            let shape = pattern.shape(&facts, &mut Vec::new());
            assert_eq!((shape, &*pattern.written), (Ok(keys), written), "{text}");
        }
    }

    #[test]
    fn what_is_no_key_is_refused_with_the_mend() {
        let cases = [
            (
                "010",
                "1:1: 010 begins with a zero, which some read as octal: write 10, or 8 if octal was meant",
            ),
            ("1e3", "1:1: 1e3 is in a notation that is not read here: write 1000"),
            (
                "18446744073709551615",
                "1:1: 18446744073709551615 is above 9223372036854775807, the largest bigint: \
                 write its signed form -1",
            ),
            (
                "{ pair: [3048471620, 1] }",
                "1:10: 3048471620 is above 2147483647, the largest int4: write its signed form \
                 -1246495676 (OIDs and the columns of pg_locks are unsigned)",
            ),
            (
                "cron:nightly",
                "1:1: \"cron:nightly\" is not a number: write { hashtext: \"cron:nightly\" } or \
                 { hashtextextended: \"cron:nightly\" } for its hash",
            ),
            (
                "\"42\"",
                "1:1: \"42\" in quotes is a text: write 42 for the number, or \
                 write { hashtext: \"42\" } or { hashtextextended: \"42\" } for its hash",
            ),
            (
                "'jobs'",
                "1:1: \"jobs\" in quotes is a text: write { hashtext: \"jobs\" } or \
                 { hashtextextended: \"jobs\" } for its hash",
            ),
            ("~", "1:1: expected a number or a hash, found nothing"),
            (
                "[1, 2]",
                "1:1: expected one key, found a list: several keys go under keys, \
                 the halves of a pair into { pair: [7, 9] }",
            ),
            (
                "\"*\"",
                "1:1: a bigint key cannot be free: for a half-free pair write { pair: [7, \"*\"] }",
            ),
            ("{ pair: [1, *] }", "1:13: a bare * begins a YAML alias: write \"*\" in quotes"),
            (
                "{ pair: ['*', \"*\"] }",
                "1:9: both halves of the pair are free, which would name every pair: fix one of them",
            ),
            ("{ pair: [1] }", "1:9: a pair has two halves in a list, as in { pair: [7, 9] }"),
            ("{ pair: 7 }", "1:9: a pair has two halves in a list, as in { pair: [7, 9] }"),
            ("{ pair: [1, [2]] }", "1:13: expected a number or a hash, found a list"),
            ("{ pair: [1, 2], seed: 3 }", "1:23: seed has no meaning beside pair: remove it"),
            ("{ bigint: 1, seed: 3 }", "1:20: seed has no meaning beside bigint: remove it"),
            (
                "{ hashtext: a, seed: 3 }",
                "1:22: hashtext takes no seed: use hashtextextended, or remove the seed",
            ),
            ("{ hashtextextended: a, seed: \"3\" }", "1:30: the seed is a number without quotes"),
            (
                "{ hashtext: a, hashtextextended: b }",
                "1:34: hashtext and hashtextextended exclude each other: keep one",
            ),
            (
                "{ seed: 3 }",
                "1:1: one of bigint, pair, split, packed, range, class or a function, as in { hashtext: jobs }, is needed here",
            ),
            ("{ crc23: a }", "1:3: unknown field \"crc23\" in a key: did you mean crc32?"),
            (
                "{ crc32: a, slice: [0, 4] }",
                "1:20: slice needs bytes, and crc32 gives a number: remove it",
            ),
            (
                "{ md5: a, slice: [10, 18] }",
                "1:18: slice [10, 18] goes past the end of the 16 bytes that md5 gives: shorten it",
            ),
            ("{ md5: a, slice: [8, 8] }", "1:18: slice [8, 8] is empty: its end is the byte after"),
            (
                "{ md5: a, slice: [0, 16] }",
                "1:1: 16 bytes are more than the 8 of a number: add slice: [0, 8] or fold: 8",
            ),
            (
                "{ sha1: a, fold: 8 }",
                "1:18: 20 bytes cannot be folded into pieces of 8: choose a divisor",
            ),
            (
                "{ crc32: { sha1: a, signed: true } }",
                "1:29: signed needs a number, and bytes are needed here: remove it",
            ),
            (
                "{ md5: { crc32: a } }",
                "1:8: crc32 gives a number, and only bytes can be hashed again",
            ),
            (
                "{ md5: { sha1: a }, encoding: utf-16le }",
                "1:31: encoding is about a text, and bytes go in here: remove it",
            ),
            (
                "{ md5: a, encoding: ebcdic }",
                "1:21: unknown encoding \"ebcdic\": write utf-8, utf-16le, utf-16be, or a name that \
                 PostgreSQL has for it, as in latin1",
            ),
            ("{ md5: a, order: native }", "1:18: order is big or little"),
            (
                "{ crc32: a, multiply: 1e3 }",
                "1:23: 1e3 is in a notation that is not read here: write 1000",
            ),
            (
                "{ crc32: a, modulo: 0 }",
                "1:21: 0 is outside 1 to 18446744073709551615, where a modulus lies",
            ),
            ("{ crc32: a, signed: yes }", "1:21: signed is true or false"),
            (
                "{ uuid5: a }",
                "1:1: uuid5 needs a namespace: add namespace: dns, url, oid, x500 or a UUID",
            ),
            ("{ sha1: a, base: 16 }", "1:18: sha1 takes no base: it belongs to integer; remove it"),
            ("{ range: [9, 1] }", "1:10: the range [9, 1] is empty: write [1, 9]"),
            ("{ range: 9 }", "1:10: a range has its first and its last number in a list: [1, 99]"),
            (
                "{ packed: ['*', '*'] }",
                "1:11: both halves are free, which would name every bigint: fix one of them, or \
                 give a range",
            ),
            (
                "{ packed: [4294967295, 1] }",
                "1:12: 4294967295 is above 2147483647, the largest int4: write its signed form -1 \
                 (OIDs and the columns of pg_locks are unsigned)",
            ),
            (
                "{ class: 2, classid: 1, objid: 1 }",
                "1:10: objsubid 1 is a bigint key and 2 a pair: write the number, or { pair: [7, 9] }",
            ),
            (
                "{ class: 4, classid: 1 }",
                "1:10: class needs objid too: add objid: and a number, or \"*\" for any",
            ),
            (
                "{ class: 4, classid: -1, objid: 1 }",
                "1:22: -1 is outside 0 to 4294967295, where a column of pg_locks lies",
            ),
            ("{ range: [1, 2], objid: 1 }", "1:25: objid has no meaning beside range: remove it"),
            (
                "{ pair: [{ oid: jobs }, 1] }",
                "1:17: \"jobs\" has no schema: write the table as schema.table, or \"*\" for any",
            ),
            (
                "{ pair: [1, { oid: '*', modulo: 7 }] }",
                "1:13: the OID in such a key cannot be told from it: only xor and add can be undone",
            ),
            (
                "{ hashtext: a, hashtext: b }",
                "1:16: hashtext is given twice, first on line 1: keep one",
            ),
            ("{ [1]: a }", "1:3: the name of a field is a word, found a list"),
            ("{ hashtext: [a] }", "1:13: hashtext takes a text, found a list"),
            (
                "{ hashtext: }",
                "1:11: hashtext takes a text, found nothing: write \"\" if that is the text",
            ),
            (
                "{ hashtext: null }",
                "1:13: hashtext takes a text, found nothing: write \"null\" if that is the text",
            ),
            (
                "{ hashtext: \"a\\0b\" }",
                "1:13: no text in PostgreSQL contains NUL, so no server can compute this hashtext: \
                 remove \\0",
            ),
            (
                "{ hashtext: {database} }",
                "1:13: {database} without quotes is a mapping to YAML: write \"{database}\"",
            ),
            (
                "{database}",
                "1:2: {database} without quotes is a mapping to YAML: write \"{database}\"",
            ),
        ];
        for (text, message) in cases {
            match parse(text) {
                Ok(pattern) => panic!("{text} was taken as {}", pattern.written),
                Err(faults) => assert_eq!(faults, [message], "{text}"),
            }
        }
    }

    #[test]
    fn an_unknown_field_is_told_with_all_known_ones_when_none_is_near() {
        let [fault] =
            <[String; 1]>::try_from(parse("{ pair: [{ pairs: 1 }, 3] }").unwrap_err()).unwrap();
        let begin = "1:12: unknown field \"pairs\" in a hash: the known ones are md5, sha1,";
        assert!(fault.starts_with(begin), "{fault}");
    }

    #[test]
    fn the_free_parts_of_a_key_are_shown_as_they_were_meant() {
        let free = |rule: &str, key: Key| parse(rule).unwrap().free_values(key);
        assert_eq!(free("{ pair: [7, \"*\"] }", Key::pair(7, -1)), ["-1"]);
        assert_eq!(
            free("{ packed: [5, \"*\"] }", Key::bigint((5 << 32) | 0xffff_fffe)),
            ["4294967294"]
        );
        assert_eq!(
            free("{ packed: [{ range: [-9, 9] }, \"*\"] }", Key::bigint((-1 << 32) | 7)),
            ["-1", "7"]
        );
        assert_eq!(free("{ range: [1, 99] }", Key::bigint(42)), ["42"]);
        let repack = "{ pair: [16185446, { oid: \"*\", xor: 0x80000000 }] }";
        assert_eq!(free(repack, Key::from_columns(16_185_446, 2_147_500_032, 2)), ["16384"]);
        assert_eq!(free("{ multiple_of: 7 }", Key::bigint(49)), ["7"]);
        assert_eq!(free("{ split: { ascii7: \"*\" } }", Key::pair(-708_896_969, -1)), ["jobs"]);
    }

    #[test]
    fn a_multiple_has_a_quotient_of_32_bits_that_is_not_0() {
        let shape = Shape::MultipleOf(1000);
        assert!(shape.matches(Key::bigint(4_294_967_295_000)));
        for number in [0, 999, -1000, 4_294_967_296_000, 1500] {
            assert!(!shape.matches(Key::bigint(number)), "{number}");
        }
        assert!(!shape.matches(Key::pair(0, 1000)));
    }

    #[test]
    fn both_halves_of_a_pair_are_told_when_both_are_wrong() {
        assert_eq!(parse("{ pair: [08, 4294967296] }").unwrap_err().len(), 2);
    }
}
