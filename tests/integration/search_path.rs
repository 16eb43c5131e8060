//! What the exporter calls is the server's own, wherever the search path of its role leads: any user
//! may have made a function of the same name, and would have it run with the exporter's rights.

use crate::support::{Exporter, Postgres, eventually, require};

/// A twin in `public` for whatever the server has there in its catalog, of the same name and the
/// same arguments, that complains when it is called. What PL/pgSQL cannot be written for is left
/// out.
const SHADOWS: &str = r#"
DO $do$
DECLARE twin record;
BEGIN
    FOR twin IN
        SELECT format('CREATE FUNCTION public.%I(%s) RETURNS %s LANGUAGE plpgsql AS '
                      '$$ BEGIN RAISE EXCEPTION ''a shadow was called: %s''; END $$',
                      proname, pg_get_function_arguments(oid), pg_get_function_result(oid), proname)
            AS sql
        FROM pg_proc WHERE pronamespace = 'pg_catalog'::regnamespace
        UNION ALL
        SELECT format('CREATE OPERATOR public.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = public.%I)',
                      oprname, oprleft::regtype, oprright::regtype, proname)
        FROM pg_operator JOIN pg_proc ON pg_proc.oid = oprcode
        WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprleft <> 0
    LOOP
        BEGIN
            EXECUTE twin.sql;
        EXCEPTION WHEN OTHERS THEN
            NULL;
        END;
    END LOOP;
END
$do$;
-- Fits an array of text better than the one that takes any array, without any help of the path.
CREATE FUNCTION public.unnest(text[]) RETURNS SETOF text LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'a shadow was called: unnest of text'; END $$;
CREATE FUNCTION public.cardinality(text[]) RETURNS int LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'a shadow was called: cardinality of text'; END $$;
"#;

#[tokio::test]
async fn no_function_of_a_user_is_ever_called() {
    require!(Postgres);
    let postgres = Postgres::builder().setting("max_prepared_transactions", 2).start().await;
    let admin = postgres.session("admin").await;
    admin.run(SHADOWS).await;
    let count = "SELECT count(*) > 2000 AND bool_or(proname = 'pg_lock_status') FROM pg_proc \
                 WHERE pronamespace = 'public'::regnamespace";
    assert_eq!(admin.value(count).await.as_deref(), Some("t"), "most have a twin");
    let count = "SELECT count(*) > 500 FROM pg_operator \
                 WHERE oprnamespace = 'public'::regnamespace";
    assert_eq!(admin.value(count).await.as_deref(), Some("t"), "so have operators");
    admin.run("CREATE TABLE public.dag_run (id bigint)").await;
    for (role, path) in [("usual", "public"), ("strange", "public, pg_catalog")] {
        admin.run(&format!("CREATE ROLE {role} LOGIN; GRANT pg_monitor TO {role}")).await;
        admin.run(&format!("ALTER ROLE {role} SET search_path = {path}")).await;
    }
    admin.run("SET search_path = public, pg_catalog").await;
    let called = admin.try_run("SELECT hashtext('jobs')").await;
    assert!(called.is_err(), "the path leads to the twins");
    admin.run("RESET search_path").await;
    let told = postgres.log().matches("a shadow was called").count();

    let _jobs = postgres.holds("pod-a", "hashtext('jobs')").await;
    let _scheduler = postgres.holds("pod-b", "2").await;
    let _customer = postgres.holds("pod-c", "hashtext('customer-7')").await;
    let registry = "locks:
  - { name: jobs, key: { hashtext: jobs } }
  - name: customer
    key: { hashtext: \"customer-{id}\" }
    values: { id: { query: \"VALUES ('7')\", database: app } }
";
    for role in ["usual", "strange"] {
        let dsn = postgres.dsn("app").replace("postgres@", &format!("{role}@"));
        let exporter = Exporter::builder()
            .config(&format!("servers: [{{ name: here, dsn: '{dsn}', inspect: [app] }}]"))
            .registry(registry)
            .start()
            .await;
        eventually("all that is asked is answered", async || {
            let scrape = exporter.scrape_fresh().await;
            scrape.sample("pg_advisory_hash_mismatches").is(0.0);
            for lock in ["jobs", "airflow-scheduler", "customer"] {
                let holders = scrape.sample("pg_advisory_lock_holders").with("datname", "app");
                holders.with("lock", lock).is(1.0);
            }
            scrape.sample("pg_advisory_lock_table_entries").present();
        })
        .await;
        let failures = exporter.scrape().await;
        let failures = failures.sample("pg_advisory_poll_failures_total").values();
        assert!(failures.iter().all(|count| *count == 0.0), "{role}: {}", exporter.log());
    }
    let told_now = postgres.log().matches("a shadow was called").count();
    assert_eq!(told_now, told, "{}", postgres.log());
}
