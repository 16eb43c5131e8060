//! The registry as people ask for it, without a server: every key it knows, and every entry that may
//! name a key.

use std::sync::Arc;

use super::claims::{Claim, Claims};
use super::pattern::KeyRule;
use super::resolver::{Circumstances, Resolver, Signs};
use super::{Doubt, Origin, Registry, Standing, display_name};
use crate::key::Key;

/// One key of one entry, presets included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedKey {
    /// The name.
    pub name: Arc<str>,
    /// The key as it is meant: `hashtext("jobs")`, `(7,*)`.
    pub written: Arc<str>,
    /// The `key` label that comes of it, where it can be computed: `-1679774495`, `(7,*)`.
    pub key: Option<Arc<str>>,
    /// `None` for any.
    pub databases: Option<Vec<Arc<str>>>,
    /// `None` for any; patterns.
    pub servers: Option<Vec<String>>,
    /// Where it is said.
    pub origin: Origin,
    /// For people.
    pub description: Option<Arc<str>>,
}

/// A name that a key has or may have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Naming {
    /// The name.
    pub name: Arc<str>,
    /// With its parameters: `tenant-reindex (tenant 99)`.
    pub display: String,
    /// Why: `hashtext("jobs") at locks.yaml:3`.
    pub reason: String,
    /// Where it holds; `None` for any database.
    pub databases: Option<Vec<Arc<str>>>,
    /// What speaks against it, as far as that can be told without a server.
    pub doubt: Option<Doubt>,
    /// From a preset.
    pub is_preset: bool,
    /// For people.
    pub description: Option<Arc<str>>,
    /// Who looks after it.
    pub owner: Option<Arc<str>>,
    /// A web address.
    pub runbook: Option<Arc<str>>,
}

/// Names keys without a server, in one database or in whichever the entries name.
#[derive(Debug)]
pub struct Explainer {
    resolver: Resolver,
    databases: Vec<Option<Arc<str>>>,
}

impl Explainer {
    /// With a database, templates are filled with its name, and its encoding is taken to be UTF8.
    pub fn new(registry: Arc<Registry>, database: Option<&str>) -> Self {
        let named = registry
            .entries
            .iter()
            .flat_map(|entry| entry.databases.iter().flatten().cloned())
            .map(Some)
            .chain([None]);
        let mut databases: Vec<Option<Arc<str>>> = match database {
            Some(database) => vec![Some(database.into())],
            None => named.collect(),
        };
        databases.sort_unstable();
        databases.dedup();
        let told = Circumstances {
            databases: databases.iter().flatten().map(|it| (it.clone(), "UTF8".into())).collect(),
            ..Circumstances::default()
        };
        Self { resolver: Resolver::new(registry, "".into(), &told), databases }
    }

    /// Every name that `key` has or may have, the most likely first: as a server would ask, whatever
    /// the servers that entries are restricted to.
    pub fn names(&self, key: Key) -> Vec<Naming> {
        let mut found: Vec<(usize, super::pattern::Rank, &Claim)> = Vec::new();
        for database in &self.databases {
            let database = database.as_deref();
            let standings =
                [database.map(Standing::Named), Some(Standing::Any), Some(Standing::Preset)];
            for (standing, number) in standings.into_iter().zip(0..) {
                let Some(standing) = standing else { continue };
                let claims = self
                    .resolver
                    .layers(database)
                    .filter_map(|layer| layer.standing(standing))
                    .flat_map(|claims| Claims::of(claims, key));
                found.extend(claims.map(|claim| (number, claim.rank(), claim)));
            }
        }
        found.sort_by(|a, b| (a.0, a.1, &a.2.entry.name).cmp(&(b.0, b.1, &b.2.entry.name)));
        let mut names: Vec<Naming> = Vec::with_capacity(found.len());
        for (_, _, claim) in found {
            let naming = self.naming(claim, key);
            if !names.contains(&naming) {
                names.push(naming);
            }
        }
        names.sort_by_key(|naming| naming.doubt.is_some());
        names
    }

    fn naming(&self, claim: &Claim, key: Key) -> Naming {
        let entry = &claim.entry;
        let database = self.databases.iter().flatten().next().map(|name| &**name);
        let (doubt, _) = self.resolver.doubt(claim, database, key, Signs::default());
        let text = |said: &Option<super::entry::Said>| said.as_ref().map(|said| said.text.clone());
        Naming {
            name: entry.name.clone(),
            display: display_name(&entry.name, &claim.parameters(key)).into_owned(),
            reason: claim.candidate().to_string(),
            databases: entry.databases.clone(),
            doubt,
            is_preset: entry.is_preset,
            description: text(&entry.description),
            owner: text(&entry.owner),
            runbook: text(&entry.runbook),
        }
    }
}

impl Registry {
    /// Every key of every entry, files before presets, each in its own order. With a database,
    /// templates are filled with its name.
    pub fn keys(self: &Arc<Self>, database: Option<&str>) -> Vec<ListedKey> {
        let told = Circumstances {
            databases: database.map(|name| (name.into(), "UTF8".into())).into_iter().collect(),
            ..Circumstances::default()
        };
        let resolver = Resolver::new(self.clone(), "".into(), &told);
        let mut labels: std::collections::HashMap<*const KeyRule, Arc<str>> =
            std::collections::HashMap::new();
        let mut note = |claims: &Claims| {
            for claim in claims.iter() {
                let label = claim.series().unwrap_or_else(|| claim.shape.to_string().into());
                labels.entry(std::ptr::from_ref(claim.rule())).or_insert(label);
            }
        };
        for layer in resolver.layers(database) {
            layer.named.values().for_each(&mut note);
            note(&layer.any);
            note(&layer.presets);
        }
        let rows =
            self.entries.iter().flat_map(|entry| entry.rules.iter().map(move |rule| (entry, rule)));
        rows.map(|(entry, rule)| ListedKey {
            name: entry.name.clone(),
            written: rule.written.clone(),
            key: labels.get(&std::ptr::from_ref(rule)).cloned(),
            databases: entry.databases.clone(),
            servers: entry
                .servers
                .as_ref()
                .map(|globs| globs.iter().map(ToString::to_string).collect()),
            origin: entry.origin(rule.at),
            description: entry.description.as_ref().map(|said| said.text.clone()),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    const TEXT: &str = "presets: { grafana: {}, airflow: {} }\n\
         locks:\n\
         - { name: job, keys: [42, { hashtext: jobs }], servers: ['a*'], databases: [app] }\n\
         - { name: tenant, key: { pair: [7, '*'] }, parameter: tenant }\n\
         - { name: bucket, key: { integer: '{n}' }, values: { n: ['1', '5'] } }\n\
         - { name: asked, key: { integer: '{n}' }, values: { n: { query: table q, database: app } } }\n\
         - { name: of database, key: { integer: '{database}' } }\n\
         - { name: two, key: 2 }\n";

    #[test]
    fn every_key_of_every_entry_is_listed_with_what_can_be_computed_of_it() {
        let registry = Arc::new(registry(TEXT));
        let rows = |database: Option<&str>| -> Vec<(String, String, Option<String>)> {
            let keys = registry.keys(database).into_iter();
            keys.map(|it| {
                (it.name.to_string(), it.written.to_string(), it.key.map(|key| key.to_string()))
            })
            .collect()
        };
        let row = |name: &str, written: &str, key: Option<&str>| {
            (name.to_owned(), written.to_owned(), key.map(str::to_owned))
        };
        let (in_99, anywhere) = (rows(Some("99")), rows(None));
        assert_eq!(
            in_99[..8],
            [
                row("job", "42", Some("42")),
                row("job", "hashtext(\"jobs\")", Some("-1679774495")),
                row("tenant", "(7,*)", Some("(7,*)")),
                row("bucket", "integer(\"{n}\", base 10)", Some("values(n)")),
                row("asked", "integer(\"{n}\", base 10)", None),
                row("of database", "integer(\"{database}\", base 10)", Some("99")),
                row("two", "2", Some("2")),
                row("airflow-migrations", "1", Some("1")),
            ]
        );
        assert_eq!(anywhere[5].2, None, "which database?");
        assert_eq!(anywhere.len(), in_99.len());
    }

    #[test]
    fn a_key_is_explained_by_all_who_may_mean_it_the_likeliest_first() {
        let registry = Arc::new(registry(TEXT));
        let names = |database, key| -> Vec<(String, bool)> {
            let explainer = Explainer::new(registry.clone(), database);
            let names = explainer.names(key).into_iter();
            names.map(|it| (it.display, it.doubt.is_some())).collect()
        };
        let certain = |name: &str| (name.to_owned(), false);
        let candidate = |name: &str| (name.to_owned(), true);
        assert_eq!(names(None, Key::bigint(2)), [certain("two"), candidate("airflow-scheduler")]);
        assert_eq!(names(None, Key::bigint(42)), [certain("job")], "whatever the server");
        assert_eq!(names(Some("other"), Key::bigint(42)), []);
        assert_eq!(
            names(Some("5"), Key::bigint(5)),
            [certain("of database"), certain("bucket (n 5)")]
        );
        assert_eq!(names(None, Key::pair(7, -1)), [certain("tenant (tenant -1)")]);
    }

    #[test]
    fn a_form_that_a_key_has_by_chance_is_in_doubt_whoever_changed_the_preset() {
        let text = "locks: [{ name: rails-migrations, databases: [app], max_hold: 1h }]";
        let explainer = Explainer::new(Arc::new(registry(text)), Some("app"));
        let names = explainer.names(Key::bigint(2_053_462_845));
        assert!(names.iter().all(|it| it.doubt == Some(Doubt::Chance)), "{names:?}");
    }
}
