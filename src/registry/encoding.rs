//! Texts as the bytes of an encoding, so that a hash is of the bytes that the server or the
//! application hashes.
//!
//! The tables are those of `encoding_rs`, which are made for the web: where the server's differ, a
//! character is written as the server does or not at all, for a key of other bytes names another
//! lock. What is done with the bytes is decided in `function.rs`; which database has which encoding
//! is not known here.

use encoding_rs as whatwg;

/// How characters are written as bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// The default everywhere.
    Utf8,
    /// Of Java, .NET and Windows, low byte first.
    Utf16Le,
    /// The same, high byte first.
    Utf16Be,
    /// ISO 8859-1. The web calls windows-1252 so, which differs in 0x80 to 0x9f.
    Latin1,
    /// ISO 8859-9. The web calls windows-1254 so, which differs in 0x80 to 0x9f.
    Latin5,
    /// One that the web has too.
    Other(WebEncoding),
}

/// An encoding of the server of which it is known where the web's differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WebEncoding(&'static whatwg::Encoding);

impl Encoding {
    /// By the server's name for it, that of `pg_encoding_to_char`. `None` for those that cannot be
    /// written here, SQL_ASCII among them: in all of the server's encodings ASCII is ASCII, but
    /// nothing is known of other characters.
    pub fn of_server(name: &str) -> Option<Self> {
        let web = match name {
            "UTF8" => return Some(Self::Utf8),
            "LATIN1" => return Some(Self::Latin1),
            "LATIN2" => whatwg::ISO_8859_2,
            "LATIN3" => whatwg::ISO_8859_3,
            "LATIN4" => whatwg::ISO_8859_4,
            "LATIN5" => return Some(Self::Latin5),
            "LATIN6" => whatwg::ISO_8859_10,
            "LATIN7" => whatwg::ISO_8859_13,
            "LATIN8" => whatwg::ISO_8859_14,
            "LATIN9" => whatwg::ISO_8859_15,
            "LATIN10" => whatwg::ISO_8859_16,
            "ISO_8859_5" => whatwg::ISO_8859_5,
            "ISO_8859_6" => whatwg::ISO_8859_6,
            "ISO_8859_7" => whatwg::ISO_8859_7,
            "ISO_8859_8" => whatwg::ISO_8859_8,
            "KOI8R" => whatwg::KOI8_R,
            "KOI8U" => whatwg::KOI8_U,
            "WIN866" => whatwg::IBM866,
            "WIN874" => whatwg::WINDOWS_874,
            "WIN1250" => whatwg::WINDOWS_1250,
            "WIN1251" => whatwg::WINDOWS_1251,
            "WIN1252" => whatwg::WINDOWS_1252,
            "WIN1253" => whatwg::WINDOWS_1253,
            "WIN1254" => whatwg::WINDOWS_1254,
            "WIN1255" => whatwg::WINDOWS_1255,
            "WIN1256" => whatwg::WINDOWS_1256,
            "WIN1257" => whatwg::WINDOWS_1257,
            "WIN1258" => whatwg::WINDOWS_1258,
            "EUC_CN" => whatwg::GBK,
            "EUC_JP" => whatwg::EUC_JP,
            "EUC_KR" => whatwg::EUC_KR,
            _ => return None,
        };
        Some(Self::Other(WebEncoding(web)))
    }

    /// By a name that a registry file gives it: `utf-8`, `utf-16le`, `utf-16be`, `latin1`, or the
    /// server's, in any case.
    pub fn of_user(word: &str) -> Option<Self> {
        match word.to_ascii_lowercase().as_str() {
            "utf-8" => Some(Self::Utf8),
            "utf-16le" => Some(Self::Utf16Le),
            "utf-16be" => Some(Self::Utf16Be),
            lower => Self::of_server(&lower.to_ascii_uppercase()),
        }
    }

    /// The bytes of a text. `None`: a character has no place in the encoding.
    pub fn encode(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::Utf8 => Some(text.as_bytes().to_vec()),
            Self::Utf16Le => Some(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Self::Utf16Be => Some(text.encode_utf16().flat_map(u16::to_be_bytes).collect()),
            Self::Latin1 => text.chars().map(|c| u8::try_from(c).ok()).collect(),
            Self::Latin5 => text.chars().map(latin5).collect(),
            Self::Other(WebEncoding(encoding)) => encode_as_server(encoding, text),
        }
    }
}

/// ISO 8859-9 is ISO 8859-1 with Turkish letters in the place of Icelandic ones.
fn latin5(character: char) -> Option<u8> {
    match character {
        'Ğ' => Some(0xd0),
        'İ' => Some(0xdd),
        'Ş' => Some(0xde),
        'ğ' => Some(0xf0),
        'ı' => Some(0xfd),
        'ş' => Some(0xfe),
        'Ð' | 'Ý' | 'Þ' | 'ð' | 'ý' | 'þ' => None,
        character => u8::try_from(character).ok(),
    }
}

/// Character by character, which these encodings without states allow.
fn encode_as_server(encoding: &'static whatwg::Encoding, text: &str) -> Option<Vec<u8>> {
    let mut encoded = Vec::with_capacity(text.len());
    let mut utf8 = [0; 4];
    for character in text.chars() {
        // What has no place becomes `&#…;`, with an error.
        let (bytes, _, had_errors) = encoding.encode(character.encode_utf8(&mut utf8));
        if had_errors || !server_agrees(encoding, character, &bytes) {
            return None;
        }
        encoded.extend_from_slice(&bytes);
    }
    Some(encoded)
}

/// Whether the server writes a character as the web does, that is, with `bytes`.
fn server_agrees(encoding: &'static whatwg::Encoding, character: char, bytes: &[u8]) -> bool {
    if character.is_ascii() {
        true
    } else if encoding == whatwg::GBK {
        // The web's is GBK, which adds hanzi in lower bytes and other characters in free places.
        bytes.iter().all(|byte| *byte >= 0xa1) && bytes[0] <= 0xf7 && !is_added_by_gbk(character)
    } else if encoding == whatwg::EUC_JP {
        // The web's has IBM's kanji in the last rows, and writes a yen sign as a backslash.
        bytes[0] < 0xf5 && !matches!(character, '¥' | '‾' | '−')
    } else if encoding == whatwg::EUC_KR {
        // The web's is code page 949, which adds hangul in lower bytes.
        bytes.iter().all(|byte| *byte >= 0xa1)
    } else if encoding == whatwg::KOI8_U {
        // The web's is KOI8-RU, with Belarusian letters in the place of lines.
        !matches!(character, 'Ў' | 'ў')
    } else if encoding == whatwg::WINDOWS_1255 && character == '\u{5ba}' {
        false
    } else {
        // The web's windows code pages have control characters where nothing is assigned.
        !(encoding.name().starts_with("windows-") && character.is_control())
    }
}

fn is_added_by_gbk(character: char) -> bool {
    matches!(
        character,
        '·' | '—' | 'ń' | 'ň' | 'ǹ' | 'ɑ' | 'ɡ' | 'ḿ' | 'ⅰ'..='ⅹ'
            | '\u{e000}'..='\u{f8ff}' // for private use
            | '\u{fe10}'..='\u{fe44}' // vertical forms
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;

    use md5::{Digest, Md5};

    /// On PostgreSQL 15, for every `n` from 1 to 65535 that the encoding has a character of:
    /// `md5(string_agg(format('%s %s', n, encode(convert_to(chr(n), encoding), 'hex')), ','
    /// ORDER BY n))`. No `n` is above 12287.
    const SERVER_TABLES: [(&str, &str); 26] = [
        ("LATIN1", "2cba94ac02213f2f5703110b976e08f8"),
        ("LATIN2", "bfbeed731ec2f6ed59d3d08c82ab8ba6"),
        ("LATIN3", "dd7cb3502a401b0f18e4d3cc5979a247"),
        ("LATIN4", "4e55d4048556248933b31318328b5c77"),
        ("LATIN5", "0ebbecb25e33eb378aeea3b812c04485"),
        ("LATIN6", "04d1c208cfe81b472b30c9209019c649"),
        ("LATIN7", "5b287c35705fecc5537e6790e778f11f"),
        ("LATIN8", "ce3d902e1ce303f978a6f73d2f59bdc4"),
        ("LATIN9", "3e0d9f0c343c7070f858e4cac8254b26"),
        ("LATIN10", "9f4f2427d933c3dab09c50399ec09c77"),
        ("ISO_8859_5", "31af787e60c9847ff5b3f10920656cab"),
        ("ISO_8859_6", "d509403ad4428897dee0451da4fa6aeb"),
        ("ISO_8859_7", "106387a78f94f5998401e84e4b03982c"),
        ("ISO_8859_8", "48f21e10abbffcaa190f8e1d5df03f5c"),
        ("KOI8R", "70fd5b7f75fb4c33f85ed902569e4d63"),
        ("WIN866", "37734de98caaea8a7c67b2190e5ecb3b"),
        ("WIN874", "18ec78a4e5be2d8946f13d5d74c07c30"),
        ("WIN1250", "2cadb272b3842d7af8059ffd7e7acbfd"),
        ("WIN1251", "2774cfa5a47344812daf5e1993832285"),
        ("WIN1252", "e7bdc80d525a874dd1e1a3defa1d83ad"),
        ("WIN1253", "c09d10c6678cddc7b7f0f35611424ba4"),
        ("WIN1254", "1984e7063e120fa91452ec70789821ce"),
        ("WIN1255", "1289796bdb28ffc683283054a8205d4f"),
        ("WIN1256", "ac73660568562e762ddf3ec2e4b18a39"),
        ("WIN1257", "1d8f9dfe76671156b9ed57f4d66baac6"),
        ("WIN1258", "97c2a623444153826a957d364dc4ff19"),
    ];

    /// `encode(convert_to(text, encoding), 'hex')` on the same server.
    const SERVER_TEXTS: [(&str, &str, &str); 6] = [
        ("EUC_JP", "ロック錠ﾛ、", "a5eda5c3a5afbefb8edba1a2"),
        ("EUC_JP", "夜間バッチ", "ccebb4d6a5d0a5c3a5c1"),
        ("EUC_KR", "잠금 庫①", "c0e1b1dd20cdb7a8e7"),
        ("EUC_CN", "每晚结算。", "c3bfcdedbde1cbe3a1a3"),
        ("EUC_CN", "数据库Ⅷ→", "cafdbeddbfe2a2f8a1fa"),
        ("KOI8U", "Київ, ґанок", "ebc9a7d72c20adc1cecfcb"),
    ];

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    fn encode(encoding: &str, text: &str) -> Option<Vec<u8>> {
        Encoding::of_server(encoding).unwrap().encode(text)
    }

    #[test]
    fn single_bytes_are_those_of_the_server() {
        for (name, digest) in SERVER_TABLES {
            let encoding = Encoding::of_server(name).unwrap();
            let lines: Vec<_> = ('\u{1}'..='\u{2fff}')
                .filter_map(|character| {
                    let bytes = encoding.encode(character.encode_utf8(&mut [0; 4]))?;
                    Some(format!("{} {}", u32::from(character), hex(&bytes)))
                })
                .collect();
            assert_eq!(hex(&Md5::digest(lines.join(","))), digest, "{name}");
        }
    }

    #[test]
    fn texts_in_east_asian_and_ukrainian_encodings_are_those_of_the_server() {
        for (name, text, bytes) in SERVER_TEXTS {
            assert_eq!(encode(name, text).as_deref().map(hex).as_deref(), Some(bytes), "{name}");
        }
    }

    #[test]
    fn characters_that_the_server_writes_in_another_way_or_not_at_all_are_refused() {
        for (name, characters) in [
            ("EUC_CN", "·—ń龜€ⅰ\u{e000}\u{fe10}"),
            ("EUC_JP", "¥‾−仡éⅰ"),
            ("EUC_KR", "갂é"),
            ("KOI8U", "Ўў╬"),
            ("WIN1255", "\u{5ba}"),
            ("WIN1252", "\u{81}\u{90}"),
            ("LATIN1", "€Ā"),
            ("LATIN5", "Ýþ€"),
        ] {
            for character in characters.chars() {
                assert_eq!(encode(name, &format!("a{character}")), None, "{name} {character:?}");
            }
        }
    }

    #[test]
    fn ascii_is_ascii_in_every_encoding_of_the_server() {
        let ascii: String = ('\0'..='\x7f').collect();
        let names = SERVER_TABLES.iter().map(|(name, _)| *name);
        for name in names.chain(["UTF8", "EUC_CN", "EUC_JP", "EUC_KR", "KOI8U"]) {
            assert_eq!(encode(name, &ascii).as_deref(), Some(ascii.as_bytes()), "{name}");
        }
    }

    #[test]
    fn utf16_has_both_orders_and_no_mark() {
        assert_eq!(Encoding::Utf16Le.encode("a🔒").unwrap(), *b"a\0\x3d\xd8\x12\xdd");
        assert_eq!(Encoding::Utf16Be.encode("a🔒").unwrap(), *b"\0a\xd8\x3d\xdd\x12");
        assert_eq!(Encoding::Utf8.encode("é").unwrap(), *b"\xc3\xa9");
    }

    #[test]
    fn encodings_are_known_by_the_words_of_the_language_and_the_names_of_the_server() {
        assert_eq!(Encoding::of_user("UTF-8"), Some(Encoding::Utf8));
        assert_eq!(Encoding::of_user("utf8"), Some(Encoding::Utf8));
        assert_eq!(Encoding::of_user("utf-16LE"), Some(Encoding::Utf16Le));
        assert_eq!(Encoding::of_user("utf-16be"), Some(Encoding::Utf16Be));
        assert_eq!(Encoding::of_user("latin1"), Some(Encoding::Latin1));
        assert_eq!(Encoding::of_user("win1252"), Encoding::of_server("WIN1252"));
        assert_eq!(Encoding::of_user("utf-16"), None);
        for unknown in ["SQL_ASCII", "MULE_INTERNAL", "EUC_TW", "EUC_JIS_2004", "utf8", ""] {
            assert_eq!(Encoding::of_server(unknown), None, "{unknown}");
        }
    }
}
