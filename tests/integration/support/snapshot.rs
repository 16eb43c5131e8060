//! One key of the JSON snapshot, asked by those who hold it, await it or are told of it. A question
//! that has no answer panics with all that the snapshot says of the key.

use std::ops::Deref;

use serde_json::Value;

use super::{Exporter, Session};

/// What is said of a key; its fields are read as those of any JSON.
pub struct Lock(Value);

impl Deref for Lock {
    type Target = Value;

    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Exporter {
    /// What a poll that began after this call saw of a key of the only server.
    pub async fn lock(&self, key: &str) -> Lock {
        let lock = self.find_lock(key).await;
        lock.unwrap_or_else(|| panic!("nothing is said of {key}"))
    }

    /// The same, unless nothing is said of the key.
    pub async fn find_lock(&self, key: &str) -> Option<Lock> {
        self.scrape_fresh().await;
        let mut snapshot = self.snapshot().await;
        let locks = snapshot["locks"].as_array_mut().expect("locks are known");
        let index = locks.iter().position(|lock| lock["key"]["text"] == key)?;
        Some(Lock(locks.swap_remove(index)))
    }
}

impl Lock {
    /// A key of a snapshot that was fetched otherwise.
    pub fn of(value: Value) -> Lock {
        Lock(value)
    }

    /// The session as a holder.
    #[track_caller]
    pub fn holder(&self, session: &Session) -> &Value {
        self.find("holders", |holder| holder["pid"] == session.pid())
    }

    /// The only holder.
    #[track_caller]
    pub fn only_holder(&self) -> &Value {
        assert_eq!(self.count("holders"), 1, "not one holder: {:#}", self.0);
        &self.0["holders"][0]
    }

    /// The session as a waiter.
    #[track_caller]
    pub fn waiter(&self, session: &Session) -> &Value {
        self.find("waiters", |waiter| waiter["pid"] == session.pid())
    }

    /// How many `holders`, `waiters` or `findings` there are.
    #[track_caller]
    pub fn count(&self, list: &str) -> usize {
        self.list(list).len()
    }

    /// The names of its findings, in order.
    #[track_caller]
    pub fn findings(&self) -> Vec<&str> {
        self.list("findings").iter().filter_map(|finding| finding["finding"].as_str()).collect()
    }

    /// The finding of this name.
    #[track_caller]
    pub fn finding(&self, name: &str) -> &Value {
        self.find("findings", |finding| finding["finding"] == name)
    }

    #[track_caller]
    fn find(&self, list: &str, is_it: impl Fn(&&Value) -> bool) -> &Value {
        let found = self.list(list).iter().find(is_it);
        found.unwrap_or_else(|| panic!("not among {list}: {:#}", self.0))
    }

    #[track_caller]
    fn list(&self, name: &str) -> &Vec<Value> {
        self.0[name].as_array().unwrap_or_else(|| panic!("no {name}: {:#}", self.0))
    }
}

/// The pids of a list of waiters' blockers or roots; `None` for a prepared transaction.
#[track_caller]
pub fn pids(list: &Value) -> Vec<Option<i64>> {
    let list = list.as_array().unwrap_or_else(|| panic!("no list: {list}"));
    list.iter().map(|one| one["pid"].as_i64()).collect()
}

/// The first statement that a finding's remedy offers, as an operator would copy it.
#[track_caller]
pub fn statement(finding: &Value) -> &str {
    let remedy = finding["remedy"].as_str().unwrap_or_else(|| panic!("no remedy: {finding}"));
    let begin = remedy.find("SELECT pg_").unwrap_or_else(|| panic!("no statement: {remedy}"));
    let length = remedy[begin..].find(')').expect("a call has an end");
    &remedy[begin..=begin + length]
}
