//! Elixir terms as `inspect` prints them: `{:ecto, "tenant_a", MyApp.Repo}`.
//!
//! Read is what tools make lock keys of: binaries, atoms, modules, integers, and tuples of them.
//! Text is taken as Elixir would or not at all, for another term is another key. What a term is
//! hashed to is decided in `phash2.rs`.

/// Deeper tuples are refused: nobody wrote them.
const MAX_DEPTH: usize = 32;

/// An Elixir term that can be hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Term {
    /// By its full name: `nil`, `Elixir.MyApp.Repo`.
    Atom(String),
    Integer(i128),
    /// A string.
    Binary(String),
    Tuple(Vec<Term>),
}

/// Why a text is not an Elixir term that can be hashed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TermError {
    /// Neither an atom nor a binary, as it stands.
    #[error(
        "{word} alone is not a term: write \"\\\"{word}\\\"\" for a string or \":{word}\" for an atom"
    )]
    BareWord {
        /// As it was written.
        word: String,
    },
    /// A term of a kind that is not read here, or none at all.
    #[error(
        "{rest:?} begins no term that is read here: write a string, an atom, a module, an integer \
         or a tuple of them"
    )]
    Unknown {
        /// From where it is not understood, to the end.
        rest: String,
    },
    /// More text after a whole term.
    #[error("{rest:?} is left over after the term: write one term, several as a tuple")]
    LeftOver {
        /// All of it.
        rest: String,
    },
    /// A tuple with something else between its elements, or without an end.
    #[error("{rest:?} continues no tuple: write a comma between elements and a brace at the end")]
    BrokenTuple {
        /// From where a comma or brace should be, to the end.
        rest: String,
    },
    /// A string without an end.
    #[error("the string {rest:?} has no end: close it with a quote")]
    OpenString {
        /// From its beginning, to the end.
        rest: String,
    },
    /// A backslash before a letter that Elixir does not print there.
    #[error("\\{letter} is not read here: write the character itself, or \\u{{…}} with its number")]
    Escape {
        /// What follows the backslash.
        letter: char,
    },
    /// `\u` without the number of a character.
    #[error(
        "\\u stands before four hexadecimal digits or up to six in braces, the number of a character"
    )]
    CodePoint,
    /// More than 128 bits.
    #[error("{digits} does not fit 128 bits: write a smaller integer")]
    LargeInteger {
        /// As they were written.
        digits: String,
    },
    /// Tuples within tuples within tuples.
    #[error("tuples are nested more than {MAX_DEPTH} deep: write a flatter term")]
    Deep,
}

/// The one term that a text consists of.
pub(super) fn parse_term(text: &str) -> Result<Term, TermError> {
    let mut reader = Reader { rest: text };
    let term = reader.term(0)?;
    reader.skip_spaces();
    if reader.rest.is_empty() {
        Ok(term)
    } else {
        Err(TermError::LeftOver { rest: reader.rest.to_owned() })
    }
}

struct Reader<'a> {
    rest: &'a str,
}

impl<'a> Reader<'a> {
    fn term(&mut self, depth: usize) -> Result<Term, TermError> {
        self.skip_spaces();
        let unknown = || TermError::Unknown { rest: self.rest.to_owned() };
        match self.rest.chars().next() {
            Some('"') => self.string().map(Term::Binary),
            Some('{') if depth == MAX_DEPTH => Err(TermError::Deep),
            Some('{') => self.tuple(depth).map(Term::Tuple),
            Some(':') if self.rest[1..].starts_with('"') => {
                self.rest = &self.rest[1..];
                self.string().map(Term::Atom)
            }
            Some(':') => {
                let name = word(&self.rest[1..]);
                if !name.starts_with(is_word_start) {
                    return Err(unknown());
                }
                self.rest = &self.rest[1 + name.len()..];
                Ok(Term::Atom(name.to_owned()))
            }
            Some('-' | '0'..='9') => self.integer(),
            Some('A'..='Z') => Ok(Term::Atom(self.module())),
            Some(start) if is_word_start(start) => {
                let word = word(self.rest);
                if !matches!(word, "nil" | "true" | "false") {
                    return Err(TermError::BareWord { word: word.to_owned() });
                }
                self.rest = &self.rest[word.len()..];
                Ok(Term::Atom(word.to_owned()))
            }
            _ => Err(unknown()),
        }
    }

    /// Stands before the opening brace.
    fn tuple(&mut self, depth: usize) -> Result<Vec<Term>, TermError> {
        self.rest = &self.rest[1..];
        let mut elements = Vec::new();
        self.skip_spaces();
        if self.take('}') {
            return Ok(elements);
        }
        loop {
            elements.push(self.term(depth + 1)?);
            self.skip_spaces();
            if self.take('}') {
                return Ok(elements);
            }
            if !self.take(',') {
                return Err(TermError::BrokenTuple { rest: self.rest.to_owned() });
            }
        }
    }

    /// Stands before the opening quote.
    fn string(&mut self) -> Result<String, TermError> {
        let open = || TermError::OpenString { rest: self.rest.to_owned() };
        let mut text = String::new();
        let mut characters = self.rest[1..].chars();
        loop {
            match characters.next().ok_or_else(open)? {
                '"' => break,
                '\\' => match characters.next().ok_or_else(open)? {
                    'u' => text.push(code_point(&mut characters).ok_or(TermError::CodePoint)?),
                    letter => text.push(unescape(letter).ok_or(TermError::Escape { letter })?),
                },
                character => text.push(character),
            }
        }
        self.rest = characters.as_str();
        Ok(text)
    }

    fn integer(&mut self) -> Result<Term, TermError> {
        let unsigned = self.rest.strip_prefix('-').unwrap_or(self.rest);
        let after = unsigned.trim_start_matches(|c: char| c.is_ascii_digit());
        // A letter, a point or an underscore makes it a number of another notation.
        if after.len() == unsigned.len() || after.starts_with(|c| is_word(c) || c == '.') {
            return Err(TermError::Unknown { rest: self.rest.to_owned() });
        }
        let digits = &self.rest[..self.rest.len() - after.len()];
        let value =
            digits.parse().map_err(|_| TermError::LargeInteger { digits: digits.to_owned() })?;
        self.rest = after;
        Ok(Term::Integer(value))
    }

    /// The atom that a module's name stands for.
    fn module(&mut self) -> String {
        let mut end = ascii_word(self.rest);
        while let Some(next) = self.rest[end..].strip_prefix('.')
            && next.starts_with(|c: char| c.is_ascii_uppercase())
        {
            end += 1 + ascii_word(next);
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        if name == "Elixir" || name.starts_with("Elixir.") {
            name.to_owned()
        } else {
            format!("Elixir.{name}")
        }
    }

    fn take(&mut self, expected: char) -> bool {
        let rest = self.rest.strip_prefix(expected);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn skip_spaces(&mut self) {
        self.rest = self.rest.trim_start_matches([' ', '\t', '\r', '\n']);
    }
}

/// The characters that make an atom without quotes, from the start of `text`.
fn word(text: &str) -> &str {
    let end = text.find(|c| !is_word(c) && c != '@').unwrap_or(text.len());
    let mark = text[end..].starts_with(['?', '!']);
    &text[..end + usize::from(mark)]
}

fn is_word_start(character: char) -> bool {
    character.is_alphabetic() || character == '_'
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn ascii_word(text: &str) -> usize {
    text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len())
}

fn unescape(letter: char) -> Option<char> {
    Some(match letter {
        '0' => '\0',
        'a' => '\x07',
        'b' => '\x08',
        't' => '\t',
        'n' => '\n',
        'v' => '\x0b',
        'f' => '\x0c',
        'r' => '\r',
        'e' => '\x1b',
        's' => ' ',
        'd' => '\x7f',
        letter if letter.is_alphanumeric() => return None,
        punctuation => punctuation,
    })
}

/// Stands after `\u`.
fn code_point(characters: &mut std::str::Chars<'_>) -> Option<char> {
    let text = characters.as_str();
    let (digits, rest) = match text.strip_prefix('{') {
        Some(braced) => braced.split_once('}')?,
        None => text.split_at_checked(4)?,
    };
    let is_number = matches!(digits.len(), 1..=6) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let number = is_number.then(|| u32::from_str_radix(digits, 16).ok())??;
    *characters = rest.chars();
    char::from_u32(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn atom(name: &str) -> Term {
        Term::Atom(name.to_owned())
    }

    #[test]
    fn terms_are_read_as_inspect_prints_them() {
        let ecto = parse_term("{:ecto, \"tenant_a\", MyApp.Repo}").unwrap();
        let binary = Term::Binary("tenant_a".to_owned());
        assert_eq!(ecto, Term::Tuple(vec![atom("ecto"), binary, atom("Elixir.MyApp.Repo")]));
        assert_eq!(parse_term("{ {},-7 }").unwrap(), {
            Term::Tuple(vec![Term::Tuple(vec![]), Term::Integer(-7)])
        });
        assert_eq!(parse_term(":\"two words\"").unwrap(), atom("two words"));
        assert_eq!(parse_term(":done?").unwrap(), atom("done?"));
        assert_eq!(parse_term("nil").unwrap(), atom("nil"));
        assert_eq!(parse_term("Elixir.Repo").unwrap(), atom("Elixir.Repo"));
        assert_eq!(
            parse_term(r#""a\"\\\#{b}\n\u00e9\u{1F512}""#).unwrap(),
            Term::Binary("a\"\\#{b}\né🔒".to_owned())
        );
    }

    #[test]
    fn a_bare_word_is_refused_with_both_spellings_that_it_may_mean() {
        assert_eq!(
            parse_term("public").unwrap_err().to_string(),
            "public alone is not a term: write \"\\\"public\\\"\" for a string or \":public\" for an atom"
        );
        assert_eq!(
            parse_term("{:ecto, ecto}"),
            Err(TermError::BareWord { word: "ecto".to_owned() })
        );
    }

    #[test]
    fn what_is_not_one_whole_term_is_refused() {
        let unknown = |rest: &str| Err(TermError::Unknown { rest: rest.to_owned() });
        assert_eq!(parse_term(""), unknown(""));
        assert_eq!(parse_term("[1]"), unknown("[1]"));
        assert_eq!(parse_term("1.5"), unknown("1.5"));
        assert_eq!(parse_term("1_000"), unknown("1_000"));
        assert_eq!(parse_term("-"), unknown("-"));
        assert_eq!(parse_term(":+"), unknown(":+"));
        assert_eq!(parse_term(":1"), unknown(":1"));
        assert_eq!(parse_term("{:a,}"), unknown("}"));
        assert_eq!(parse_term("{:a"), Err(TermError::BrokenTuple { rest: String::new() }));
        assert_eq!(parse_term("{:a :b}"), Err(TermError::BrokenTuple { rest: ":b}".to_owned() }));
        assert_eq!(parse_term(":a, :b"), Err(TermError::LeftOver { rest: ", :b".to_owned() }));
        assert_eq!(parse_term("App.run"), Err(TermError::LeftOver { rest: ".run".to_owned() }));
        assert_eq!(parse_term("\"a"), Err(TermError::OpenString { rest: "\"a".to_owned() }));
        assert_eq!(parse_term(r#""\xff""#), Err(TermError::Escape { letter: 'x' }));
        for broken in [r#""\u12""#, r#""\u{110000}""#, r#""\u{}""#, r#""\ud800""#, r#""\u+123""#] {
            assert_eq!(parse_term(broken), Err(TermError::CodePoint), "{broken}");
        }
        let digits = "9".repeat(40);
        assert_eq!(parse_term(&digits), Err(TermError::LargeInteger { digits }));
    }

    #[test]
    fn deep_tuples_are_refused() {
        let nested = |depth| format!("{}{}", "{".repeat(depth), "}".repeat(depth));
        assert!(parse_term(&nested(MAX_DEPTH)).is_ok());
        assert_eq!(parse_term(&nested(MAX_DEPTH + 1)), Err(TermError::Deep));
        assert_eq!(parse_term(&nested(1_000_000)), Err(TermError::Deep));
    }
}
