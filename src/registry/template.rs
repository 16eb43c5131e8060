//! Texts with placeholders: `{database}`, `{customer}`; `{{` and `}}` stand for braces.
//!
//! What a placeholder may stand for is the entry's to say. Here a text is only taken apart, and put
//! together again once the values are known.

use std::sync::Arc;

use super::document::{Node, Position, Value};

/// The placeholder that stands for the database the lock is in.
pub(super) const DATABASE: &str = "database";

/// A text that waits for its values.
#[derive(Clone, Debug)]
pub(super) struct Template {
    pieces: Vec<Piece>,
    /// Where it was written.
    pub(super) at: Position,
}

#[derive(Clone, Debug)]
enum Piece {
    Text(String),
    Placeholder(Arc<str>),
}

/// The value of a placeholder, by its name.
pub(super) type Binding = (Arc<str>, Arc<str>);

/// Why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    #[error("a brace stands alone: write {{{{ or }}}} for a brace that belongs to the text")]
    LoneBrace,
    #[error(
        "{{{0}}} is no placeholder, whose name is a word of letters, digits and _: \
         write {{{{{0}}}}} if the braces belong to the text"
    )]
    NotAWord(String),
}

impl Template {
    pub(super) fn parse(text: &str, at: Position) -> Result<Self, TemplateError> {
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(position) = rest.find(['{', '}']) {
            plain.push_str(&rest[..position]);
            rest = &rest[position..];
            if let Some(after) = rest.strip_prefix("{{") {
                plain.push('{');
                rest = after;
            } else if let Some(after) = rest.strip_prefix("}}") {
                plain.push('}');
                rest = after;
            } else {
                let (name, after) = rest
                    .strip_prefix('{')
                    .and_then(|inner| inner.split_once('}'))
                    .filter(|(name, _)| !name.contains('{'))
                    .ok_or(TemplateError::LoneBrace)?;
                if !is_word(name) {
                    return Err(TemplateError::NotAWord(name.into()));
                }
                pieces.push(Piece::Text(std::mem::take(&mut plain)));
                pieces.push(Piece::Placeholder(name.into()));
                rest = after;
            }
        }
        plain.push_str(rest);
        pieces.push(Piece::Text(plain));
        Ok(Self { pieces, at })
    }

    /// The names that need a value, in the order of the text.
    pub(super) fn placeholders(&self) -> impl Iterator<Item = &Arc<str>> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Placeholder(name) => Some(name),
            Piece::Text(_) => None,
        })
    }

    /// Whether a value can bring NUL into the text is the caller's to know; its own letters can.
    pub(super) fn contains(&self, letter: char) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::Text(text) if text.contains(letter)))
    }

    /// The text; `None` when a placeholder has no value.
    pub(super) fn fill(&self, bindings: &[Binding]) -> Option<String> {
        let mut text = String::new();
        for piece in &self.pieces {
            match piece {
                Piece::Text(plain) => text.push_str(plain),
                Piece::Placeholder(name) => {
                    let (_, value) = bindings.iter().find(|(bound, _)| bound == name)?;
                    text.push_str(value);
                }
            }
        }
        Some(text)
    }

    /// For people: placeholders as they are written, braces single.
    pub(super) fn text(&self) -> String {
        let piece = |piece: &Piece| match piece {
            Piece::Text(text) => text.clone(),
            Piece::Placeholder(name) => format!("{{{name}}}"),
        };
        self.pieces.iter().map(piece).collect()
    }
}

/// A name that may stand between braces, and beside a value in `name (tenant 99)`.
pub(super) fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The mend for `{name}` without quotes, which YAML reads as a mapping from `name` to nothing.
pub(super) fn unquoted_placeholder(node: &Node) -> Option<String> {
    let Value::Mapping(pairs) = &node.value else { return None };
    match pairs.as_slice() {
        [(Node { value: Value::Scalar { text: name, plain: true }, .. }, value)]
            if value.is_null() =>
        {
            Some(format!("{{{name}}} without quotes is a mapping to YAML: write \"{{{name}}}\""))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Position = Position { line: 1, column: 1 };

    fn fill(text: &str, bindings: &[(&str, &str)]) -> Option<String> {
        let bindings: Vec<Binding> =
            bindings.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        Template::parse(text, HERE).unwrap().fill(&bindings)
    }

    #[test]
    fn doubled_braces_stand_for_braces_and_names_for_their_values() {
        assert_eq!(fill("cron:{{x}}{{", &[]).unwrap(), "cron:{x}{");
        assert_eq!(fill("", &[]).unwrap(), "");
        assert_eq!(fill("{a}:{{b}}:{a}{b}", &[("a", "1"), ("b", "{a}")]).unwrap(), "1:{b}:1{a}");
        assert_eq!(fill("{a}", &[("b", "1")]), None);
    }

    #[test]
    fn a_lone_brace_or_a_name_that_is_no_word_is_refused_with_the_mend() {
        for text in ["a{", "a}", "{a{b}", "}{"] {
            assert_eq!(
                Template::parse(text, HERE).unwrap_err().to_string(),
                "a brace stands alone: write {{ or }} for a brace that belongs to the text",
                "{text}"
            );
        }
        assert_eq!(
            Template::parse("a:{a b}", HERE).unwrap_err().to_string(),
            "{a b} is no placeholder, whose name is a word of letters, digits and _: \
             write {{a b}} if the braces belong to the text"
        );
    }

    #[test]
    fn a_template_is_shown_as_it_reads() {
        let template = Template::parse("a:{x}:{{y}}", HERE).unwrap();
        assert_eq!(template.text(), "a:{x}:{y}");
        assert_eq!(template.placeholders().map(|name| &**name).collect::<Vec<_>>(), ["x"]);
    }
}
