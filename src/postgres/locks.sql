-- The lock table, in one call of the function under the view. Advisory rows are folded by all but
-- their key; the other rows are what chains can run through: every request that waits, and what is
-- held outside the fast path. $1 are the relations somebody waited for in the sample before.
--
-- Grouping by transactionid, whose type has no order, makes the server hash instead of sort: it
-- expects five groups, and with 100,000 rows the sort spills to disk and takes twice as long.
-- On a server before 14 the column waitstart is replaced by a NULL when the text is chosen.
SELECT locktype, database, relation, page, tuple, virtualxid, transactionid, objsubid,
       virtualtransaction, pid, mode, granted, waitstart,
       string_agg(int8send((classid::int8 << 32) | objid::int8), '')
FROM pg_lock_status()
WHERE locktype = 'advisory'
   OR NOT granted
   OR (NOT fastpath AND mode <> 'SIReadLock' AND (locktype <> 'relation' OR relation = ANY ($1)))
GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13
