-- Version 8 for PostgreSQL and TimescaleDB: the rights on the energy of jobs, on the values of charts and on tokens.

-- Creates the roles of version 7, and grants those that read the views their rights on what later versions added. Returns the roles that are
-- missing because this user must not create any; then an administrator calls it.
ALTER FUNCTION polymeter_create_roles() RENAME TO polymeter_create_roles_of_version_7;
CREATE FUNCTION polymeter_create_roles() RETURNS text[] LANGUAGE plpgsql AS $$
DECLARE
    missing CONSTANT text[] := polymeter_create_roles_of_version_7();
    role text;
BEGIN
    FOREACH role IN ARRAY ARRAY['polymeter_reader', 'polymeter_user'] LOOP
        CONTINUE WHEN role = ANY (missing);
        EXECUTE format('GRANT SELECT ON energy_by_job TO %I', role);
        EXECUTE format('GRANT EXECUTE ON FUNCTION polymeter_own_energy TO %I', role);
    END LOOP;
    -- Only collectors read the tokens of the API.
    IF NOT 'polymeter_reader' = ANY (missing) THEN
        REVOKE SELECT ON api_token FROM polymeter_reader;
    END IF;
    RETURN missing;
END
$$;
REVOKE EXECUTE ON FUNCTION polymeter_create_roles FROM PUBLIC;
REVOKE EXECUTE ON FUNCTION polymeter_own_energy FROM PUBLIC;

-- These must not find tables that a user made.
DO $$
DECLARE
    called regprocedure;
BEGIN
    FOR called IN
        SELECT oid FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
            AND proname IN ('polymeter_own_energy', 'polymeter_create_roles', 'samples_chart')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = %I, pg_temp', called, current_schema());
    END LOOP;
END
$$;
