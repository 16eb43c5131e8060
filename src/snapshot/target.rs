//! What a lock of another type than advisory is about, in words: `relation 16402 in app`.
//!
//! A phrase for each `locktype` of `pg_locks`, and for a type that is not known what its columns
//! say. Numbers are the server's own: whose they are only its catalog knows, which is not read.

use std::fmt::Write as _;

use crate::sample::{DatabaseOid, LockTag};

/// The lock in words. `datname` is the name of its database, where that is known.
pub(crate) fn render_target(tag: &LockTag, datname: Option<&str>) -> String {
    let relation = || format!("relation {}", shown(tag.relation));
    let page = || shown(tag.page);
    let transaction = || shown(tag.transactionid.map(|id| id.0));
    let thing = match &*tag.locktype {
        "relation" => relation(),
        "extend" => format!("extension of {}", relation()),
        "page" => format!("page {} of {}", page(), relation()),
        "tuple" => format!("tuple ({},{}) of {}", page(), shown(tag.tuple), relation()),
        "frozenid" => "frozen transaction ids".to_owned(),
        "transactionid" => format!("transaction {}", transaction()),
        "virtualxid" => format!("virtual transaction {}", shown(tag.virtualxid.as_ref())),
        "spectoken" => format!("speculative insertion of transaction {}", transaction()),
        "applytransaction" => format!("remote transaction {}", transaction()),
        "object" => match tag.object {
            Some((class, object)) => match tag.objsubid.unwrap_or(0) {
                0 => format!("object {object} of class {class}"),
                part => format!("part {part} of object {object} of class {class}"),
            },
            None => "object ?".to_owned(),
        },
        _ => render_unknown(tag),
    };
    match (tag.database, datname) {
        (None | Some(DatabaseOid::SERVER_WIDE), _) => thing,
        (Some(_), Some(datname)) => format!("{thing} in {datname}"),
        (Some(database), None) => format!("{thing} in database {database}"),
    }
}

fn shown(column: Option<impl ToString>) -> String {
    column.map_or_else(|| "?".to_owned(), |value| value.to_string())
}

/// By the columns that it has.
fn render_unknown(tag: &LockTag) -> String {
    let mut text = format!("{} lock", tag.locktype);
    let columns: [(&str, Option<String>); 7] = [
        ("relation", tag.relation.map(|it| it.to_string())),
        ("page", tag.page.map(|it| it.to_string())),
        ("tuple", tag.tuple.map(|it| it.to_string())),
        ("virtualxid", tag.virtualxid.as_deref().map(ToOwned::to_owned)),
        ("transactionid", tag.transactionid.map(|it| it.0.to_string())),
        ("classid, objid", tag.object.map(|(class, object)| format!("{class}, {object}"))),
        ("objsubid", tag.objsubid.map(|it| it.to_string())),
    ];
    let mut sign = " on";
    for (column, value) in columns.into_iter().filter_map(|(column, it)| Some((column, it?))) {
        // Writing to a string never fails.
        let _ = write!(text, "{sign} {column} {value}");
        sign = ",";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::TransactionId;

    fn tag(locktype: &str) -> LockTag {
        LockTag {
            locktype: locktype.into(),
            transactionid: None,
            ..LockTag::of_transaction(TransactionId(731))
        }
    }

    fn relation(locktype: &str) -> LockTag {
        let database = Some(DatabaseOid(5));
        LockTag { database, relation: Some(16402), page: Some(3), tuple: Some(7), ..tag(locktype) }
    }

    #[test]
    fn every_type_of_lock_has_its_phrase() {
        let transaction = LockTag::of_transaction(TransactionId(731));
        let object = LockTag { object: Some((1262, 16384)), objsubid: Some(0), ..tag("object") };
        let cases = [
            (relation("relation"), "relation 16402 in app"),
            (relation("extend"), "extension of relation 16402 in app"),
            (relation("page"), "page 3 of relation 16402 in app"),
            (relation("tuple"), "tuple (3,7) of relation 16402 in app"),
            (relation("frozenid"), "frozen transaction ids in app"),
            (transaction.clone(), "transaction 731"),
            (
                LockTag { virtualxid: Some("4/56".into()), ..tag("virtualxid") },
                "virtual transaction 4/56",
            ),
            (
                LockTag { locktype: "spectoken".into(), ..transaction.clone() },
                "speculative insertion of transaction 731",
            ),
            (
                LockTag { locktype: "applytransaction".into(), ..transaction },
                "remote transaction 731",
            ),
            (object.clone(), "object 16384 of class 1262"),
            (LockTag { objsubid: Some(2), ..object }, "part 2 of object 16384 of class 1262"),
        ];
        for (tag, phrase) in cases {
            assert_eq!(render_target(&tag, Some("app")), phrase);
        }
    }

    #[test]
    fn a_type_that_is_not_known_is_told_by_its_columns() {
        let tag = LockTag { tuple: None, object: Some((1, 2)), ..relation("weather") };
        let phrase = "weather lock on relation 16402, page 3, classid, objid 1, 2 in app";
        assert_eq!(render_target(&tag, Some("app")), phrase);
    }

    #[test]
    fn what_is_not_known_is_no_number() {
        assert_eq!(render_target(&relation("relation"), None), "relation 16402 in database 5");
        let shared = LockTag { database: Some(DatabaseOid::SERVER_WIDE), ..relation("relation") };
        assert_eq!(render_target(&shared, None), "relation 16402");
        assert_eq!(render_target(&tag("transactionid"), None), "transaction ?");
    }
}
