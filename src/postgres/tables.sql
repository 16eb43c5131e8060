-- Which of these tables there are. Read from the catalog, since to_regclass() fails altogether for
-- a schema that our role may not use. A name that is none is no table's.
SELECT wanted.name, relation.oid
FROM unnest($1) AS wanted (name)
CROSS JOIN LATERAL (
    SELECT CASE WHEN wanted.name ~
        '^("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*)(\.("([^"]|"")+"|[[:alpha:]_][[:alnum:]_$]*))?$'
        THEN parse_ident(wanted.name) END
) AS parsed (parts)
LEFT JOIN LATERAL (
    SELECT c.oid
    FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
    WHERE c.relname = parsed.parts[cardinality(parsed.parts)]
      AND CASE cardinality(parsed.parts) WHEN 1 THEN pg_table_is_visible(c.oid)
                                         ELSE n.nspname = parsed.parts[1] END
) AS relation ON true
