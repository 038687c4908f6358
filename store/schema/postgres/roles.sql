-- The roles of the database.
--
-- polymeter_writer: a further collector. polymeter_reader: reads everything. polymeter_user: sees the user's
-- own jobs, and those of accounts that the user manages. Roles belong to the server: its databases share them, and another collector may create them at
-- the same time.

-- Creates the roles that are missing, grants all of them their rights on what the store has, and makes the
-- settings of the database. Returns the roles that are missing because this user must not create any; then an
-- administrator calls it.
CREATE FUNCTION polymeter_create_roles() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    roles CONSTANT text[] := ARRAY['polymeter_writer', 'polymeter_reader', 'polymeter_user'];
    user_views CONSTANT text[] := ARRAY['jobs', 'nodetime_by_job', 'metrics', 'metrics_by_job', 'metrics_by_device',
        'metrics_summary', 'metrics_by_job_summary', 'metrics_by_device_summary', 'metric_units', 'promoted_metrics',
        'promoted_metrics_job', 'usage_by_job', 'energy_by_job', 'stacks', 'histograms_by_job'];
    -- The last two are there if Citus distributes the samples.
    user_functions CONSTANT text[] := ARRAY['polymeter_own_jobs', 'polymeter_own_job_nodes',
        'polymeter_own_samples', 'polymeter_own_minutes'];
    collector_tables CONSTANT text[] := ARRAY['api_token'];
    store_schema text;
    store_owner oid;
    missing text[] := '{}';
    role text;
    item record;
BEGIN
    FOREACH role IN ARRAY roles LOOP
        BEGIN
            IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = role) THEN
                EXECUTE format('CREATE ROLE %I NOLOGIN', role);
                EXECUTE format('ALTER ROLE %I SET jit = off', role);
                IF role = 'polymeter_user' THEN
                    EXECUTE format('ALTER ROLE %I SET statement_timeout = ''5min''', role);
                END IF;
            END IF;
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL;
            WHEN insufficient_privilege THEN missing := missing || role;
        END;
    END LOOP;
    SELECT relnamespace::regnamespace::text, relowner INTO store_schema, store_owner
    FROM pg_class WHERE oid = 'samples'::regclass;
    FOREACH role IN ARRAY roles LOOP
        CONTINUE WHEN role = ANY (missing);
        EXECUTE format('GRANT USAGE ON SCHEMA %s TO %I', store_schema, role);
        IF EXISTS (SELECT FROM pg_namespace WHERE nspname = 'api' AND nspowner = store_owner) THEN
            EXECUTE format('GRANT USAGE ON SCHEMA api TO %I', role);
        END IF;
        FOR item IN
            SELECT format('%s.%I', store_schema, relname) AS name, relname, relkind FROM pg_class
            WHERE relnamespace = store_schema::regnamespace AND relowner = store_owner AND NOT relispartition
                AND relkind IN ('r', 'p', 'v', 'm', 'S')
        LOOP
            IF role = 'polymeter_writer' AND item.relkind = 'S' THEN
                EXECUTE format('GRANT USAGE ON SEQUENCE %s TO %I', item.name, role);
            ELSIF role = 'polymeter_writer' THEN
                EXECUTE format('GRANT SELECT, INSERT, UPDATE, DELETE ON %s TO %I', item.name, role);
            ELSIF item.relname = ANY (user_views)
                OR role = 'polymeter_reader' AND item.relkind <> 'S' AND item.relname <> ALL (collector_tables) THEN
                EXECUTE format('GRANT SELECT ON %s TO %I', item.name, role);
            END IF;
        END LOOP;
        FOR item IN
            SELECT oid::regprocedure AS name FROM pg_proc
            WHERE pronamespace = store_schema::regnamespace AND prosecdef AND proname LIKE 'polymeter\_%'
                AND (role = 'polymeter_writer' OR proname = ANY (user_functions))
        LOOP
            EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %I', item.name, role);
        END LOOP;
    END LOOP;
    -- Just-in-time compilation takes seconds for statements over a hundred chunks, and pays off for none of
    -- them. Members of a role do not inherit its settings, therefore the database limits the time of
    -- statements.
    BEGIN
        EXECUTE format('ALTER DATABASE %I SET jit = off', current_database());
        EXECUTE format('ALTER DATABASE %I SET statement_timeout = ''5min''', current_database());
        EXECUTE format('ALTER ROLE %s IN DATABASE %I SET statement_timeout = 0', store_owner::regrole, current_database());
    EXCEPTION
        WHEN insufficient_privilege THEN
            RAISE NOTICE 'cannot set jit and statement_timeout for the database: its owner must';
    END;
    RETURN missing;
END
$$;
REVOKE EXECUTE ON FUNCTION polymeter_create_roles FROM PUBLIC;

-- Functions with the rights of the owner, and those that users call, must not find tables that a user made.
DO $$
DECLARE
    called record;
BEGIN
    FOR called IN
        SELECT oid::regprocedure AS name, proname IN ('polymeter_create_partition', 'polymeter_create_rollup_partitions') AS creates_parts,
               proname LIKE 'polymeter\_own\_%' AS is_definer
        FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
            AND proname IN ('polymeter_create_partition', 'polymeter_create_rollup_partitions', 'polymeter_own_jobs',
                            'polymeter_own_job_nodes', 'polymeter_create_roles', 'polymeter_get_metrics',
                            'available_metrics', 'polymeter_chart', 'samples_chart')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called.name, current_schema());
        -- A writer does not own the tables, and may not attach a partition to them.
        IF called.creates_parts THEN
            EXECUTE format('ALTER FUNCTION %s SECURITY DEFINER', called.name);
        END IF;
        IF called.creates_parts OR called.is_definer THEN
            EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', called.name);
        END IF;
    END LOOP;
END
$$;
