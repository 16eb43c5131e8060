//! Who may read: names and bcrypt hashes of the web configuration, and the passwords that requests
//! bring.
//!
//! A hash is expensive by intent, so one is computed at a time, beside the thread that polls, and
//! what was verified once is remembered: a flood of wrong passwords holds up neither polls nor
//! those who are known. It knows no HTTP but the one header.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bcrypt::HashParts;
use sha2::{Digest as _, Sha256};
use tokio::sync::Semaphore;

/// The cost doubles the time with every step: 18 takes some seconds, and a scraper waits for ten.
const MAX_COST: u32 = 18;

/// Why a text is not the hash of a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum HashError {
    #[error(
        "not a bcrypt hash, which begins with $2y$, $2a$ or $2b$ and has 60 characters; make one \
         with: htpasswd -nBC 10 NAME"
    )]
    Form,
    #[error(
        "a hash of cost {0} takes too long to compute; make one of cost 10, at most {MAX_COST}"
    )]
    Cost(u32),
}

/// The hash of a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Hash {
    text: String,
    cost: u32,
}

impl Hash {
    pub(super) fn parse(text: &str) -> Result<Self, HashError> {
        let is_known = ["$2y$", "$2a$", "$2b$"].iter().any(|start| text.starts_with(start));
        let parts: HashParts = text.parse().map_err(|_| HashError::Form)?;
        match (is_known && text.len() == 60, parts.get_cost()) {
            (false, _) => Err(HashError::Form),
            (true, cost @ 4..=MAX_COST) => Ok(Self { text: text.to_owned(), cost }),
            (true, cost) => Err(HashError::Cost(cost)),
        }
    }
}

/// One computation after the other, and of each peer no more than one in line: who tries a hundred
/// passwords waits behind himself. Outlives the users, who change with the file.
pub(super) struct Turns {
    one: Arc<Semaphore>,
    peers: Arc<Mutex<Peers>>,
}

type Peers = HashMap<IpAddr, Arc<Semaphore>>;

impl Default for Turns {
    fn default() -> Self {
        Self { one: Arc::new(Semaphore::new(1)), peers: Arc::default() }
    }
}

impl Turns {
    /// Runs a computation beside this thread when its turn comes. Once begun it ends, also when
    /// nobody waits for it any more.
    async fn run<T: Send + 'static>(
        &self,
        peer: IpAddr,
        compute: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        const OPEN: &str = "these semaphores are never closed";
        let turn =
            lock(&self.peers).entry(peer).or_insert_with(|| Semaphore::new(1).into()).clone();
        let leaving = Leaving { peers: self.peers.clone(), peer };
        let in_line = turn.acquire_owned().await.expect(OPEN);
        let permit = self.one.clone().acquire_owned().await.expect(OPEN);
        let computed = tokio::task::spawn_blocking(move || {
            // Given up in this order: whose turn is next finds the last of a peer forgotten.
            let _held = (in_line, leaving, permit);
            compute()
        })
        .await;
        computed.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// Forgets a peer of whom nobody is in line, also where a client hung up while it waited.
struct Leaving {
    peers: Arc<Mutex<Peers>>,
    peer: IpAddr,
}

impl Drop for Leaving {
    fn drop(&mut self) {
        let mut peers = lock(&self.peers);
        if peers.get(&self.peer).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            peers.remove(&self.peer);
        }
    }
}

/// What is behind these locks is whole at any moment, whatever panicked.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who may read.
pub(super) struct Users {
    hashes: BTreeMap<String, Hash>,
    /// What is computed for a name that nobody has, so that the time tells nothing of names.
    decoy_cost: u32,
    turns: Arc<Turns>,
    /// Of every user the fingerprint of the password that was right: as many as there are users,
    /// so that wrong ones push nothing out.
    verified: Arc<Mutex<HashMap<String, Fingerprint>>>,
    /// Makes fingerprints worthless outside of this process, and their comparison safe.
    salt: [u8; 32],
}

type Fingerprint = [u8; 32];

impl Users {
    /// At least one.
    pub(super) fn new(hashes: BTreeMap<String, Hash>, turns: Arc<Turns>) -> Self {
        let decoy_cost = hashes.values().map(|hash| hash.cost).max().unwrap_or(10);
        Self { hashes, decoy_cost, turns, verified: Arc::default(), salt: rand::random() }
    }

    /// Whether the value of an `Authorization` header, from this peer, is that of a user.
    pub(super) async fn admit(&self, authorization: &[u8], peer: IpAddr) -> bool {
        let Some((name, password)) = parse_basic(authorization) else { return false };
        let Some((name, hash)) = self.hashes.get_key_value(&*name) else {
            let cost = self.decoy_cost;
            let decoy = move || {
                let _ = bcrypt::hash_with_salt(password, cost, [0; 16]);
            };
            self.turns.run(peer, decoy).await;
            return false;
        };
        let fingerprint = self.fingerprint(name, &password);
        if self.is_verified(name, &fingerprint) {
            return true;
        }
        let (name, hash) = (name.clone(), hash.text.clone());
        let verified = self.verified.clone();
        let verify = move || {
            let is_right = bcrypt::verify(password, &hash).unwrap_or(false);
            if is_right {
                lock(&verified).insert(name, fingerprint);
            }
            is_right
        };
        self.turns.run(peer, verify).await
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.hashes.len()
    }

    fn is_verified(&self, name: &str, fingerprint: &Fingerprint) -> bool {
        lock(&self.verified).get(name) == Some(fingerprint)
    }

    fn fingerprint(&self, name: &str, password: &[u8]) -> Fingerprint {
        let mut digest = Sha256::new_with_prefix(self.salt);
        digest.update(name);
        // No name has a colon in it.
        digest.update(b":");
        digest.update(password);
        digest.finalize().into()
    }
}

/// Name and password of `Basic …`.
fn parse_basic(authorization: &[u8]) -> Option<(String, Vec<u8>)> {
    let (scheme, credentials) = authorization.split_at_checked(6)?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") {
        return None;
    }
    let mut name = BASE64_STANDARD.decode(credentials.trim_ascii()).ok()?;
    let colon = name.iter().position(|&byte| byte == b':')?;
    let password = name.split_off(colon + 1);
    name.truncate(colon);
    // A name that is not UTF-8 is nobody's, which is not told apart from any other of the kind.
    Some((String::from_utf8_lossy(&name).into_owned(), password))
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::StreamExt as _;
    use futures_util::stream::FuturesUnordered;
    use std::net::Ipv4Addr;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    /// Made by htpasswd -nbBC 4, and the same as other tools write it.
    fn hash(password: &str) -> String {
        bcrypt::hash(password, 4).unwrap()
    }

    fn users(pairs: &[(&str, &str)]) -> Users {
        let hashes = pairs
            .iter()
            .map(|(name, password)| ((*name).to_owned(), Hash::parse(&hash(password)).unwrap()));
        Users::new(hashes.collect(), Arc::default())
    }

    fn basic(text: impl AsRef<[u8]>) -> Vec<u8> {
        format!("Basic {}", BASE64_STANDARD.encode(text)).into_bytes()
    }

    #[test]
    fn a_hash_is_one_of_bcrypt_of_a_cost_that_can_be_afforded() {
        let body = "mDwo.lAisC94iLAyP81MCesa29IzH37oigHC/42V2pdJlUprsJPze";
        for version in ["2y", "2a", "2b"] {
            assert!(Hash::parse(&format!("${version}$10${body}")).is_ok(), "{version}");
        }
        for (text, error) in [
            (format!("$2x$10${body}"), HashError::Form),
            (format!("$2y$10${body}x"), HashError::Form),
            (format!("$2y$10${}", &body[1..]), HashError::Form),
            (format!("$apr1$10${body}"), HashError::Form),
            ("secret".to_owned(), HashError::Form),
            (String::new(), HashError::Form),
            (format!("$2y$31${body}"), HashError::Cost(31)),
            (format!("$2y$19${body}"), HashError::Cost(19)),
            (format!("$2y$03${body}"), HashError::Cost(3)),
        ] {
            assert_eq!(Hash::parse(&text).err(), Some(error), "{text}");
        }
    }

    #[tokio::test]
    async fn a_user_with_his_own_password_is_admitted_and_nobody_else() {
        let users = users(&[("alice", "wonder:land"), ("bob", "")]);
        for (text, expected) in [
            ("alice:wonder:land", true),
            ("alice:wonder:land", true),
            ("bob:", true),
            ("alice:wonder", false),
            ("alice:", false),
            ("bob:wonder:land", false),
            ("carol:wonder:land", false),
            (":", false),
            ("alice", false),
        ] {
            assert_eq!(users.admit(&basic(text), PEER).await, expected, "{text}");
        }
        for header in ["", "Basic", "Basic ", "Basic !", "Bearer YWxpY2U6", "basicYWxpY2U6"] {
            assert!(!users.admit(header.as_bytes(), PEER).await, "{header}");
        }
        assert!(!users.admit(&basic(b"\xff:wonder:land"), PEER).await);
        let shouted = String::from_utf8(basic("bob:")).unwrap().replace("Basic", "BASIC");
        assert!(users.admit(shouted.as_bytes(), PEER).await);
    }

    #[tokio::test]
    async fn what_was_verified_is_not_computed_again_and_wrong_passwords_push_nothing_out() {
        let users = users(&[("alice", "right")]);
        assert!(users.admit(&basic("alice:right"), PEER).await);
        for attempt in 0..20 {
            assert!(!users.admit(&basic(format!("alice:{attempt}")), PEER).await);
            assert!(!users.admit(&basic(format!("mallory{attempt}:right")), PEER).await);
        }
        assert_eq!(lock(&users.verified).len(), 1);
        // With the only turn taken, nobody could be computed for.
        let _taken = users.turns.one.clone().acquire_owned().await.unwrap();
        assert!(users.admit(&basic("alice:right"), PEER).await);
        let wrong = basic("alice:wrong");
        let mut wrong = Box::pin(users.admit(&wrong, PEER));
        assert!(futures_util::poll!(&mut wrong).is_pending());
    }

    #[tokio::test]
    async fn of_one_peer_one_attempt_is_in_line_so_that_others_wait_for_no_more() {
        let users = users(&[("alice", "right")]);
        let other = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        let taken = users.turns.one.clone().acquire_owned().await.unwrap();
        let wrong = basic("alice:wrong");
        let mut flood: FuturesUnordered<_> = (0..50).map(|_| users.admit(&wrong, PEER)).collect();
        assert!(futures_util::poll!(flood.next()).is_pending());
        let honest = basic("alice:right");
        let mut honest = Box::pin(users.admit(&honest, other));
        assert!(futures_util::poll!(&mut honest).is_pending());
        drop(taken);
        // The first of the flood was before; the second is behind the honest one.
        let mut ended_before = 0;
        loop {
            tokio::select! {
                biased;
                admitted = &mut honest => {
                    assert!(admitted);
                    break;
                }
                Some(admitted) = flood.next() => {
                    assert!(!admitted);
                    ended_before += 1;
                }
            }
        }
        assert!(ended_before <= 2, "{ended_before} of the flood were before the other peer");
        // Of these one may still be computed for.
        drop(flood);
        let _idle = users.turns.one.acquire().await.unwrap();
        assert!(lock(&users.turns.peers).is_empty(), "whoever left is forgotten");
    }
}
