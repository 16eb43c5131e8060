-- Who we are, and which rights of ours a read-only transaction does not bound: those of a superuser
-- and of the roles that reach outside of the database. Memberships count even where they are not
-- inherited, since a query can call set_config('role', …). Schemas are spelled out because a
-- search path can put others in front, and it has to stand for the query that comes next.
SELECT session_user::pg_catalog.text,
       ARRAY(SELECT rolname::pg_catalog.text FROM pg_catalog.pg_roles
             WHERE (rolsuper OR rolname OPERATOR(pg_catalog.=) ANY (ARRAY[
                        'pg_execute_server_program', 'pg_read_server_files', 'pg_write_server_files'
                    ]::pg_catalog.name[]))
               AND pg_catalog.pg_has_role(session_user, oid, 'MEMBER')
             ORDER BY rolname OPERATOR(pg_catalog.<>) session_user, rolname)
