//! `locks registry list`: every name and its keys, as a table or as JSON.
//!
//! Pure: what the registry lists becomes text. Who names what is decided there.

use std::fmt::Write as _;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::registry::{ListedKey, Origin};

/// A line for each key, in columns; a column that is empty everywhere is left out.
pub fn render_table(keys: &[ListedKey]) -> String {
    let rows: Vec<[String; 6]> = keys.iter().map(row).collect();
    let heads = ["NAME", "KEY", "WRITTEN AS", "DATABASES", "SERVERS", "FROM"];
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
    let list = |names: &Option<Vec<Arc<str>>>| {
        names.as_ref().map(|names| names.join(", ")).unwrap_or_default()
    };
    [
        key.name.to_string(),
        key.key.to_string(),
        // Only where it tells more than the key.
        if key.written == key.key { String::new() } else { key.written.to_string() },
        key.databases.as_ref().map_or("any".to_owned(), |names| names.join(", ")),
        list(&key.servers),
        key.origin.to_string(),
    ]
    .map(|cell| cell.replace(char::is_control, "\u{fffd}"))
}

/// One object with a list of keys. Null stands for any database and any server.
pub fn render_json(keys: &[ListedKey]) -> String {
    let keys: Vec<Value> = keys
        .iter()
        .map(|key| {
            let (file, line, preset) = match &key.origin {
                Origin::File { file, line } => (Some(file), Some(line), None),
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
            })
        })
        .collect();
    format!("{:#}\n", json!({ "keys": keys }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::{Registry, Source};

    const TEXT: &str = "locks:
- { name: tenant-reindex, key: { pair: [7, '*'] }, databases: [app, app2] }
- { name: cron, keys: [{ hashtext: jobs }, 42], servers: ['orders-*'] }
";

    fn listed(text: &str, database: Option<&str>) -> Vec<ListedKey> {
        let source = Source { name: "a.yaml".into(), text: text.into() };
        Registry::parse(&[source]).unwrap().listed_keys(database)
    }

    #[test]
    fn names_are_listed_with_their_keys_and_places() {
        assert_eq!(
            render_table(&listed(TEXT, None)),
            "\
NAME            KEY          WRITTEN AS        DATABASES  SERVERS   FROM
cron            -1679774495  hashtext(\"jobs\")  any        orders-*  a.yaml:3
cron            42                             any        orders-*  a.yaml:3
tenant-reindex  (7,*)                          app, app2            a.yaml:2
"
        );
    }

    #[test]
    fn a_database_leaves_out_what_names_nothing_in_it() {
        assert_eq!(listed(TEXT, Some("other")).len(), 2);
        assert_eq!(listed(TEXT, Some("app2")).len(), 3);
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
            })
        );
    }
}
