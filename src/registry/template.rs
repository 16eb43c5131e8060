//! Texts that are hashed: `{{` and `}}` stand for braces, `{name}` for a placeholder.

use super::document::{Node, Value};

/// Why a text is not a template that can be filled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TemplateError {
    #[error(
        "placeholder {{{0}}} has no values: write {{{{{0}}}}} if the braces belong to the text"
    )]
    Placeholder(String),
    #[error("a brace stands alone: write {{{{ or }}}} for a brace that belongs to the text")]
    LoneBrace,
}

/// The text with its braces unescaped.
pub(super) fn parse_template(template: &str) -> Result<String, TemplateError> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(position) = rest.find(['{', '}']) {
        text.push_str(&rest[..position]);
        rest = &rest[position..];
        if let Some(after) = rest.strip_prefix("{{") {
            text.push('{');
            rest = after;
        } else if let Some(after) = rest.strip_prefix("}}") {
            text.push('}');
            rest = after;
        } else {
            let name = rest.strip_prefix('{').and_then(|inner| inner.split_once('}'));
            return Err(match name {
                Some((name, _)) if !name.contains('{') => TemplateError::Placeholder(name.into()),
                _ => TemplateError::LoneBrace,
            });
        }
    }
    text.push_str(rest);
    Ok(text)
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

    #[test]
    fn doubled_braces_stand_for_braces() {
        assert_eq!(parse_template("cron:{{x}}{{").unwrap(), "cron:{x}{");
        assert_eq!(parse_template("").unwrap(), "");
    }

    #[test]
    fn a_placeholder_or_a_lone_brace_is_refused_with_the_mend() {
        assert_eq!(
            parse_template("a:{customer}").unwrap_err().to_string(),
            "placeholder {customer} has no values: write {{customer}} if the braces belong to the text"
        );
        for text in ["a{", "a}", "{a{b}", "}{"] {
            assert_eq!(
                parse_template(text).unwrap_err().to_string(),
                "a brace stands alone: write {{ or }} for a brace that belongs to the text",
                "{text}"
            );
        }
    }
}
