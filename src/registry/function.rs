//! The functions of the registry language: from the bytes of an input to more bytes or to a word.
//!
//! They are those that tools make advisory lock keys with, each exactly as the tool computes it.
//! How an entry writes them, the operations that follow and the key that comes of it are not
//! known here. `hashtext` and `hashtextextended` themselves are in `hash.rs`.

use std::str;

use crc::{CRC_32_ISO_HDLC, CRC_64_XZ, Crc};
use hkdf::Hkdf;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512};

pub use self::elixir::TermError;
use super::hash::{hashtext, hashtextextended};

mod elixir;
mod phash2;

/// A function of the language with its parameters.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// 16 bytes.
    Md5,
    /// 20 bytes.
    Sha1,
    /// 28 bytes.
    Sha224,
    /// 32 bytes.
    Sha256,
    /// 48 bytes.
    Sha384,
    /// 64 bytes.
    Sha512,
    /// RFC 5869 with the input as key material: the first 32 bytes, of which shorter outputs are
    /// the beginning.
    HkdfSha256 {
        /// Tells the uses of one key material apart.
        info: Vec<u8>,
        /// Empty is as good as none.
        salt: Vec<u8>,
    },
    /// The 16 bytes of the UUID, version 5, of a name.
    Uuid5 {
        /// The UUID that the name is unique in.
        namespace: [u8; 16],
    },
    /// The 16 bytes of a UUID from its text.
    Uuid,
    /// The input in lower-case hexadecimal digits.
    Hex,
    /// CRC-32 as in zlib.
    Crc32,
    /// FNV-1, which multiplies first; 32 bits.
    Fnv1_32,
    /// FNV-1a, which multiplies last; 32 bits.
    Fnv1a32,
    /// FNV-1, 64 bits.
    Fnv1_64,
    /// FNV-1a, 64 bits.
    Fnv1a64,
    /// What Go calls ECMA and the catalogues of CRCs CRC-64/XZ.
    Crc64Ecma,
    /// Bernstein's hash with xor, started from 0; 32 bits.
    Djb2Xor,
    /// The characters themselves, 7 bits each; see [`decode_ascii7`].
    Ascii7,
    /// `erlang:phash2/1` of an Elixir term; 27 bits.
    Phash2,
    /// The server's `hashtext(text)`, signed.
    Hashtext,
    /// The server's `hashtextextended(text, seed)`, signed.
    Hashtextextended {
        /// 0 unless the application says otherwise.
        seed: i64,
    },
    /// Java's `String.hashCode()`, signed.
    JavaHash,
    /// The number that the input writes, signed.
    Integer {
        /// 2 to 36.
        base: u32,
    },
}

/// What a function gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// As many as the function gives.
    Bytes(Vec<u8>),
    /// A number.
    Word(Word),
}

/// A number with the width that it is a number of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// Unsigned, but signed for `hashtext`, `hashtextextended`, `java_hash` and `integer`.
    pub value: i128,
    /// 32 or 64.
    pub bits: u32,
}

/// Why a function does not take an input.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// A function of text was given other bytes.
    #[error(
        "{function} takes text, and its input is not valid UTF-8: leave its encoding out, or write \
         the bytes of an inner hash as text with hex"
    )]
    NotText {
        /// As the language writes it.
        function: &'static str,
    },
    /// A NUL in what the server would have to hash as text.
    #[error("{function} cannot hash a NUL, which no text of the server has: take it out")]
    Nul {
        /// As the language writes it.
        function: &'static str,
    },
    /// Not the text of a UUID.
    #[error(
        "{0:?} is not a UUID: write 32 hexadecimal digits, \
         with hyphens as in 6ba7b810-9dad-11d1-80b4-00c04fd430c8 or without"
    )]
    NotUuid(String),
    /// A character that has no place in seven bits.
    #[error("ascii7 packs ASCII, and {0:?} has other characters: the key is made in another way")]
    NotAscii(String),
    /// More characters than 64 bits have room for.
    #[error(
        "ascii7 packs at most 9 characters, and {0:?} is longer: the key is made in another way"
    )]
    TooLong(String),
    /// Not a number, or one in another base.
    #[error("{text:?} is not an integer of base {base}: write its digits alone, or another base")]
    NotDigits {
        /// The input.
        text: String,
        /// That it was read in.
        base: u32,
    },
    /// A number that no word holds.
    #[error("{0} does not fit 64 bits (-9223372036854775808 to 18446744073709551615)")]
    Outside64Bits(String),
    /// A base without digits.
    #[error("there are no digits for base {0}: write a base from 2 to 36")]
    Base(u32),
    /// The input of `phash2`.
    #[error("phash2 takes an Elixir term as inspect prints it: {0}")]
    Term(#[from] TermError),
}

impl Function {
    /// What the function gives for these bytes. The bytes of a text are those of its encoding.
    pub fn apply(&self, input: &[u8]) -> Result<Output, InputError> {
        Ok(match self {
            Self::Md5 => Output::bytes(Md5::digest(input)),
            Self::Sha1 => Output::bytes(Sha1::digest(input)),
            Self::Sha224 => Output::bytes(Sha224::digest(input)),
            Self::Sha256 => Output::bytes(Sha256::digest(input)),
            Self::Sha384 => Output::bytes(Sha384::digest(input)),
            Self::Sha512 => Output::bytes(Sha512::digest(input)),
            Self::HkdfSha256 { info, salt } => Output::bytes(hkdf_sha256(input, info, salt)),
            Self::Uuid5 { namespace } => Output::bytes(uuid5(namespace, input)),
            Self::Uuid => {
                let text = self.text(input)?;
                let uuid = parse_uuid(text).ok_or_else(|| InputError::NotUuid(text.to_owned()))?;
                Output::bytes(uuid)
            }
            Self::Hex => Output::bytes(hex(input)),
            Self::Crc32 => Output::word(Crc::<u32>::new(&CRC_32_ISO_HDLC).checksum(input), 32),
            Self::Fnv1_32 => Output::word(fnv1_32(input), 32),
            Self::Fnv1a32 => Output::word(fnv1a_32(input), 32),
            Self::Fnv1_64 => Output::word(fnv1_64(input), 64),
            Self::Fnv1a64 => Output::word(fnv1a_64(input), 64),
            Self::Crc64Ecma => Output::word(Crc::<u64>::new(&CRC_64_XZ).checksum(input), 64),
            Self::Djb2Xor => Output::word(djb2_xor(input), 32),
            Self::Ascii7 => Output::word(encode_ascii7(self.text(input)?)?, 64),
            Self::Phash2 => {
                let term = elixir::parse_term(self.text(input)?)?;
                Output::word(phash2::phash2(&term), 32)
            }
            Self::Hashtext => Output::word(hashtext(self.without_nul(input)?), 32),
            Self::Hashtextextended { seed } => {
                Output::word(hashtextextended(self.without_nul(input)?, *seed), 64)
            }
            Self::JavaHash => Output::word(java_hash(self.text(input)?), 32),
            Self::Integer { base } => Output::word(parse_integer(self.text(input)?, *base)?, 64),
        })
    }

    /// Whether the function gives bytes, so that a slice of them is the word or another function
    /// can take them.
    pub fn gives_bytes(&self) -> bool {
        match self {
            Self::Md5
            | Self::Sha1
            | Self::Sha224
            | Self::Sha256
            | Self::Sha384
            | Self::Sha512
            | Self::HkdfSha256 { .. }
            | Self::Uuid5 { .. }
            | Self::Uuid
            | Self::Hex => true,
            Self::Crc32
            | Self::Fnv1_32
            | Self::Fnv1a32
            | Self::Fnv1_64
            | Self::Fnv1a64
            | Self::Crc64Ecma
            | Self::Djb2Xor
            | Self::Ascii7
            | Self::Phash2
            | Self::Hashtext
            | Self::Hashtextextended { .. }
            | Self::JavaHash
            | Self::Integer { .. } => false,
        }
    }

    /// As the language writes it.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Md5 => "md5",
            Self::Sha1 => "sha1",
            Self::Sha224 => "sha224",
            Self::Sha256 => "sha256",
            Self::Sha384 => "sha384",
            Self::Sha512 => "sha512",
            Self::HkdfSha256 { .. } => "hkdf_sha256",
            Self::Uuid5 { .. } => "uuid5",
            Self::Uuid => "uuid",
            Self::Hex => "hex",
            Self::Crc32 => "crc32",
            Self::Fnv1_32 => "fnv1_32",
            Self::Fnv1a32 => "fnv1a_32",
            Self::Fnv1_64 => "fnv1_64",
            Self::Fnv1a64 => "fnv1a_64",
            Self::Crc64Ecma => "crc64_ecma",
            Self::Djb2Xor => "djb2_xor",
            Self::Ascii7 => "ascii7",
            Self::Phash2 => "phash2",
            Self::Hashtext => "hashtext",
            Self::Hashtextextended { .. } => "hashtextextended",
            Self::JavaHash => "java_hash",
            Self::Integer { .. } => "integer",
        }
    }

    /// Whether the server computes it, from the bytes of the database's encoding.
    pub fn hashes_database_text(&self) -> bool {
        matches!(self, Self::Hashtext | Self::Hashtextextended { .. })
    }

    fn text<'a>(&self, input: &'a [u8]) -> Result<&'a str, InputError> {
        str::from_utf8(input).map_err(|_| InputError::NotText { function: self.as_str() })
    }

    fn without_nul<'a>(&self, input: &'a [u8]) -> Result<&'a [u8], InputError> {
        if input.contains(&0) {
            Err(InputError::Nul { function: self.as_str() })
        } else {
            Ok(input)
        }
    }
}

impl Output {
    fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bytes(bytes.as_ref().to_vec())
    }

    fn word(value: impl Into<i128>, bits: u32) -> Self {
        Self::Word(Word { value: value.into(), bits })
    }
}

/// The name that [`Function::Ascii7`] packed into these 64 bits, if it can be one: up to nine
/// printable characters of 7 bits from the top, then a 0, then only 1s.
pub fn decode_ascii7(word: u64) -> Option<String> {
    let unused = word.trailing_ones() + 1;
    let used = u64::BITS.checked_sub(unused)?;
    if used % 7 != 0 {
        return None;
    }
    let character = |index| {
        let bits = (word >> (u64::BITS - 7 * (index + 1))) & 0x7f;
        let byte = u8::try_from(bits).ok()?;
        matches!(byte, b' '..=b'~').then_some(char::from(byte))
    };
    (0..used / 7).map(character).collect()
}

/// A UUID of 32 hexadecimal digits in any case, with the usual hyphens or without.
pub fn parse_uuid(text: &str) -> Option<[u8; 16]> {
    let groups: Vec<_> = text.split('-').collect();
    let lengths: Vec<_> = groups.iter().map(|group| group.len()).collect();
    let is_uuid = matches!(lengths.as_slice(), [32] | [8, 4, 4, 4, 12])
        && groups.iter().all(|group| group.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let number = is_uuid.then(|| u128::from_str_radix(&groups.concat(), 16).ok())?;
    number.map(u128::to_be_bytes)
}

/// The namespace of a [`Function::Uuid5`]: `dns`, `url`, `oid` or `x500` of RFC 9562, or a UUID.
pub fn parse_namespace(text: &str) -> Option<[u8; 16]> {
    match text {
        "dns" => parse_uuid("6ba7b810-9dad-11d1-80b4-00c04fd430c8"),
        "url" => parse_uuid("6ba7b811-9dad-11d1-80b4-00c04fd430c8"),
        "oid" => parse_uuid("6ba7b812-9dad-11d1-80b4-00c04fd430c8"),
        "x500" => parse_uuid("6ba7b814-9dad-11d1-80b4-00c04fd430c8"),
        uuid => parse_uuid(uuid),
    }
}

fn hkdf_sha256(key_material: &[u8], info: &[u8], salt: &[u8]) -> [u8; 32] {
    let mut output = [0; 32];
    Hkdf::<Sha256>::new(Some(salt), key_material)
        .expand(info, &mut output)
        .expect("the hash itself gives 32 bytes, and 255 times as many may be asked for");
    output
}

fn uuid5(namespace: &[u8; 16], name: &[u8]) -> [u8; 16] {
    let hash = Sha1::new().chain_update(namespace).chain_update(name).finalize();
    let mut uuid = [0; 16];
    uuid.copy_from_slice(&hash[..16]);
    uuid[6] = uuid[6] & 0x0f | 0x50;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

fn hex(bytes: &[u8]) -> Vec<u8> {
    let digit = |nibble: u8| b"0123456789abcdef"[usize::from(nibble)];
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(byte & 0xf)]).collect()
}

const FNV_OFFSET_32: u32 = 0x811c_9dc5;
const FNV_PRIME_32: u32 = 0x0100_0193;
const FNV_OFFSET_64: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME_64: u64 = 0x0100_0000_01b3;

fn fnv1_32(bytes: &[u8]) -> u32 {
    let add = |hash: u32, byte: &u8| hash.wrapping_mul(FNV_PRIME_32) ^ u32::from(*byte);
    bytes.iter().fold(FNV_OFFSET_32, add)
}

fn fnv1a_32(bytes: &[u8]) -> u32 {
    let add = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(FNV_PRIME_32);
    bytes.iter().fold(FNV_OFFSET_32, add)
}

fn fnv1_64(bytes: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| hash.wrapping_mul(FNV_PRIME_64) ^ u64::from(*byte);
    bytes.iter().fold(FNV_OFFSET_64, add)
}

fn fnv1a_64(bytes: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME_64);
    bytes.iter().fold(FNV_OFFSET_64, add)
}

fn djb2_xor(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |hash: u32, byte| hash.wrapping_mul(33) ^ u32::from(*byte))
}

fn java_hash(text: &str) -> i32 {
    text.encode_utf16().fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

fn encode_ascii7(text: &str) -> Result<u64, InputError> {
    if !text.is_ascii() {
        return Err(InputError::NotAscii(text.to_owned()));
    }
    if text.len() > 9 {
        return Err(InputError::TooLong(text.to_owned()));
    }
    let mut word = 0;
    let mut free = u64::BITS;
    for byte in text.bytes() {
        free -= 7;
        word |= u64::from(byte) << free;
    }
    Ok(word | (u64::MAX.unbounded_shr(u64::BITS - free + 1)))
}

fn parse_integer(text: &str, base: u32) -> Result<i128, InputError> {
    if !(2..=36).contains(&base) {
        return Err(InputError::Base(base));
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(base)) {
        return Err(InputError::NotDigits { text: text.to_owned(), base });
    }
    let range = i128::from(i64::MIN)..=i128::from(u64::MAX);
    i128::from_str_radix(text, base)
        .ok()
        .filter(|value| range.contains(value))
        .ok_or_else(|| InputError::Outside64Bits(text.to_owned()))
}
