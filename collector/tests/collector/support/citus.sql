-- Stand-ins for the objects of Citus that Polymeter uses, in a server without it: one server that is coordinator and worker.
-- They are where Citus has its own.
ALTER DATABASE postgres SET citus.shard_count = '32';
SET allow_system_table_mods = on;
SET search_path = pg_catalog, public;
INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) VALUES (99999, 'citus', 10, 11, false, '13.2-1');
CREATE ACCESS METHOD columnar TYPE TABLE HANDLER heap_tableam_handler;

-- The calls, in their order.
CREATE TABLE citus_call (number int8 GENERATED ALWAYS AS IDENTITY, text text NOT NULL);
CREATE TABLE pg_dist_local_group (groupid int4 NOT NULL);
INSERT INTO pg_dist_local_group VALUES (0);
CREATE TABLE pg_dist_node (nodeid int4, groupid int4, nodename text, nodeport int4, isactive boolean, noderole text, shouldhaveshards boolean);
INSERT INTO pg_dist_node VALUES (1, 0, 'coordinator.example', 5432, true, 'primary', false), (2, 1, 'worker.example', 5432, true, 'primary', true);
CREATE TABLE pg_dist_partition (logicalrelid regclass PRIMARY KEY);
-- A table is its only shard.
CREATE VIEW pg_dist_shard AS
SELECT oid::regclass AS logicalrelid, oid::int8 AS shardid FROM pg_class WHERE relkind = 'r' AND relname ~ '^samples_[0-9]{8}$';
CREATE TABLE citus_worker_setting (name text NOT NULL, setting text NOT NULL);
INSERT INTO citus_worker_setting VALUES ('max_prepared_transactions', '100');

-- Writers supply the key of each node; tests that insert rows themselves do not.
CREATE FUNCTION citus_check_key() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    of_series CONSTANT int4 := (SELECT public.polymeter_node_key(node) FROM public.series_block WHERE first_id <= NEW.series_id
                                ORDER BY first_id DESC LIMIT 1);
BEGIN
    IF NEW.node_key <> of_series THEN
        RAISE EXCEPTION 'the sample of series % has another key than its node', NEW.series_id;
    END IF;
    NEW.node_key := coalesce(NEW.node_key, of_series, 0);
    RETURN NEW;
END
$$;

CREATE FUNCTION create_distributed_table(table_name regclass, distribution_column text, colocate_with text DEFAULT 'default')
RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO citus_call (text) VALUES (format('create_distributed_table %s %s %s', table_name, distribution_column, colocate_with));
    INSERT INTO pg_dist_partition VALUES (table_name);
    IF table_name = 'public.samples'::regclass THEN
        EXECUTE 'CREATE TRIGGER citus_check_key BEFORE INSERT ON public.samples FOR EACH ROW EXECUTE FUNCTION pg_catalog.citus_check_key()';
    END IF;
END
$$;

CREATE FUNCTION create_distributed_function(function_name regprocedure) RETURNS void LANGUAGE sql SECURITY DEFINER AS $$
INSERT INTO citus_call (text) VALUES (format('create_distributed_function %s', function_name))
$$;

CREATE FUNCTION run_command_on_workers(command text)
RETURNS TABLE (nodename text, nodeport int4, success boolean, result text) LANGUAGE sql AS $$
SELECT nodename, nodeport, true, setting FROM pg_dist_node, citus_worker_setting
WHERE groupid > 0 AND command = 'SHOW ' || name
$$;

CREATE FUNCTION run_command_on_all_nodes(command text)
RETURNS TABLE (nodeid int4, success boolean, result text) LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE command INTO result;
    RETURN QUERY SELECT 2, true, result;
END
$$;

CREATE FUNCTION run_command_on_shards(table_name regclass, command text)
RETURNS TABLE (shardid int8, success boolean, result text) LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    INSERT INTO citus_call (text) VALUES (format('run_command_on_shards %s', table_name));
    EXECUTE replace(command, '%s', table_name::text) INTO result;
    RETURN QUERY SELECT table_name::oid::int8, true, result;
END
$$;

CREATE FUNCTION citus_shard_sizes() RETURNS TABLE (shard_id int4, size int8) LANGUAGE sql AS $$
SELECT shardid::int4, pg_total_relation_size(logicalrelid) FROM pg_dist_shard
$$;
GRANT SELECT ON citus_call, pg_dist_local_group, pg_dist_node, pg_dist_partition, pg_dist_shard, citus_worker_setting TO PUBLIC;
