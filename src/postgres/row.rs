//! Rows of the poll → [`Sample`](crate::sample::Sample) values. Pure: no connection here.
//!
//! Only built-in types are read, so that the driver never has to look one up with a named
//! statement. Order and number of columns are those of the `.sql` files beside this one.

use std::error::Error;
use std::net::IpAddr;
use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::{FromSql, Type};

use crate::key::Key;
use crate::mode::Mode;
use crate::sample::{
    Backend, DatabaseOid, KeyGroup, LockRow, LockTag, Pid, PreparedTransaction, RoleOid, State,
    TransactionId, VirtualTransaction,
};
use crate::timestamp::Timestamp;

/// Splits the rows of `locks.sql` into advisory groups and the rest.
pub(super) fn decode_locks(
    rows: &[Row],
) -> Result<(Vec<KeyGroup>, Vec<LockRow>), tokio_postgres::Error> {
    let mut advisory = Vec::with_capacity(rows.len());
    let mut others = Vec::new();
    for row in rows {
        let locktype: &str = row.try_get::<_, Option<&str>>(0)?.unwrap_or_default();
        let database = row.try_get::<_, Option<u32>>(1)?.map(DatabaseOid);
        let objsubid: Option<i16> = row.try_get(7)?;
        let transaction =
            VirtualTransaction::from_server(row.try_get::<_, Option<&str>>(8)?.unwrap_or_default());
        let pid = row.try_get::<_, Option<i32>>(9)?.map(Pid);
        let mode = Mode::from_server(row.try_get::<_, Option<&str>>(10)?.unwrap_or("unknown"));
        // Servers that only speak PostgreSQL's protocol leave out what they do not know. A row that
        // does not say that it waits is told as held.
        let granted = row.try_get::<_, Option<bool>>(11)?.unwrap_or(true);
        let wait_start: Option<Timestamp> = row.try_get(12)?;
        let words = row.try_get::<_, Option<&[u8]>>(13)?.unwrap_or_default();
        if locktype == "advisory" {
            let class = objsubid.unwrap_or_default().cast_unsigned();
            advisory.push(KeyGroup {
                database: database.unwrap_or(DatabaseOid::SERVER_WIDE),
                pid,
                transaction,
                mode,
                granted,
                wait_start,
                keys: decode_keys(words, class),
            });
            continue;
        }
        let tag = LockTag {
            locktype: locktype.into(),
            database,
            relation: row.try_get(2)?,
            page: row.try_get(3)?,
            tuple: row.try_get(4)?,
            virtualxid: row.try_get::<_, Option<&str>>(5)?.map(Arc::from),
            transactionid: row.try_get(6)?,
            object: None,
            objsubid,
        };
        let lock = LockRow { tag, pid, transaction, mode, granted, wait_start };
        // Rows that differ only in classid and objid were folded too; each is a lock of its own.
        let mut objects = decode_words(words)
            .map(|word| Key::from_word(word, 0))
            .map(|key| (key.classid(), key.objid()))
            .peekable();
        if objects.peek().is_none() {
            others.push(lock);
        } else {
            others.extend(objects.map(|object| LockRow {
                tag: LockTag { object: Some(object), ..lock.tag.clone() },
                ..lock.clone()
            }));
        }
    }
    Ok((advisory, others))
}

/// The keys of advisory rows that were folded into one. Rows without classid and objid are left out
/// of the words, and are a lock all the same.
fn decode_keys(words: &[u8], class: u16) -> Vec<Key> {
    if words.is_empty() {
        return vec![Key::from_word(0, class)];
    }
    decode_words(words).map(|word| Key::from_word(word, class)).collect()
}

/// The words of `string_agg(int8send(…), '')`.
fn decode_words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.as_chunks::<8>().0.iter().map(|word| u64::from_be_bytes(*word))
}

/// The rows of `activity.sql`, and when their statement began.
pub(super) fn decode_activity(
    rows: &[Row],
) -> Result<(Option<Timestamp>, Vec<Backend>), tokio_postgres::Error> {
    let began = rows.first().map(|row| row.try_get(0)).transpose()?;
    let backends = rows.iter().filter_map(|row| decode_backend(row).transpose());
    let backends = backends.collect::<Result<_, _>>()?;
    Ok((began, backends))
}

/// `None` for a row that is nobody's.
fn decode_backend(row: &Row) -> Result<Option<Backend>, tokio_postgres::Error> {
    let Some(pid) = row.try_get::<_, Option<i32>>(1)? else { return Ok(None) };
    let wait_event_type: Option<&str> = row.try_get(7)?;
    let wait_event: Option<&str> = row.try_get(8)?;
    Ok(Some(Backend {
        pid: Pid(pid),
        database: row.try_get::<_, Option<u32>>(2)?.filter(|oid| *oid != 0).map(DatabaseOid),
        role: row.try_get::<_, Option<u32>>(3)?.filter(|oid| *oid != 0).map(RoleOid),
        application_name: row.try_get::<_, Option<Text>>(4)?.map(|name| name.0),
        state: State::from_server(row.try_get(5)?),
        state_change: row.try_get(6)?,
        wait_event: wait_event_type
            .zip(wait_event)
            .map(|(kind, name)| format!("{kind}/{name}").into()),
        backend_start: row.try_get(9)?,
        client_addr: row.try_get::<_, Option<IpAddr>>(10)?,
        client_port: row.try_get(11)?,
        snapshot_age: row.try_get::<_, Option<i32>>(12)?.and_then(|age| u32::try_from(age).ok()),
        backend_type: row.try_get::<_, Option<&str>>(13)?.map(Arc::from),
        leader: row.try_get::<_, Option<i32>>(14)?.map(Pid),
    }))
}

/// One row of `prepared.sql`.
pub(super) fn decode_prepared(row: &Row) -> Result<PreparedTransaction, tokio_postgres::Error> {
    Ok(PreparedTransaction {
        transaction: row.try_get(0)?,
        gid: row.try_get::<_, Text>(1)?.0,
        prepared_at: row.try_get(2)?,
        owner: RoleOid(row.try_get(3)?),
        database: DatabaseOid(row.try_get(4)?),
    })
}

/// A name somebody chose, in whatever encoding: what is no UTF-8 in it is shown as such.
pub(super) struct Text(pub(super) Arc<str>);

impl FromSql<'_> for Text {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(String::from_utf8_lossy(raw).into()))
    }

    fn accepts(ty: &Type) -> bool {
        matches!(*ty, Type::TEXT | Type::NAME)
    }
}

impl FromSql<'_> for TransactionId {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self(u32::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::XID
    }
}

impl FromSql<'_> for Timestamp {
    fn from_sql(_: &Type, raw: &[u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
        Ok(Self::from_postgres_micros(i64::from_be_bytes(raw.try_into()?)))
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::TIMESTAMPTZ
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_come_back_in_order_and_whole() {
        let bytes: Vec<u8> = [42_i64, -1].iter().flat_map(|word| word.to_be_bytes()).collect();
        assert_eq!(decode_words(&bytes).collect::<Vec<_>>(), [42, u64::MAX]);
        assert_eq!(decode_words(&[]).count(), 0);
    }

    #[test]
    fn an_advisory_row_without_a_key_is_not_lost() {
        assert_eq!(decode_keys(&[], 0), [Key::from_word(0, 0)]);
        assert_eq!(decode_keys(&42_u64.to_be_bytes(), 1), [Key::from_word(42, 1)]);
    }
}
