//! YAML text → a tree of nodes that know where they stand and how they were written.
//!
//! The registry reads integers from the text of a scalar and tells a quoted star from a bare one,
//! which typed deserialization forgets; so the tree is built from the events of the parser that
//! serde-saphyr is made of. What the nodes mean is not known here.

use std::collections::HashMap;

use serde_saphyr::granit_parser::{self, ErrorKind, Event, Parser, ScalarStyle, ScanError, Span};

use super::Source;
use super::fault::Faults;

/// Nodes in one file, those that aliases stand for included: a bound for alias bombs.
const MAX_NODES: usize = 1_000_000;
/// Deeper nesting than any registry needs, and shallow enough for recursion.
const MAX_DEPTH: usize = 64;

/// Where a node begins: line and column from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position {
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) at: Position,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// `plain` when it was written without quotes and not as a block.
    Scalar {
        text: String,
        plain: bool,
    },
    Sequence(Vec<Node>),
    Mapping(Vec<(Node, Node)>),
}

impl Node {
    /// Nothing was written: an empty value, `~` or `null`.
    pub(super) fn is_null(&self) -> bool {
        match &self.value {
            Value::Scalar { text, plain } => *plain && matches!(text.as_str(), "~" | "" | "null"),
            Value::Sequence(_) | Value::Mapping(_) => false,
        }
    }

    /// What it is, for "expected …, found …".
    pub(super) fn kind(&self) -> &'static str {
        match &self.value {
            Value::Scalar { .. } if self.is_null() => "nothing",
            Value::Scalar { .. } => "a text",
            Value::Sequence(_) => "a list",
            Value::Mapping(_) => "a mapping",
        }
    }

    fn depth(&self) -> usize {
        match &self.value {
            Value::Scalar { .. } => 1,
            Value::Sequence(items) => 1 + items.iter().map(Node::depth).max().unwrap_or(0),
            Value::Mapping(pairs) => {
                let inner = pairs.iter().map(|(key, value)| key.depth().max(value.depth())).max();
                1 + inner.unwrap_or(0)
            }
        }
    }
}

/// The one document of a file; `None` when the file is empty or is no YAML, which `faults` tells.
pub(super) fn parse_document(source: &Source, faults: &mut Faults<'_>) -> Option<Node> {
    let options = granit_parser::options! { emit_comments: false, emit_unresolved_aliases: true };
    let mut builder = Builder::default();
    for event in Parser::new_from_str_with_options(&source.text, options) {
        let outcome = match event {
            Ok((event, span)) => builder.observe(event, position(&span), faults),
            Err(error) => Err(explain(&error, &source.text)),
        };
        if let Err((at, message)) = outcome {
            faults.add(at, message);
            return None;
        }
    }
    builder.root.filter(|_| faults.is_empty())
}

/// A fault after which reading on makes no sense.
type Fatal = (Position, String);

#[derive(Default)]
struct Builder {
    root: Option<Node>,
    documents: usize,
    /// Collections that are open, the outermost first.
    open: Vec<Open>,
    anchored: HashMap<usize, Anchored>,
    nodes: usize,
}

struct Open {
    at: Position,
    anchor: usize,
    mapping: bool,
    /// Items of a sequence, or keys and values in turn.
    children: Vec<Node>,
    nodes_before: usize,
}

struct Anchored {
    node: Node,
    nodes: usize,
}

impl Builder {
    fn observe(
        &mut self,
        event: Event<'_>,
        at: Position,
        faults: &mut Faults<'_>,
    ) -> Result<(), Fatal> {
        match event {
            Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => Ok(()),
            Event::DocumentStart(..) => {
                self.documents += 1;
                if self.documents > 1 {
                    return Err((at, "a second document begins here: remove the --- line".into()));
                }
                Ok(())
            }
            Event::Scalar(text, style, anchor, tag) => {
                refuse_tag(tag.as_deref(), at, faults);
                let plain = style == ScalarStyle::Plain;
                let node = Node { at, value: Value::Scalar { text: text.into_owned(), plain } };
                self.count(1, at)?;
                self.place(node, anchor, 1)
            }
            Event::SequenceStart(_, anchor, tag) => {
                refuse_tag(tag.as_deref(), at, faults);
                self.enter(at, anchor, false)
            }
            Event::MappingStart(_, anchor, tag) => {
                refuse_tag(tag.as_deref(), at, faults);
                self.enter(at, anchor, true)
            }
            Event::SequenceEnd | Event::MappingEnd => self.leave(),
            Event::Alias(anchor) => {
                let Some(Anchored { node, nodes }) = self.anchored.get(&anchor) else {
                    return Err((at, "this alias stands for a list or mapping it is in".into()));
                };
                let (node, nodes) = (Node { at, value: node.value.clone() }, *nodes);
                if self.open.len() + node.depth() > MAX_DEPTH {
                    return Err(too_deep(at));
                }
                self.count(nodes, at)?;
                self.place(node, 0, nodes)
            }
            Event::UnresolvedAlias(name) => {
                faults.add(
                    at,
                    format!("*{name} is a YAML alias of nothing: write \"*{name}\" for the text"),
                );
                self.place(Node { at, value: Value::Sequence(Vec::new()) }, 0, 1)
            }
            // Not asked for, and no nodes.
            Event::Comment(..) | Event::Anchor(..) | _ => Ok(()),
        }
    }

    fn enter(&mut self, at: Position, anchor: usize, mapping: bool) -> Result<(), Fatal> {
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep(at));
        }
        let nodes_before = self.nodes;
        self.count(1, at)?;
        self.open.push(Open { at, anchor, mapping, children: Vec::new(), nodes_before });
        Ok(())
    }

    fn leave(&mut self) -> Result<(), Fatal> {
        let Some(Open { at, anchor, mapping, children, nodes_before }) = self.open.pop() else {
            return Ok(());
        };
        let value = if mapping {
            let mut children = children.into_iter();
            let mut pairs = Vec::with_capacity(children.len() / 2);
            while let (Some(key), Some(value)) = (children.next(), children.next()) {
                pairs.push((key, value));
            }
            Value::Mapping(pairs)
        } else {
            Value::Sequence(children)
        };
        self.place(Node { at, value }, anchor, self.nodes - nodes_before)
    }

    /// Puts a finished node where it belongs, and a copy aside when aliases may ask for it.
    fn place(&mut self, node: Node, anchor: usize, nodes: usize) -> Result<(), Fatal> {
        if anchor != 0 {
            self.count(nodes, node.at)?;
            self.anchored.insert(anchor, Anchored { node: node.clone(), nodes });
        }
        match self.open.last_mut() {
            Some(parent) => parent.children.push(node),
            None => self.root = Some(node),
        }
        Ok(())
    }

    fn count(&mut self, nodes: usize, at: Position) -> Result<(), Fatal> {
        self.nodes = self.nodes.saturating_add(nodes);
        if self.nodes > MAX_NODES {
            return Err((
                at,
                format!("more than {MAX_NODES} values, aliases followed: split the file"),
            ));
        }
        Ok(())
    }
}

fn too_deep(at: Position) -> Fatal {
    (at, format!("nested more than {MAX_DEPTH} levels deep, aliases followed"))
}

fn refuse_tag(tag: Option<&granit_parser::Tag>, at: Position, faults: &mut Faults<'_>) {
    if let Some(tag) = tag {
        faults.add(at, format!("YAML tags have no meaning here: remove {}", tag.original()));
    }
}

fn position(span: &Span) -> Position {
    position_of(span.start.line(), span.start.col())
}

fn position_of(line: usize, column_from_zero: usize) -> Position {
    let narrow = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Position { line: narrow(line), column: narrow(column_from_zero).saturating_add(1) }
}

/// The parser's words, and the mend for what people trip over in this language.
fn explain(error: &ScanError, text: &str) -> Fatal {
    let marker = error.marker();
    let at = position_of(marker.line(), marker.col());
    let offset = marker.byte_offset().filter(|offset| text.is_char_boundary(*offset)).unwrap_or(0);
    let (before, rest) = text.split_at(offset);
    let kind = error.kind();
    let after_brace = before.ends_with('}')
        && matches!(
            kind,
            ErrorKind::ExpectedFlowMappingSeparator | ErrorKind::ExpectedFlowSequenceSeparator
        );
    let message = if matches!(kind, ErrorKind::MissingAnchorOrAliasName) && rest.starts_with('*') {
        "a bare * begins a YAML alias: write \"*\" in quotes".to_owned()
    } else if after_brace || matches!(kind, ErrorKind::FlowMappingValueAdjacentCollection) {
        "text with braces is a mapping to YAML: put all of it in double quotes".to_owned()
    } else if let ErrorKind::UnexpectedCharacter { character: character @ ('@' | '`' | '%') } = kind
    {
        format!("a text that begins with {character} must be in double quotes")
    } else if text[..offset].rsplit('\n').next().is_some_and(|line| line.contains('\t')) {
        format!("not valid YAML: {}: indent with spaces", error.info())
    } else {
        format!("not valid YAML: {}", error.info())
    };
    (at, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults_of(text: &str) -> Vec<String> {
        let source = Source { name: "f".into(), text: text.into() };
        let mut faults = Faults::new(&source);
        assert!(parse_document(&source, &mut faults).is_none(), "{text:?}");
        let faults = faults.finish();
        faults.iter().map(|f| format!("{}:{}: {}", f.line, f.column, f.message)).collect()
    }

    #[test]
    fn what_yaml_itself_refuses_is_told_with_the_mend() {
        let cases = [
            ("a: [7, *]", "1:8: a bare * begins a YAML alias: write \"*\" in quotes"),
            ("a:\n  - *", "2:5: a bare * begins a YAML alias: write \"*\" in quotes"),
            ("a: [*x]", "1:5: *x is a YAML alias of nothing: write \"*x\" for the text"),
            (
                "a: { md5: cron:{x} }",
                "1:15: text with braces is a mapping to YAML: put all of it in double quotes",
            ),
            (
                "a: { md5: {x}:cron }",
                "1:14: text with braces is a mapping to YAML: put all of it in double quotes",
            ),
            ("a: @x", "1:4: a text that begins with @ must be in double quotes"),
            ("a: !!str 1", "1:10: YAML tags have no meaning here: remove !!str"),
            (
                "a:\n\t- 1",
                "2:2: not valid YAML: tabs disallowed within this context (block indentation): \
                 indent with spaces",
            ),
            ("a: {b", "1:4: not valid YAML: unclosed bracket '{'"),
            ("a: 1\n---\nb: 1", "2:1: a second document begins here: remove the --- line"),
            ("a: &x [*x]", "1:8: this alias stands for a list or mapping it is in"),
        ];
        for (text, message) in cases {
            assert_eq!(faults_of(text), [message], "{text:?}");
        }
    }

    #[test]
    fn an_alias_bomb_is_refused() {
        let mut text = String::from("a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]\n");
        for level in 1..20 {
            let alias = vec![format!("*a{}", level - 1); 10].join(", ");
            text.push_str(&format!("a{level}: &a{level} [{alias}]\n"));
        }
        let faults = faults_of(&text);
        assert!(faults[0].ends_with("more than 1000000 values, aliases followed: split the file"));
    }

    #[test]
    fn nesting_is_bounded_with_and_without_aliases() {
        let flat = format!("a: {}{}", "[".repeat(64), "]".repeat(64));
        assert!(faults_of(&flat)[0].contains("nested more than 64 levels"));
        let half = format!("a: &a {}{}\n", "[".repeat(40), "]".repeat(40));
        let text = format!("{half}b: {}*a{}", "[".repeat(40), "]".repeat(40));
        assert!(faults_of(&text)[0].contains("nested more than 64 levels"));
    }

    #[test]
    fn an_alias_stands_where_it_is_used() {
        let source = Source { name: "f".into(), text: "a: &x [1]\nb: *x\n".into() };
        let root = parse_document(&source, &mut Faults::new(&source)).unwrap();
        let Value::Mapping(pairs) = root.value else { panic!() };
        assert_eq!(pairs[1].1.at, Position { line: 2, column: 4 });
        assert_eq!(pairs[1].1.kind(), "a list");
    }

    #[test]
    fn a_file_of_comments_is_an_empty_document() {
        let source = Source { name: "f".into(), text: "\u{feff}# nothing yet\r\n".into() };
        let mut faults = Faults::new(&source);
        assert!(parse_document(&source, &mut faults).is_none());
        assert!(faults.is_empty());
    }
}
