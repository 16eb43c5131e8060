//! Which events somebody asks for: the query of `/api/v1/events`, read strictly. A parameter that
//! is misspelt would otherwise answer another question than the one that was asked.

use crate::event::{CAPACITY, Event};
use crate::key::Key;

const DEFAULT_LIMIT: usize = 1000;

/// Which events to show.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Only of this server.
    pub server: Option<String>,
    /// Only of locks of this name.
    pub lock: Option<String>,
    /// Only of this key.
    pub key: Option<Key>,
    /// The newest so many.
    pub limit: usize,
}

/// Why a query is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseFilterError {
    /// A name that means nothing here.
    #[error("unknown parameter: use server, lock, key and limit, as in ?lock=billing&limit=100")]
    Unknown,
    /// Which of the two counts?
    #[error("{0} is given twice: give it once")]
    Twice(&'static str),
    /// Not UTF-8, or a stray percent sign.
    #[error("{0} is not percent-encoded UTF-8: write a percent sign as %25")]
    Encoding(&'static str),
    /// No key.
    #[error("key is none: write 42 or (7,9)")]
    Key,
    /// No number, or one that promises too much.
    #[error("limit is not between 1 and {CAPACITY}")]
    Limit,
}

impl Default for Filter {
    fn default() -> Self {
        Self { server: None, lock: None, key: None, limit: DEFAULT_LIMIT }
    }
}

impl Filter {
    /// Reads the part of an address behind the question mark.
    pub fn parse(query: Option<&str>) -> Result<Self, ParseFilterError> {
        let (mut server, mut lock, mut key, mut limit) = (None, None, None, None);
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (name, slot) = match name {
                "server" => ("server", &mut server),
                "lock" => ("lock", &mut lock),
                "key" => ("key", &mut key),
                "limit" => ("limit", &mut limit),
                _ => return Err(ParseFilterError::Unknown),
            };
            let value = parse_percent(value).ok_or(ParseFilterError::Encoding(name))?;
            if slot.replace(value).is_some() {
                return Err(ParseFilterError::Twice(name));
            }
        }
        let key = key.map(|text| text.parse().map_err(|_| ParseFilterError::Key)).transpose()?;
        let limit = match limit {
            None => DEFAULT_LIMIT,
            Some(text) => text
                .parse()
                .ok()
                .filter(|limit| (1..=CAPACITY).contains(limit))
                .ok_or(ParseFilterError::Limit)?,
        };
        Ok(Self { server, lock, key, limit })
    }

    /// Whether it asks for this event of this server.
    pub fn wants(&self, server: &str, event: &Event) -> bool {
        self.wants_server(server)
            && self.lock.as_deref().is_none_or(|lock| event.lock() == Some(lock))
            && self.key.is_none_or(|key| event.key == key)
    }

    /// Whether it asks for any event of this server.
    pub fn wants_server(&self, server: &str) -> bool {
        self.server.as_deref().is_none_or(|wanted| wanted == server)
    }
}

/// A value as forms write it: `+` for a space, `%` and two digits for a byte.
fn parse_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_read_as_forms_write_it() {
        let query = "server=orders%2Dprimary&lock=a+%7C+b&key=(7,9)&limit=5";
        let expected = Filter {
            server: Some("orders-primary".to_owned()),
            lock: Some("a | b".to_owned()),
            key: Some(Key::pair(7, 9)),
            limit: 5,
        };
        assert_eq!(Filter::parse(Some(query)), Ok(expected));
        assert_eq!(Filter::parse(None), Ok(Filter::default()));
        assert_eq!(Filter::parse(Some("&")), Ok(Filter::default()));
    }

    #[test]
    fn a_query_that_is_not_understood_is_refused_and_not_guessed() {
        use ParseFilterError as Error;
        for (query, error) in [
            ("locks=a", Error::Unknown),
            ("LOCK=a", Error::Unknown),
            ("lock=a&lock=a", Error::Twice("lock")),
            ("lock=%", Error::Encoding("lock")),
            ("lock=%e", Error::Encoding("lock")),
            ("lock=%+1", Error::Encoding("lock")),
            ("server=%ff", Error::Encoding("server")),
            ("key=forty-two", Error::Key),
            ("key", Error::Key),
            ("limit=0", Error::Limit),
            ("limit=10001", Error::Limit),
            ("limit=-1", Error::Limit),
            ("limit=", Error::Limit),
        ] {
            assert_eq!(Filter::parse(Some(query)), Err(error), "{query}");
        }
    }
}
