//! A mapping as named fields: each known, each given once.

use super::document::{Node, Position, Value};
use super::fault::Faults;
use super::template::unquoted_placeholder;

/// The fields of one mapping, in the order of the file.
pub(super) struct Fields<'a> {
    node: &'a Node,
    fields: Vec<(&'a str, &'a Node)>,
    /// Something was left out, so what is missing may only be misspelt.
    incomplete: bool,
}

impl<'a> Fields<'a> {
    /// Notes unknown and repeated fields and leaves them out; `None` when `node` is no mapping.
    /// `what` names the mapping in messages: "an entry".
    pub(super) fn read(
        node: &'a Node,
        what: &str,
        known: &[&str],
        faults: &mut Faults<'_>,
    ) -> Option<Self> {
        let Value::Mapping(pairs) = &node.value else {
            faults.add(
                node.at,
                format!("{what} is a mapping with {}, found {}", listed(known), node.kind()),
            );
            return None;
        };
        let mut fields: Vec<(&str, &Node)> = Vec::with_capacity(pairs.len().min(known.len()));
        let mut incomplete = false;
        for (key, value) in pairs {
            let Value::Scalar { text: name, .. } = &key.value else {
                faults.add(key.at, format!("the name of a field is a word, found {}", key.kind()));
                incomplete = true;
                continue;
            };
            if !known.contains(&name.as_str()) {
                faults.add(
                    key.at,
                    unquoted_placeholder(node).unwrap_or_else(|| {
                        let mend = match nearest(name, known) {
                            Some(nearest) => format!("did you mean {nearest}?"),
                            None => format!("the known ones are {}", known.join(", ")),
                        };
                        format!("unknown field {name:?} in {what}: {mend}")
                    }),
                );
                incomplete = true;
            } else if let Some((_, first)) = fields.iter().find(|(given, _)| given == name) {
                let line = first.at.line;
                faults
                    .add(key.at, format!("{name} is given twice, first on line {line}: keep one"));
            } else {
                fields.push((name, value));
            }
        }
        Some(Self { node, fields, incomplete })
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a Node> {
        self.fields.iter().find(|(given, _)| *given == name).map(|(_, value)| *value)
    }

    /// Where the mapping stands.
    pub(super) fn at(&self) -> Position {
        self.node.at
    }

    /// The one field that decides what the mapping is; `needed` says which may, for who gives none.
    pub(super) fn only_one_of(
        &self,
        names: &[&str],
        needed: &str,
        faults: &mut Faults<'_>,
    ) -> Option<(&'a str, &'a Node)> {
        let mut given = self.fields.iter().filter(|(name, _)| names.contains(name));
        let (first, second) = (given.next(), given.next());
        match (first, second) {
            (Some(only), None) => Some(*only),
            (Some((first, _)), Some((second, value))) => {
                faults.add(value.at, format!("{first} and {second} exclude each other: keep one"));
                None
            }
            (None, _) if self.incomplete => None,
            (None, _) => {
                faults.add(self.node.at, format!("{needed} is needed here"));
                None
            }
        }
    }

    /// Whether a field was left out for a fault of its own.
    pub(super) fn is_incomplete(&self) -> bool {
        self.incomplete
    }

    /// Notes fields that are known but have no meaning beside `decider`.
    pub(super) fn refuse_beside(&self, decider: &str, names: &[&str], faults: &mut Faults<'_>) {
        for name in names {
            if let Some(value) = self.get(name) {
                faults.add(value.at, format!("{name} has no meaning beside {decider}: remove it"));
            }
        }
    }
}

/// The fields of a mapping, or the first of very many.
fn listed(fields: &[&str]) -> String {
    const LISTED: usize = 10;
    match fields {
        [first, second, ..] if fields.len() > LISTED => {
            format!("{first}, {second} and other fields")
        }
        _ => format!("the fields {}", fields.join(", ")),
    }
}

/// What was probably meant.
fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    let near = known.iter().copied().min_by_key(|known| distance(known))?;
    let is_near = distance(near) <= 2 && distance(near) < near.len().min(name.len());
    is_near.then_some(near)
}
