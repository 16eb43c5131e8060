-- Prepared transactions, from the function under pg_prepared_xacts. Asked for only where the
-- server allows any.
SELECT transaction, gid, prepared, ownerid, dbid FROM pg_prepared_xact()
