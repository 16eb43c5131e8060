//! Rules that rewrite an `application_name` before it becomes a label.
//!
//! Applications put pids and job numbers into their names; a rule folds those into one, and says
//! whether the program changes its name while it is connected. Pure: it takes a name and gives a
//! name, and knows nothing of labels and their limits.

use std::borrow::Cow;

use regex::Regex;

/// Rules in the order of the file; the first that matches decides.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Applications(Vec<Application>);

/// One rule.
#[derive(Clone, Debug)]
pub struct Application {
    pattern: Regex,
    name: String,
    renames_itself: bool,
}

/// Why a rule is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplicationError {
    /// The pattern is not a regular expression.
    #[error("{0:?} is not a regular expression: {1}")]
    Pattern(String, String),
    /// The name uses a group that the pattern does not have, which would expand to nothing.
    #[error(
        "the pattern has no group {0}: write ${{1}} for the first one, ${{NAME}} for (?<NAME>…) \
         and $$ for a dollar sign"
    )]
    NoGroup(String),
    /// The name is empty.
    #[error("an empty name would hide which application it was; give it a name")]
    NoName,
}

/// Rules of one text are one rule.
impl PartialEq for Application {
    fn eq(&self, other: &Self) -> bool {
        let text = |rule: &Self| {
            (rule.pattern.as_str().to_owned(), rule.name.clone(), rule.renames_itself)
        };
        text(self) == text(other)
    }
}

impl Applications {
    /// Rules, the one that is asked first in front.
    pub fn new(rules: Vec<Application>) -> Self {
        Self(rules)
    }

    /// The name to show for an `application_name`: itself where no rule matches.
    pub fn rename<'a>(&self, application_name: &'a str) -> Cow<'a, str> {
        let renamed = self.0.iter().find_map(|rule| rule.rename(application_name));
        renamed.map_or(Cow::Borrowed(application_name), Cow::Owned)
    }

    /// Whether a program of this name is known to change it on one and the same connection.
    pub fn renames_itself(&self, application_name: &str) -> bool {
        let rule = self.0.iter().find(|rule| rule.pattern.is_match(application_name));
        rule.is_some_and(|rule| rule.renames_itself)
    }
}

impl Application {
    /// A rule that replaces a whole name in which `pattern` matches anywhere by `name`, with
    /// groups as `$1` or `${group}`.
    pub fn new(pattern: &str, name: &str) -> Result<Self, ApplicationError> {
        let pattern = Regex::new(pattern).map_err(|error| {
            // The last line says what is wrong; those before draw the pattern with a caret.
            let text = error.to_string();
            let last = text.lines().last().unwrap_or_default();
            let reason = last.strip_prefix("error: ").unwrap_or(last);
            ApplicationError::Pattern(pattern.to_owned(), reason.to_owned())
        })?;
        if name.is_empty() {
            return Err(ApplicationError::NoName);
        }
        if let Some(group) = groups(name).into_iter().find(|group| !has_group(&pattern, group)) {
            return Err(ApplicationError::NoGroup(group.to_owned()));
        }
        Ok(Self { pattern, name: name.to_owned(), renames_itself: false })
    }

    /// The same for programs that change their name while they are connected, if they do.
    pub fn renaming_itself(mut self, renames_itself: bool) -> Self {
        self.renames_itself = renames_itself;
        self
    }

    fn rename(&self, application_name: &str) -> Option<String> {
        let captures = self.pattern.captures(application_name)?;
        let mut renamed = String::new();
        captures.expand(&self.name, &mut renamed);
        Some(renamed)
    }
}

fn has_group(pattern: &Regex, group: &str) -> bool {
    match group.parse::<usize>() {
        Ok(index) => index < pattern.captures_len(),
        Err(_) => pattern.capture_names().flatten().any(|name| name == group),
    }
}

/// The groups a template refers to, as `Captures::expand` reads it: `$name` takes as many letters,
/// digits and underscores as follow, which makes `$1_x` the group `1_x`.
fn groups(template: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = template;
    while let Some((_, after)) = rest.split_once('$') {
        let group = if let Some(literal) = after.strip_prefix('$') {
            rest = literal;
            continue;
        } else if let Some((group, _)) =
            after.strip_prefix('{').and_then(|inner| inner.split_once('}'))
        {
            group
        } else {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            &after[..after.find(|c| !is_word(c)).unwrap_or(after.len())]
        };
        if !group.is_empty() {
            found.push(group);
        }
        rest = after;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applications(rules: &[(&str, &str)]) -> Applications {
        let rules = rules.iter().map(|(pattern, name)| Application::new(pattern, name).unwrap());
        Applications::new(rules.collect())
    }

    #[test]
    fn the_first_rule_that_matches_gives_the_whole_name() {
        let applications = applications(&[
            ("^(svc-[a-z]+)-.*$", "$1"),
            ("^worker: ", "worker"),
            ("(?<team>[a-z]+)/", "team-${team}"),
            ("svc", "never reached by svc-a-1"),
        ]);
        let expected = [
            ("svc-billing-7d9f", "svc-billing"),
            ("worker: job 17", "worker"),
            ("the blue/web app", "team-blue"),
            ("psql", "psql"),
            ("", ""),
        ];
        for (name, renamed) in expected {
            assert_eq!(applications.rename(name), renamed);
        }
    }

    #[test]
    fn the_first_rule_that_matches_says_whether_a_program_renames_itself() {
        let rule = |pattern| Application::new(pattern, "$0").unwrap();
        let rules = vec![rule("^worker: idle"), rule("^worker: ").renaming_itself(true)];
        let applications = Applications::new(rules);
        assert!(applications.renames_itself("worker: ReportJob"));
        assert!(!applications.renames_itself("worker: idle"));
        assert!(!applications.renames_itself("web"));
    }

    #[test]
    fn a_group_that_does_not_exist_is_refused_and_not_expanded_to_nothing() {
        for (name, group) in [("$2", "2"), ("$1x", "1x"), ("${who}", "who"), ("a$$b$3", "3")] {
            let error = Application::new("(a)", name).unwrap_err();
            assert_eq!(error, ApplicationError::NoGroup(group.to_owned()), "{name}");
        }
        for name in ["$0", "${1}x", "$1-x", "$$1", "cost: 5$"] {
            assert!(Application::new("(a)", name).is_ok(), "{name}");
        }
    }

    #[test]
    fn a_pattern_that_is_none_is_refused_in_one_line() {
        let error = Application::new("^(svc", "x").unwrap_err().to_string();
        assert_eq!(error, "\"^(svc\" is not a regular expression: unclosed group");
        assert_eq!(Application::new("a", "").unwrap_err(), ApplicationError::NoName);
    }
}
