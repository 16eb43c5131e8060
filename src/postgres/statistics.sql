-- What the server counts itself, from 19 on: waits for advisory locks that ended with the lock after
-- more than deadlock_timeout, and their time in milliseconds (a bigint in early test versions). Summed,
-- so that the answer is one row however the server divides a type up.
SELECT sum(waits)::int8, sum(wait_time)::float8 FROM pg_stat_lock WHERE locktype = 'advisory'
