-- What our role may do, and what it brings. Rights that are not inherited do not count, since the
-- server does not count them either; rights that reach outside of the database count without, since
-- a query can take them. A role that this version does not know is NULL. From the functions and
-- catalogs alone, in one statement.
SELECT current_user::text,
       current_setting('server_version'),
       current_setting('server_version_num')::int4,
       me.rolsuper,
       me.rolconnlimit,
       (SELECT pg_has_role(current_user, oid, 'USAGE') FROM pg_roles WHERE rolname = 'pg_read_all_stats'),
       (SELECT pg_has_role(current_user, oid, 'USAGE') FROM pg_roles
        WHERE rolname = 'pg_use_reserved_connections'),
       (SELECT pg_has_role(current_user, oid, 'USAGE') FROM pg_roles WHERE rolname = 'pg_signal_backend'),
       (SELECT setting::int8 FROM pg_show_all_settings() WHERE name = 'reserved_connections'),
       EXISTS (SELECT FROM pg_show_all_settings()
               WHERE name = 'statement_timeout' AND setting <> '0'
                 AND source IN ('user', 'database user', 'client')),
       ARRAY(SELECT rolname::text FROM pg_roles
             WHERE rolname <> current_user
               AND (rolsuper OR rolname IN ('pg_execute_server_program', 'pg_read_server_files',
                                            'pg_write_server_files'))
               AND NOT me.rolsuper
               AND pg_has_role(current_user, oid, 'MEMBER')
             ORDER BY rolname)
FROM pg_roles AS me WHERE me.rolname = current_user
