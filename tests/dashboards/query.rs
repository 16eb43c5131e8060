//! A query as a tree: which series it names, what stands around each, and which labels it groups and
//! joins by. The only file of the tests that knows the parser; what is right or wrong about a query is
//! judged by `rule`, and what comes of it is seen in the integration test.

use std::collections::BTreeSet;
use std::time::Duration;

use promql_parser::label::MatchOp;
use promql_parser::parser::value::ValueType;
use promql_parser::parser::{self, Expr, LabelModifier, VectorMatchCardinality, VectorSelector};

/// A query that parses.
#[derive(Debug, Default)]
pub struct Query {
    /// In the order they are written.
    pub selectors: Vec<Selector>,
    /// Labels in `by`, `without`, `on`, `ignoring`, `group_left` and `group_right`.
    pub labels: BTreeSet<String>,
    /// Labels that `label_replace`, `label_join` and `count_values` make.
    pub made: BTreeSet<String>,
    /// It has values although no series has any, as `or vector(0)` makes them.
    pub is_made_up: bool,
}

/// One place where series are named.
#[derive(Clone, Debug)]
pub struct Selector {
    /// As `pg_advisory_up`; empty where it is not written as a name.
    pub metric: String,
    /// Between the braces.
    pub matchers: Vec<Matcher>,
    /// Of a range.
    pub range: Option<Duration>,
    /// What is called with exactly this.
    pub function: Option<&'static str>,
    /// Somewhere around it stands `< Inf`, so that what has no limit is left out.
    pub is_finite: bool,
}

/// A condition on a label.
#[derive(Clone, Debug, PartialEq)]
pub struct Matcher {
    /// The label.
    pub label: String,
    /// `=`, `!=`, `=~` or `!~`.
    pub operator: &'static str,
    /// What it is compared with.
    pub value: String,
}

/// Reads a query whose variables are filled in.
pub fn parse(text: &str) -> Result<Query, String> {
    let tree = parser::parse(text)?;
    let mut query = Query::default();
    query.read(&tree, Around::default())?;
    query.is_made_up = is_made_up(&tree);
    Ok(query)
}

/// What is known on the way down.
#[derive(Clone, Copy, Default)]
struct Around {
    function: Option<&'static str>,
    is_finite: bool,
}

impl Query {
    fn read(&mut self, tree: &Expr, around: Around) -> Result<(), String> {
        // A function is called with what stands directly in it; parentheses change nothing.
        let inner = Around { function: None, ..around };
        match tree {
            Expr::VectorSelector(selector) => self.select(selector, None, around)?,
            Expr::MatrixSelector(matrix) => self.select(&matrix.vs, Some(matrix.range), around)?,
            Expr::Paren(paren) => self.read(&paren.expr, around)?,
            Expr::Unary(unary) => self.read(&unary.expr, inner)?,
            Expr::Subquery(subquery) => self.read(&subquery.expr, inner)?,
            Expr::Call(call) => {
                for argument in &call.args.args {
                    self.read(argument, Around { function: Some(call.func.name), ..around })?;
                }
                if ["label_replace", "label_join"].contains(&call.func.name)
                    && let Some(Expr::StringLiteral(label)) = call.args.args.get(1).map(|it| &**it)
                {
                    self.made.insert(label.val.clone());
                }
            }
            Expr::Aggregate(aggregate) => {
                self.group(aggregate.modifier.as_ref());
                self.read(&aggregate.expr, inner)?;
                match aggregate.param.as_deref() {
                    Some(Expr::StringLiteral(label)) => _ = self.made.insert(label.val.clone()),
                    Some(parameter) => self.read(parameter, inner)?,
                    None => {}
                }
            }
            Expr::Binary(binary) => {
                if let Some(modifier) = &binary.modifier {
                    self.group(modifier.matching.as_ref());
                    if let VectorMatchCardinality::ManyToOne(labels)
                    | VectorMatchCardinality::OneToMany(labels) = &modifier.card
                    {
                        self.labels.extend(labels.labels.iter().cloned());
                    }
                }
                let is_infinite = |side: &Expr| matches!(side, Expr::NumberLiteral(number) if number.val == f64::INFINITY);
                let is_bound = binary.op.to_string() == "<" && is_infinite(&binary.rhs);
                let inner = Around { is_finite: around.is_finite || is_bound, ..inner };
                self.read(&binary.lhs, inner)?;
                self.read(&binary.rhs, inner)?;
            }
            Expr::NumberLiteral(_) | Expr::StringLiteral(_) => {}
            Expr::Extension(_) => return Err("no PromQL".to_owned()),
        }
        Ok(())
    }

    fn group(&mut self, modifier: Option<&LabelModifier>) {
        if let Some(LabelModifier::Include(labels) | LabelModifier::Exclude(labels)) = modifier {
            self.labels.extend(labels.labels.iter().cloned());
        }
    }

    fn select(
        &mut self,
        selector: &VectorSelector,
        range: Option<Duration>,
        around: Around,
    ) -> Result<(), String> {
        if !selector.matchers.or_matchers.is_empty() {
            return Err("no PromQL: or between matchers".to_owned());
        }
        let matchers = selector.matchers.matchers.iter().map(|matcher| Matcher {
            label: matcher.name.clone(),
            operator: match matcher.op {
                MatchOp::Equal => "=",
                MatchOp::NotEqual => "!=",
                MatchOp::Re(_) => "=~",
                MatchOp::NotRe(_) => "!~",
            },
            value: matcher.value.clone(),
        });
        self.selectors.push(Selector {
            metric: selector.name.clone().unwrap_or_default(),
            matchers: matchers.collect(),
            range,
            function: around.function,
            is_finite: around.is_finite,
        });
        Ok(())
    }
}

/// Whether there are values where no series has any. Codes for labels are multiplied with what has
/// them, and alone make nothing.
fn is_made_up(tree: &Expr) -> bool {
    match tree {
        Expr::Call(call) if call.func.name == "vector" => true,
        Expr::Call(call) => call.args.args.iter().any(|argument| is_made_up(argument)),
        Expr::Binary(binary) => {
            let (left, right) = (is_made_up(&binary.lhs), is_made_up(&binary.rhs));
            match &*binary.op.to_string() {
                "or" => left || right,
                "unless" => left,
                _ if is_scalar(&binary.lhs) => right,
                _ if is_scalar(&binary.rhs) => left,
                _ => left && right,
            }
        }
        Expr::Paren(paren) => is_made_up(&paren.expr),
        Expr::Unary(unary) => is_made_up(&unary.expr),
        Expr::Subquery(subquery) => is_made_up(&subquery.expr),
        Expr::Aggregate(aggregate) => is_made_up(&aggregate.expr),
        Expr::VectorSelector(_)
        | Expr::MatrixSelector(_)
        | Expr::NumberLiteral(_)
        | Expr::StringLiteral(_)
        | Expr::Extension(_) => false,
    }
}

fn is_scalar(tree: &Expr) -> bool {
    matches!(tree.value_type(), ValueType::Scalar)
}
