-- What stays the same for the life of a connection: version, identity, the lock table's promised
-- size, after how long the server asks a silent client whether it lives (0 on a Unix socket, which
-- needs no asking), which settings of the poll the role brings itself (ALTER ROLE … SET, or options),
-- and when it was started, which no copy of it was at the same moment.
SELECT current_setting('server_version'),
       current_setting('max_locks_per_transaction')::int8
           * (current_setting('max_connections')::int8 + current_setting('max_prepared_transactions')::int8),
       current_setting('max_prepared_transactions')::int8,
       (SELECT system_identifier::text FROM pg_control_system()),
       ARRAY(SELECT name FROM pg_show_all_settings()
             WHERE source IN ('user', 'database user', 'client') AND setting <> '0'
               AND name IN ('statement_timeout', 'lock_timeout', 'work_mem', 'jit')),
       current_setting('tcp_keepalives_idle')::int8,
       (extract(epoch FROM pg_postmaster_start_time()) * 1000000)::int8
