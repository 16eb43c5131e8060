//! `erlang:phash2/1` of Elixir terms.
//!
//! OTP promises the same value for the same term in all releases and on all machines. The hash is
//! Bob Jenkins' of 1996 with a constant for each type of term. Nothing here knows how a term is
//! written; [`Term`] comes from `elixir.rs`.

use super::elixir::Term;

const GOLDEN_RATIO: u32 = 0x9e37_79b9;

/// `phash2/1` is `phash2/2` with this range.
const RANGE: u32 = 1 << 27;

/// Integers of 28 bits, the sign included, are hashed as one word on all machines.
const SMALL: std::ops::Range<i128> = -(1 << 27)..1 << 27;

const SMALL_INTEGER: u32 = type_constant(1);
const ATOM: u32 = type_constant(3);
const TUPLE: u32 = type_constant(9);
const NEGATIVE_INTEGER: u32 = type_constant(10);
const POSITIVE_INTEGER: u32 = type_constant(11);
const BINARY: u32 = type_constant(13);

/// `erlang:phash2(term)`, 27 bits.
pub(super) fn phash2(term: &Term) -> u32 {
    hash_after(0, term) % RANGE
}

/// The hash of a term that comes after terms with the hash `before`.
fn hash_after(before: u32, term: &Term) -> u32 {
    match term {
        // An atom alone, or first in what was hashed so far, is not mixed.
        Term::Atom(name) if before == 0 => hash_atom(name),
        Term::Atom(name) => mix_in(before, [hash_atom(name), 0], ATOM),
        Term::Integer(value) => hash_integer(before, *value),
        Term::Binary(text) => hash_binary(before, text.as_bytes()),
        Term::Tuple(elements) => {
            let start = mix_in(before, [low_half(elements.len() as u64), 0], TUPLE);
            elements.iter().fold(start, hash_after)
        }
    }
}

/// P. J. Weinberger's hash, as the atom table keeps it. Atoms were in Latin-1 once, so their
/// characters of Latin-1 count as one byte still; others count as their UTF-8 bytes.
fn hash_atom(name: &str) -> u32 {
    let mut utf8 = [0; 4];
    let mut hash = 0_u32;
    for character in name.chars() {
        let latin1 = u8::try_from(character).map(|byte| [byte]);
        let bytes = match &latin1 {
            Ok(byte) => byte.as_slice(),
            Err(_) => character.encode_utf8(&mut utf8).as_bytes(),
        };
        for byte in bytes {
            hash = (hash << 4).wrapping_add(u32::from(*byte));
            let overflow = hash & 0xf000_0000;
            hash ^= overflow | (overflow >> 24);
        }
    }
    hash
}

fn hash_integer(before: u32, value: i128) -> u32 {
    let mut magnitude = value.unsigned_abs();
    if SMALL.contains(&value) {
        let magnitude = low_half(low_digit(magnitude));
        if value >= 0 {
            return mix_in(before, [magnitude, 0], SMALL_INTEGER);
        }
        // Negative numbers are mixed twice.
        let positive = mix_in(before, [magnitude, 0], SMALL_INTEGER);
        return mix_in(positive, [magnitude.wrapping_neg(), 0], SMALL_INTEGER);
    }
    let constant = if value < 0 { NEGATIVE_INTEGER } else { POSITIVE_INTEGER };
    let mut hash = before;
    while magnitude != 0 {
        let digit = low_digit(magnitude);
        hash = mix_in(hash, [low_half(digit), low_half(digit >> 32)], constant);
        magnitude >>= 64;
    }
    hash
}

fn hash_binary(before: u32, bytes: &[u8]) -> u32 {
    let start = BINARY.wrapping_add(before);
    if bytes.is_empty() {
        return start;
    }
    let mut words = [GOLDEN_RATIO, GOLDEN_RATIO, start];
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        add_block(&mut words, block);
        mix(&mut words);
    }
    let mut tail = [0; 12];
    let (head, last) = blocks.remainder().split_at(blocks.remainder().len().min(8));
    tail[..head.len()].copy_from_slice(head);
    // The lowest byte of the third word stands for the length.
    tail[9..9 + last.len()].copy_from_slice(last);
    add_block(&mut words, &tail);
    words[2] = words[2].wrapping_add(low_half(bytes.len() as u64));
    mix(&mut words);
    words[2]
}

fn add_block(words: &mut [u32; 3], block: &[u8]) {
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        let summand = bytes.iter().rev().fold(0, |sum, byte| (sum << 8) | u32::from(*byte));
        *word = word.wrapping_add(summand);
    }
}

fn mix_in(hash: u32, values: [u32; 2], constant: u32) -> u32 {
    let [a, b] = values.map(|value| constant.wrapping_add(value));
    let mut words = [a, b, hash];
    mix(&mut words);
    words[2]
}

/// Mixes three words reversibly.
fn mix([a, b, c]: &mut [u32; 3]) {
    for [first, second, third] in [[13, 8, 13], [12, 16, 5], [3, 10, 15]] {
        *a = a.wrapping_sub(*b).wrapping_sub(*c) ^ (*c >> first);
        *b = b.wrapping_sub(*c).wrapping_sub(*a) ^ (*a << second);
        *c = c.wrapping_sub(*a).wrapping_sub(*b) ^ (*b >> third);
    }
}

const fn type_constant(number: u32) -> u32 {
    GOLDEN_RATIO.wrapping_mul(number)
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what is wanted")]
const fn low_half(value: u64) -> u32 {
    value as u32
}

#[expect(clippy::cast_possible_truncation, reason = "the low digit is what is wanted")]
const fn low_digit(value: u128) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use super::super::elixir::parse_term;
    use super::*;

    /// `erlang:phash2(Term)` on OTP 25, of the terms as Elixir writes them.
    const OTP_VALUES: [(&str, u32); 41] = [
        (r#""public""#, 46515530),
        ("{:ecto, nil, MyApp.Repo}", 41811489),
        (r#"{:ecto, "tenant_a", MyApp.Repo}"#, 17122987),
        (r#""""#, 13708901),
        (r#""twelve bytes""#, 93359736),
        (r#""thirteen byte""#, 33196846),
        (r#""a name of more than two blocks""#, 120433498),
        (r#""café""#, 94684372),
        (r#""a\n\t\"b\\\#{c}\0\u0001\u00e9\u{1F512}""#, 26617606),
        (":ecto", 441007),
        ("nil", 29948),
        ("true", 506293),
        ("false", 7111573),
        ("MyApp.Repo", 122482975),
        ("Elixir.MyApp.Repo", 122482975),
        ("Elixir", 79892226),
        (r#":"an atom with spaces""#, 14350419),
        (":valid?", 130559871),
        (":node@host", 43426804),
        (":MyApp", 5560432),
        (":café", 432201),
        (r#":"数据库ÿ""#, 126096591),
        ("0", 88723725),
        ("42", 30328728),
        ("-1", 44071773),
        ("134217727", 112602999),
        ("134217728", 12354923),
        ("-134217728", 69672967),
        ("-134217729", 76739502),
        ("576460752303423487", 27520264),
        ("576460752303423488", 26969617),
        ("-9223372036854775808", 126213383),
        ("18446744073709551615", 53435350),
        ("18446744073709551616", 103122609),
        ("-170141183460469231731687303715884105727", 116112096),
        ("{}", 87486268),
        ("{0}", 84975979),
        ("{:a}", 35332806),
        (r#"{:a, {"b", -3, {}}, 70000000000}"#, 80577561),
        ("{{}, {}}", 122066660),
        (r#"{"", ""}"#, 9457752),
    ];

    #[test]
    fn terms_have_the_hashes_that_otp_gives_them() {
        for (text, value) in OTP_VALUES {
            assert_eq!(phash2(&parse_term(text).unwrap()), value, "{text}");
        }
    }
}
