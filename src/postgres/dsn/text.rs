//! The two forms of a connection string, taken apart as libpq takes them apart.
//!
//! Scanned here rather than by the client because an error must say what is wrong without quoting
//! anything that may be a password: it holds positions, and names out of the table of parameters. It
//! knows no meaning of a value; `dsn` does.

use std::collections::BTreeMap;

use super::DsnError;
use super::parameter::known_key;

/// What the string says; of a key said twice the last counts.
pub(super) type Parameters = BTreeMap<&'static str, String>;

pub(super) fn parse_parameters(text: &str) -> Result<Parameters, DsnError> {
    let text = text.trim_matches(is_blank);
    if let Some(at) = text.find('\0') {
        return Err(DsnError::Nul(position(text, at)));
    }
    for scheme in ["postgresql://", "postgres://"] {
        if text.starts_with(scheme) {
            return parse_uri(text, scheme.len());
        }
    }
    parse_pairs(text)
}

/// `conninfo_uri_parse_options` of libpq, stricter only where a delimiter that was not escaped
/// would turn a piece of the password into a host or a database.
fn parse_uri(text: &str, start: usize) -> Result<Parameters, DsnError> {
    let mut said = Parameters::new();
    let mut at = start;
    let user_info_end = text[at..].find(['@', '/']).map(|end| at + end);
    if let Some(end) = user_info_end.filter(|end| text[*end..].starts_with('@')) {
        let info = &text[at..end];
        let (user, password) = info.split_once(':').unwrap_or((info, ""));
        // An @ in a query, as in HOST?password=x@y, passes for user info too.
        if user.contains('?') || info.contains("password=") {
            return Err(DsnError::UserInfo(position(text, end)));
        }
        say(&mut said, "user", percent_decode(text, at, user)?);
        say(&mut said, "password", percent_decode(text, at + user.len() + 1, password)?);
        at = end + 1;
    }
    let query_start = text[at..].find('?').map_or(text.len(), |end| at + end);
    if let Some(stray) = text[at..query_start].find('@') {
        return Err(DsnError::UserInfo(position(text, at + stray)));
    }
    let hosts_end = text[at..query_start].find('/').map_or(query_start, |end| at + end);
    let (mut hosts, mut ports) = (Vec::new(), Vec::new());
    for part in text[at..hosts_end].split(',') {
        let (host, port) = match part.strip_prefix('[') {
            Some(inner) => {
                let (host, rest) = inner
                    .split_once(']')
                    .filter(|(host, rest)| {
                        !host.is_empty() && matches!(rest.as_bytes(), [] | [b':', ..])
                    })
                    .ok_or(DsnError::Bracket(position(text, at)))?;
                (host, rest.strip_prefix(':').unwrap_or(""))
            }
            None => part.split_once(':').unwrap_or((part, "")),
        };
        hosts.push(percent_decode(text, at, host)?);
        ports.push(percent_decode(text, at + part.len() - port.len(), port)?);
        at += part.len() + 1;
    }
    say(&mut said, "host", hosts.join(","));
    say(&mut said, "port", ports.join(","));
    if hosts_end < query_start {
        let dbname = &text[hosts_end + 1..query_start];
        say(&mut said, "dbname", percent_decode(text, hosts_end + 1, dbname)?);
    }
    if query_start < text.len() {
        parse_query(text, query_start + 1, &mut said)?;
    }
    Ok(said)
}

/// An empty part of a URI says nothing, and leaves the word to the service and the environment. An
/// empty value of a key is a value.
fn say(said: &mut Parameters, key: &'static str, value: String) {
    if !value.is_empty() {
        said.insert(key, value);
    }
}

fn parse_query(text: &str, start: usize, said: &mut Parameters) -> Result<(), DsnError> {
    let mut at = start;
    for parameter in text[start..].split('&') {
        // libpq takes a trailing & as well.
        if !parameter.is_empty() || at < text.len() {
            let (key, value) =
                parameter.split_once('=').ok_or(DsnError::NoValue(position(text, at)))?;
            let value_at = at + key.len() + 1;
            if let Some(equals) = value.find('=') {
                return Err(DsnError::ExtraEquals(position(text, value_at + equals)));
            }
            let name = percent_decode(text, at, key)?;
            let value = percent_decode(text, value_at, value)?;
            // The spelling of JDBC, which libpq takes too.
            if name == "ssl" && value == "true" {
                said.insert("sslmode", "require".to_owned());
            } else {
                said.insert(key_at(text, at, &name)?, value);
            }
        }
        at += parameter.len() + 1;
    }
    Ok(())
}

/// `conninfo_parse` of libpq: blanks around `=`, single quotes, backslashes.
fn parse_pairs(text: &str) -> Result<Parameters, DsnError> {
    let mut said = Parameters::new();
    let mut rest = text;
    while !rest.is_empty() {
        let at = text.len() - rest.len();
        let end = rest.find(|c: char| c == '=' || is_blank(c)).unwrap_or(rest.len());
        let (key, tail) = rest.split_at(end);
        // A URI whose scheme is wrong or missing; no key looks like that.
        if at == 0 && key.contains([':', '@', '/']) {
            return Err(if key.contains("://") { DsnError::Scheme } else { DsnError::Form });
        }
        let Some(tail) = tail.trim_start_matches(is_blank).strip_prefix('=') else {
            return Err(if at == 0 && !text.contains('=') {
                DsnError::Form
            } else {
                DsnError::NoValue(position(text, at))
            });
        };
        let key = key_at(text, at, key)?;
        let (value, tail) = parse_value(text, tail.trim_start_matches(is_blank))?;
        said.insert(key, value);
        rest = tail.trim_start_matches(is_blank);
    }
    Ok(said)
}

/// The value at the start of `rest`, and what follows it.
fn parse_value<'a>(text: &str, rest: &'a str) -> Result<(String, &'a str), DsnError> {
    let quoted = rest.starts_with('\'');
    let mut value = String::new();
    let mut chars = rest.char_indices().skip(usize::from(quoted));
    while let Some((index, c)) = chars.next() {
        match c {
            '\\' => value.extend(chars.next().map(|(_, escaped)| escaped)),
            '\'' if quoted => return Ok((value, &rest[index + 1..])),
            c if !quoted && is_blank(c) => return Ok((value, &rest[index..])),
            c => value.push(c),
        }
    }
    if quoted {
        return Err(DsnError::UnterminatedQuote(position(text, text.len() - rest.len())));
    }
    Ok((value, ""))
}

/// What C takes for a blank. Others, such as one that does not break, may be a piece of a password.
fn is_blank(c: char) -> bool {
    matches!(c, ' ' | '\t'..='\r')
}

fn key_at(text: &str, at: usize, name: &str) -> Result<&'static str, DsnError> {
    known_key(name).map_err(|refused| match refused {
        Some(key) => DsnError::Unsupported(key),
        None => DsnError::UnknownKey(position(text, at)),
    })
}

/// Decodes `part`, which begins at byte `at` of `text`.
fn percent_decode(text: &str, at: usize, part: &str) -> Result<String, DsnError> {
    let mut decoded = Vec::with_capacity(part.len());
    let mut bytes = part.bytes().enumerate();
    while let Some((index, byte)) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let digits = part
            .get(index + 1..index + 3)
            .filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            None | Some(0) => return Err(DsnError::Escape(position(text, at + index))),
            Some(byte) => decoded.push(byte),
        }
        bytes.nth(1);
    }
    String::from_utf8(decoded).map_err(|_| DsnError::NotUtf8(position(text, at)))
}

/// The character at a byte offset, counted from 1 as people do.
fn position(text: &str, at: usize) -> usize {
    text[..at].chars().count() + 1
}
