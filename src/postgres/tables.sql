-- Which of these tables there are. Read from the catalog, since to_regclass() fails altogether for
-- a schema that our role may not use. A name that is none is no table's. The role's search path
-- decides where a bare name is looked for, so it stands, and all else is spelled out: any user can
-- have made a public.unnest(text[]), which fits better than the server's own.
SELECT wanted.name, relation.oid
FROM pg_catalog.unnest($1) AS wanted (name)
CROSS JOIN LATERAL (
    SELECT CASE WHEN wanted.name OPERATOR(pg_catalog.~)
        '^("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*)(\.("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*))?$'
        THEN pg_catalog.parse_ident(wanted.name) END
) AS parsed (parts)
LEFT JOIN LATERAL (
    SELECT c.oid
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n
        ON n.oid OPERATOR(pg_catalog.=) c.relnamespace
    WHERE c.relname OPERATOR(pg_catalog.=) parsed.parts[pg_catalog.cardinality(parsed.parts)]
      AND CASE WHEN pg_catalog.cardinality(parsed.parts) OPERATOR(pg_catalog.=) 1
               THEN pg_catalog.pg_table_is_visible(c.oid)
               ELSE n.nspname OPERATOR(pg_catalog.=) parsed.parts[1] END
) AS relation ON true
