-- Every backend, once, and after the lock table: only so does an idle state say anything about the
-- rows seen before. The function under pg_stat_activity answers while the view, which joins
-- catalogs, hangs on somebody's lock. No query text: it may hold what must not leave the server.
-- statement_timestamp() is when this statement began: the lock table had been read by then.
SELECT statement_timestamp(), pid, datid, usesysid, application_name, state, state_change, wait_event_type, wait_event,
       backend_start, client_addr, client_port, age(backend_xmin), backend_type, leader_pid
FROM pg_stat_get_activity(NULL)
