//! Maps and sets by hash for what there may be very much of: keys, holds, sessions. Clients of a server
//! choose keys, so the hash is seeded by chance; it is several times quicker than the one of the
//! standard library, which every poll would pay for a hundred thousand times over.

/// A map of the standard library with another hash.
pub type HashMap<K, V> = std::collections::HashMap<K, V, foldhash::fast::RandomState>;

/// A set of the standard library with another hash.
pub type HashSet<T> = std::collections::HashSet<T, foldhash::fast::RandomState>;
