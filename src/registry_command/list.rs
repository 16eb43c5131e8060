//! `locks registry list`: every name and its keys, as a table or as JSON.
//!
//! Pure: what the registry lists becomes text. Who names what is decided there.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::registry::{ListedKey, Origin};

/// Leaves out what an entry names in other databases only.
pub fn in_database(keys: Vec<ListedKey>, database: Option<&str>) -> Vec<ListedKey> {
    let is_meant = |key: &ListedKey| match (&key.databases, database) {
        (Some(databases), Some(database)) => databases.iter().any(|one| &**one == database),
        (None, _) | (_, None) => true,
    };
    keys.into_iter().filter(is_meant).collect()
}

/// A line for each key, in columns; a column that is empty everywhere is left out.
pub fn render_table(keys: &[ListedKey]) -> String {
    let rows: Vec<[String; 6]> = keys.iter().map(row).collect();
    let heads = ["NAME", "KEY", "DATABASES", "SERVERS", "FROM", "WRITTEN AS"];
    let columns: Vec<usize> = (0..heads.len())
        .filter(|&column| rows.is_empty() || rows.iter().any(|row| !row[column].is_empty()))
        .collect();
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].as_str()).chain([heads[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().map(|&column| width(column)).collect();
    let mut table = String::new();
    let mut write_line = |cells: [&str; 6]| {
        let mut line = String::new();
        for (&column, &width) in columns.iter().zip(&widths) {
            let _ = write!(line, "{:width$}  ", cells[column]);
        }
        table.push_str(line.trim_end());
        table.push('\n');
    };
    write_line(heads);
    for row in &rows {
        write_line(row.each_ref().map(String::as_str));
    }
    table
}

fn row(key: &ListedKey) -> [String; 6] {
    let is_same = key.key.as_ref() == Some(&key.written);
    [
        key.name.to_string(),
        // What needs a server or a database cannot be computed here.
        key.key.as_deref().unwrap_or("?").to_owned(),
        key.databases.as_ref().map_or("any".to_owned(), |names| names.join(", ")),
        key.servers.as_ref().map(|names| names.join(", ")).unwrap_or_default(),
        key.origin.to_string(),
        // Only where it tells more than the key.
        if is_same { String::new() } else { key.written.to_string() },
    ]
    .map(|cell| cell.replace(char::is_control, "\u{fffd}"))
}

/// One object with a list of keys. Null stands for any database and any server, and for a key that
/// cannot be computed without a database or a server.
pub fn render_json(keys: &[ListedKey]) -> String {
    let keys: Vec<Value> = keys
        .iter()
        .map(|key| {
            let (file, line, preset) = match &key.origin {
                Origin::File { file, line, .. } => (Some(file), Some(line), None),
                Origin::Preset(name) => (None, None, Some(name)),
            };
            json!({
                "name": key.name,
                "key": key.key,
                "written": key.written,
                "databases": key.databases,
                "servers": key.servers,
                "file": file,
                "line": line,
                "preset": preset,
                "description": key.description,
            })
        })
        .collect();
    format!("{:#}\n", json!({ "keys": keys }))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::registry::{Registry, Source};

    const TEXT: &str = "locks:
- { name: tenant-reindex, key: { pair: [7, '*'] }, databases: [app, app2] }
- { name: cron, keys: [{ hashtext: jobs }, 42], servers: ['orders-*'] }
- { name: migrations, key: { crc32: '{database}' } }
";

    fn listed(text: &str, database: Option<&str>) -> Vec<ListedKey> {
        let source = Source { name: "a.yaml".into(), text: text.into() };
        let registry = Arc::new(Registry::parse(&[source]).unwrap());
        let mut keys = in_database(registry.keys(database), database);
        keys.retain(|key| matches!(key.origin, Origin::File { .. }));
        keys
    }

    #[test]
    fn names_are_listed_with_their_keys_and_places() {
        assert_eq!(
            render_table(&listed(TEXT, None)),
            "\
NAME            KEY          DATABASES  SERVERS   FROM      WRITTEN AS
tenant-reindex  (7,*)        app, app2            a.yaml:2
cron            -1679774495  any        orders-*  a.yaml:3  hashtext(\"jobs\")
cron            42           any        orders-*  a.yaml:3
migrations      ?            any                  a.yaml:4  crc32(\"{database}\")
"
        );
    }

    #[test]
    fn a_database_leaves_out_what_names_nothing_in_it() {
        assert_eq!(listed(TEXT, Some("other")).len(), 3);
        assert_eq!(listed(TEXT, Some("app2")).len(), 4);
    }

    #[test]
    fn a_database_fills_templates() {
        let keys = listed(TEXT, Some("app"));
        // crc32 of "app", as every implementation has it.
        assert_eq!(keys[3].key.as_deref(), Some("3379458255"));
    }

    #[test]
    fn columns_that_say_nothing_are_left_out() {
        assert_eq!(
            render_table(&listed("locks: [{ name: a, key: 1 }]", None)),
            "NAME  KEY  DATABASES  FROM\na     1    any        a.yaml:1\n"
        );
    }

    #[test]
    fn scripts_get_the_same_as_json() {
        let json: Value = serde_json::from_str(&render_json(&listed(TEXT, Some("x")))).unwrap();
        assert_eq!(json["keys"].as_array().unwrap().len(), 3);
        assert_eq!(
            json["keys"][0],
            json!({
                "name": "cron",
                "key": "-1679774495",
                "written": "hashtext(\"jobs\")",
                "databases": null,
                "servers": ["orders-*"],
                "file": "a.yaml",
                "line": 3,
                "preset": null,
                "description": null,
            })
        );
    }
}
