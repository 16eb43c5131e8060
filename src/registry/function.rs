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
            Self::Crc32 => Output::word(CRC_32.checksum(input), 32),
            Self::Fnv1_32 => Output::word(fnv1_32(input), 32),
            Self::Fnv1a32 => Output::word(fnv1a_32(input), 32),
            Self::Fnv1_64 => Output::word(fnv1_64(input), 64),
            Self::Fnv1a64 => Output::word(fnv1a_64(input), 64),
            Self::Crc64Ecma => Output::word(CRC_64.checksum(input), 64),
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

static CRC_32: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);
static CRC_64: Crc<u64> = Crc::<u64>::new(&CRC_64_XZ);

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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn word(function: &Function, input: &str) -> i128 {
        match function.apply(input.as_bytes()).unwrap() {
            Output::Word(word) => word.value,
            Output::Bytes(bytes) => panic!("{} gave {bytes:?}", function.as_str()),
        }
    }

    fn bytes(function: &Function, input: &str) -> Vec<u8> {
        match function.apply(input.as_bytes()).unwrap() {
            Output::Bytes(bytes) => bytes,
            Output::Word(word) => panic!("{} gave {word:?}", function.as_str()),
        }
    }

    fn big_endian(function: &Function, input: &str) -> i64 {
        i64::from_be_bytes(bytes(function, input)[..8].try_into().unwrap())
    }

    fn little_endian(function: &Function, input: &str) -> i64 {
        i64::from_le_bytes(bytes(function, input)[..8].try_into().unwrap())
    }

    /// Every function, with some parameters.
    fn all() -> Vec<Function> {
        vec![
            Function::Md5,
            Function::Sha1,
            Function::Sha224,
            Function::Sha256,
            Function::Sha384,
            Function::Sha512,
            Function::HkdfSha256 { info: vec![], salt: vec![] },
            Function::Uuid5 { namespace: [0; 16] },
            Function::Uuid,
            Function::Hex,
            Function::Crc32,
            Function::Fnv1_32,
            Function::Fnv1a32,
            Function::Fnv1_64,
            Function::Fnv1a64,
            Function::Crc64Ecma,
            Function::Djb2Xor,
            Function::Ascii7,
            Function::Phash2,
            Function::Hashtext,
            Function::Hashtextextended { seed: 0 },
            Function::JavaHash,
            Function::Integer { base: 10 },
        ]
    }

    #[test]
    fn crc32_is_that_of_the_tools() {
        assert_eq!(word(&Function::Crc32, "mydb"), 285_543_882);
        assert_eq!(word(&Function::Crc32, "mydb") * 2_053_462_845, 586_353_752_304_064_290); // Rails
        assert_eq!(word(&Function::Crc32, "pdf-creation"), 572_123_647); // Symfony Lock
        assert_eq!(word(&Function::Crc32, "build-reaper"), 997_540_461); // Concourse
        assert_eq!(word(&Function::Crc32, "task_manager_lock"), 1_226_251_610); // django-pglocks
        assert_eq!(word(&Function::Crc32, "my_lock") & 0x7fff_ffff, 1_202_238_042); // with_advisory_lock
        assert_eq!(word(&Function::Crc32, "workflow_manager_lock"), 1_121_753_405); // AWX
        assert_eq!(word(&Function::Crc32, "mydb") * 0x3d32_ad9e, 293_176_876_009_260_204); // sqlx
        assert_eq!(word(&Function::Crc32, "grafana") * 1_486_364_155 % (1 << 32), 4_004_004_031);
        // golang-migrate, whose test this is.
        let golang_migrate = word(&Function::Crc32, "schema_name_1\0schema_name_2\0database_name");
        assert_eq!(golang_migrate * 1_486_364_155 % (1 << 32), 3_743_845_847);
    }

    #[test]
    fn crc64_is_that_of_goose() {
        assert_eq!(word(&Function::Crc64Ecma, "goose"), 5_887_940_537_704_921_958);
    }

    #[test]
    fn fnv_is_that_of_the_tools_and_of_its_authors() {
        assert_eq!(word(&Function::Fnv1_32, "atlas_migrate_execute"), 2_686_470_616);
        assert_eq!(word(&Function::Fnv1_32, "atlas_migrate_diff"), 361_947_982);
        assert_eq!(word(&Function::Fnv1_32, "schema_migrations:migrations"), 1_308_612_253);
        let sourcegraph = word(&Function::Fnv1_32, "example-namespace");
        assert_eq!(sourcegraph - (1 << 32), -1_833_924_545);
        assert_eq!(word(&Function::Fnv1_64, "example-lock"), 12_301_177_983_736_763_523); // Coder
        assert_eq!(word(&Function::Fnv1_64, "some content for hashing purposes"), {
            1_854_036_014_321_452_184 // River
        });
        // From the tables of draft-eastlake-fnv.
        assert_eq!(word(&Function::Fnv1_32, "foobar"), 0x31f0_b262);
        assert_eq!(word(&Function::Fnv1a32, "foobar"), 0xbf9c_f968);
        assert_eq!(word(&Function::Fnv1_64, "foobar"), 0x340d_8765_a4dd_a9c2);
        assert_eq!(word(&Function::Fnv1a64, "foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(word(&Function::Fnv1a32, ""), 0x811c_9dc5);
        assert_eq!(word(&Function::Fnv1a64, ""), 0xcbf2_9ce4_8422_2325);
    }

    #[test]
    fn djb2_xor_is_that_of_infisical() {
        let hash = word(&Function::Djb2Xor, "create-project:6f1c2d3e");
        let signed = u32::try_from(hash).unwrap().cast_signed();
        assert_eq!(signed.unsigned_abs(), 1_695_283_356);
    }

    #[test]
    fn java_hash_is_of_utf16_and_signed() {
        assert_eq!(word(&Function::JavaHash, "public"), -977_423_767);
        assert_eq!(word(&Function::JavaHash, "databasechangeloglock"), -1_497_367_772);
        let flyway = word(&Function::JavaHash, "\"app\".\"flyway_schema_history\"");
        assert_eq!(77_431_708_279_161 + flyway, 77_431_436_970_681);
        let flyway = word(&Function::JavaHash, "\"public\".\"flyway_schema_history\"");
        assert_eq!(77_431_708_279_161 + flyway, 77_433_833_903_597);
        assert_eq!(word(&Function::JavaHash, "🔒"), 31 * 0xd83d + 0xdd12);
    }

    #[test]
    fn phash2_is_that_of_ecto_and_oban() {
        assert_eq!(word(&Function::Phash2, "\"public\""), 46_515_530);
        assert_eq!(word(&Function::Phash2, "{:ecto, nil, MyApp.Repo}"), 41_811_489);
        assert_eq!(word(&Function::Phash2, "{:ecto, \"tenant_a\", MyApp.Repo}"), 17_122_987);
    }

    #[test]
    fn hashes_of_the_server_are_signed_and_take_a_seed() {
        assert_eq!(word(&Function::Hashtext, "orders"), 1_108_812_256);
        assert_eq!(word(&Function::Hashtext, ""), -1_477_818_771);
        assert_eq!(word(&Function::Hashtext, "pgmq.queue_orders"), 20_675_298);
        assert_eq!(word(&Function::Hashtext, "alembic"), -441_799_288);
        assert_eq!(word(&Function::Hashtext, "pg_backup"), -1_010_065_801); // wal-g
        assert_eq!(word(&Function::Hashtext, "pg_partman run_maintenance"), -988_976_779);
        assert_eq!(word(&Function::Hashtext, "240637210313170947"), -199_031_220); // Zitadel
        // TimescaleDB takes the same bits as unsigned.
        let unsigned = word(&Function::Hashtext, "example_wait_point").rem_euclid(1 << 32);
        assert_eq!(unsigned, 3_800_296_957);
        let seed = |seed| Function::Hashtextextended { seed };
        assert_eq!(word(&seed(0), "a"), 3_591_986_179_850_072_241);
        assert_eq!(word(&seed(-1), "t"), -2_406_718_962_056_194_024);
    }

    #[test]
    fn md5_and_sha_are_those_of_the_tools() {
        let job = "good_jobs-3f0d0c6e-7b0a-4a58-9a3e-0e5b0f4c2a11";
        assert_eq!(big_endian(&Function::Md5, job), 422_608_320_970_316_224);
        assert_eq!(big_endian(&Function::Md5, "account"), -2_132_379_389_342_958_165);
        assert_eq!(big_endian(&Function::Md5, "mydb.pgboss.pgboss"), -7_239_720_673_577_547_872);
        assert_eq!(big_endian(&Function::Sha224, "mydb.pgboss.pgboss"), 8_820_760_855_626_851_337);
        assert_eq!(big_endian(&Function::Sha256, job), -4_879_616_444_660_495_535);
        assert_eq!(little_endian(&Function::Sha256, "my_lock"), -7_326_441_835_665_241_985);
        assert_eq!(
            little_endian(&Function::Sha1, "some very long name"),
            1_765_484_347_666_752_899
        );
        let oca = "import_record(prestashop.backend, 1, prestashop.res.partner.category, 12)";
        assert_eq!(little_endian(&Function::Sha1, oca), 7_486_222_466_910_811_147);
        // dramatiq-pg: bytes 12 to 19, minus 2^63.
        let digest = bytes(&Function::Sha256, "default3f0d0c6e-7b0a-4a58-9a3e-0e5b0f4c2a11");
        let middle = u64::from_be_bytes(digest[12..20].try_into().unwrap());
        assert_eq!(i128::from(middle) - (1 << 63), -7_102_997_049_612_220_098);
        // FIPS 180-4.
        assert_eq!(bytes(&Function::Sha384, "abc")[..4], [0xcb, 0x00, 0x75, 0x3f]);
        assert_eq!(bytes(&Function::Sha512, "abc")[..4], [0xdd, 0xaf, 0x35, 0xa1]);
    }

    #[test]
    fn hkdf_is_that_of_sqlx_and_takes_a_salt() {
        let info = b"SQLx (Rust) Postgres advisory lock".to_vec();
        let sqlx = Function::HkdfSha256 { info, salt: vec![] };
        assert_eq!(little_endian(&sqlx, "my first Postgres advisory lock!"), {
            -5_560_419_505_042_474_287
        });
        // Test case 1 of RFC 5869.
        let salted =
            Function::HkdfSha256 { info: (0xf0..=0xf9).collect(), salt: (0x00..=0x0c).collect() };
        let output = salted.apply(&[0x0b; 22]).unwrap();
        let Output::Bytes(output) = output else { panic!("{output:?}") };
        assert_eq!(output.len(), 32);
        assert_eq!(output[..8], [0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a]);
    }

    #[test]
    fn uuid5_is_that_of_good_job() {
        let dns = Function::Uuid5 { namespace: parse_namespace("dns").unwrap() };
        let job = "good_jobs-3f0d0c6e-7b0a-4a58-9a3e-0e5b0f4c2a11";
        assert_eq!(big_endian(&dns, job), 1_273_536_194_355_024_915);
        // From RFC 9562.
        let uuid = parse_uuid("2ed6657d-e927-568b-95e1-2665a8aea6a2").unwrap();
        assert_eq!(bytes(&dns, "www.example.com"), uuid);
    }

    #[test]
    fn uuids_are_read_in_their_usual_spellings() {
        let uuid = bytes(&Function::Uuid, "018f9f3c-6d7e-7b42-9a55-1c2d3e4f5a6b");
        let half =
            |range: std::ops::Range<usize>| u64::from_be_bytes(uuid[range].try_into().unwrap());
        // Pulp folds the halves.
        assert_eq!((half(0..8) ^ half(8..16)) & (u64::MAX >> 1), 2_007_060_694_380_388_649);
        assert_eq!(bytes(&Function::Uuid, "018F9F3C6D7E7B429A551C2D3E4F5A6B"), uuid);
        for broken in [
            "",
            "018f9f3c-6d7e-7b42-9a55-1c2d3e4f5a6",
            "018f9f3c6d7e-7b42-9a55-1c2d3e4f5a6b",
            "018f9f3c-6d7e-7b42-9a55-1c2d3e4f5a6g",
            "+18f9f3c6d7e7b429a551c2d3e4f5a6b",
            "{018f9f3c-6d7e-7b42-9a55-1c2d3e4f5a6b}",
        ] {
            assert_eq!(parse_uuid(broken), None, "{broken}");
            assert_eq!(
                Function::Uuid.apply(broken.as_bytes()),
                Err(InputError::NotUuid(broken.to_owned()))
            );
        }
    }

    #[test]
    fn namespaces_are_known_by_word_or_uuid() {
        let namespaces = ["dns", "url", "oid", "x500"].map(|word| parse_namespace(word).unwrap());
        let last_of_first_group = namespaces.map(|namespace| namespace[3]);
        assert_eq!(last_of_first_group, [0x10, 0x11, 0x12, 0x14]);
        assert_eq!(parse_namespace("6ba7b810-9dad-11d1-80b4-00c04fd430c8"), Some(namespaces[0]));
        assert_eq!(parse_namespace("DNS"), None);
    }

    #[test]
    fn hex_writes_lower_case_digits() {
        assert_eq!(bytes(&Function::Hex, "\0\x0f~é"), b"000f7ec3a9");
        // closure_tree: 33 digits of a SHA-1.
        let digest = bytes(&Function::Sha1, "ClosureTree::Category");
        let Output::Bytes(digits) = Function::Hex.apply(&digest).unwrap() else { panic!() };
        let Output::Word(crc) = Function::Crc32.apply(&digits[..33]).unwrap() else { panic!() };
        assert_eq!(crc.value & 0x7fff_ffff, 433_585_466);
    }

    #[test]
    fn integers_are_read_in_their_base_up_to_64_bits() {
        let hexadecimal = Function::Integer { base: 16 };
        assert_eq!(word(&hexadecimal, "00000000000000ff"), 255);
        assert_eq!(word(&hexadecimal, "FFFFFFFFFFFFFFFF"), i128::from(u64::MAX));
        let decimal = Function::Integer { base: 10 };
        assert_eq!(word(&decimal, "-9223372036854775808"), i128::from(i64::MIN));
        for outside in ["18446744073709551616", "-9223372036854775809", &"9".repeat(60)] {
            assert_eq!(
                decimal.apply(outside.as_bytes()),
                Err(InputError::Outside64Bits(outside.to_owned()))
            );
        }
        for broken in ["", "-", "+1", "1_000", "1.5", " 1", "ff", "--1"] {
            assert_eq!(
                decimal.apply(broken.as_bytes()),
                Err(InputError::NotDigits { text: broken.to_owned(), base: 10 })
            );
        }
        for base in [0, 1, 37] {
            assert_eq!(Function::Integer { base }.apply(b"1"), Err(InputError::Base(base)));
        }
    }

    #[test]
    fn ascii7_is_that_of_distributed_lock() {
        let pair = |name: &str| {
            let word = u64::try_from(word(&Function::Ascii7, name)).unwrap();
            let [high, low] = [word >> 32, word & 0xffff_ffff];
            [high, low].map(|half| u32::try_from(half).unwrap().cast_signed())
        };
        assert_eq!(pair("jobs"), [-708_896_969, -1]);
        assert_eq!(pair("my-lock"), [-605_720_883, -118_112_257]);
        assert_eq!(pair(""), [i32::MAX, -1]);
        assert_eq!(decode_ascii7(u64::MAX >> 1).as_deref(), Some(""));
    }

    #[test]
    fn ascii7_has_room_for_nine_ascii_characters() {
        assert!(Function::Ascii7.apply(b"nine char").is_ok());
        assert_eq!(Function::Ascii7.apply(b"ten chars!"), {
            Err(InputError::TooLong("ten chars!".to_owned()))
        });
        assert_eq!(Function::Ascii7.apply("é".as_bytes()), {
            Err(InputError::NotAscii("é".to_owned()))
        });
    }

    #[test]
    fn words_that_no_name_was_packed_into_decode_to_nothing() {
        assert_eq!(decode_ascii7(u64::MAX), None); // no 0 before the 1s
        assert_eq!(decode_ascii7(0), None); // nine NULs
        assert_eq!(decode_ascii7(42), None);
        assert_eq!(decode_ascii7(u64::MAX >> 2), None); // one bit is no character
        assert_eq!(decode_ascii7((0x7f << 57) | (u64::MAX >> 8)), None); // DEL
        assert_eq!(decode_ascii7((0x1f << 57) | (u64::MAX >> 8)), None);
    }

    #[test]
    fn text_functions_refuse_other_bytes() {
        for function in all() {
            let takes_text = matches!(
                function,
                Function::Uuid
                    | Function::Ascii7
                    | Function::Phash2
                    | Function::JavaHash
                    | Function::Integer { .. }
            );
            let refused = Err(InputError::NotText { function: function.as_str() });
            assert_eq!(function.apply(b"\xff") == refused, takes_text, "{}", function.as_str());
        }
        assert_eq!(
            Function::JavaHash.apply(b"\xff").unwrap_err().to_string(),
            "java_hash takes text, and its input is not valid UTF-8: leave its encoding out, or \
             write the bytes of an inner hash as text with hex"
        );
    }

    #[test]
    fn only_the_server_refuses_nul() {
        for function in all().iter().filter(|function| function.hashes_database_text()) {
            let refused = Err(InputError::Nul { function: function.as_str() });
            assert_eq!(function.apply(b"a\0b"), refused);
        }
        assert!(Function::Crc32.apply(b"a\0b").is_ok());
    }

    #[test]
    fn a_broken_term_is_refused_with_its_mend() {
        assert_eq!(
            Function::Phash2.apply(b"public").unwrap_err().to_string(),
            "phash2 takes an Elixir term as inspect prints it: public alone is not a term: \
             write \"\\\"public\\\"\" for a string or \":public\" for an atom"
        );
    }

    #[test]
    fn what_a_function_gives_is_known_beforehand() {
        for function in all() {
            let inputs = ["1", "018f9f3c6d7e7b429a551c2d3e4f5a6b"];
            let input = inputs[usize::from(function == Function::Uuid)];
            let output = function.apply(input.as_bytes()).unwrap();
            let gives_bytes = matches!(output, Output::Bytes(_));
            assert_eq!(function.gives_bytes(), gives_bytes, "{}", function.as_str());
        }
    }

    #[test]
    fn every_function_has_a_word_of_its_own() {
        let words: std::collections::BTreeSet<_> = all().iter().map(Function::as_str).collect();
        assert_eq!(words.len(), all().len());
        let words_of_server: Vec<_> = all()
            .iter()
            .filter(|function| function.hashes_database_text())
            .map(Function::as_str)
            .collect();
        assert_eq!(words_of_server, ["hashtext", "hashtextextended"]);
    }

    proptest! {
        #[test]
        fn packed_names_are_decoded(name in "[ -~]{0,9}") {
            let word = u64::try_from(word(&Function::Ascii7, &name)).unwrap();
            prop_assert_eq!(decode_ascii7(word), Some(name));
        }

        #[test]
        fn what_is_decoded_packs_to_the_same_word(
            characters in proptest::collection::vec(0_u64..0x80, 0..=9),
            noise in 0_u64..4,
        ) {
            let packed = characters.iter().rev().fold(u64::MAX >> 1, |word, c| (c << 57) | (word >> 7));
            let word = packed ^ noise;
            if let Some(name) = decode_ascii7(word) {
                prop_assert_eq!(self::word(&Function::Ascii7, &name), i128::from(word));
            }
        }

        #[test]
        fn words_are_within_their_bits(input in "\\PC{0,40}") {
            for function in all() {
                let Ok(Output::Word(word)) = function.apply(input.as_bytes()) else { continue };
                prop_assert!(matches!(word.bits, 32 | 64));
                let range = -(1_i128 << (word.bits - 1))..1 << word.bits;
                prop_assert!(range.contains(&word.value), "{} {word:?}", function.as_str());
            }
        }
    }
}
