-- Distinct entries of the shared lock table: 40 sessions that share one key use one. It is a second
-- pass over the table, so only every 15th poll asks. Hashed, not sorted, by transactionid as in
-- locks.sql.
SELECT count(*) FROM (
    SELECT 1 FROM pg_lock_status()
    WHERE NOT fastpath AND mode <> 'SIReadLock'
    GROUP BY locktype, database, relation, page, tuple, virtualxid, transactionid, classid, objid, objsubid
) AS entry
