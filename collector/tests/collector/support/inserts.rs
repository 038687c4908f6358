//! Triggers with which tests insert rows into the views of metadata, without a collector.

/// Triggers. Each row of `series` is a block, each row of `plan_change` an event.
pub(super) const POSTGRES: &str = "
    CREATE FUNCTION insert_series() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO series_shape (digest) VALUES (concat(NEW.metric, NEW.labels)) ON CONFLICT DO NOTHING;
        INSERT INTO series_shape_member (shape_id, position, metric, labels, role)
        SELECT shape_id, 0, NEW.metric, NEW.labels, NEW.role FROM series_shape WHERE digest = concat(NEW.metric, NEW.labels)
        ON CONFLICT DO NOTHING;
        INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
        SELECT coalesce(NEW.series_id, (SELECT coalesce(max(first_id), 0) + 1 FROM series_block)), shape_id, NEW.job_key, NEW.node,
            NEW.job_id
        FROM series_shape WHERE digest = concat(NEW.metric, NEW.labels);
        RETURN NEW;
    END $$;
    CREATE TRIGGER insert_series INSTEAD OF INSERT ON series FOR EACH ROW EXECUTE FUNCTION insert_series();
    CREATE FUNCTION count_series() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        UPDATE series_counter SET next_id = greatest(next_id, (SELECT max(first_id) + 1 FROM series_block));
        RETURN NULL;
    END $$;
    CREATE TRIGGER count_series AFTER INSERT ON series FOR EACH STATEMENT EXECUTE FUNCTION count_series();
    CREATE FUNCTION insert_plan_change() RETURNS trigger LANGUAGE plpgsql AS $$
    DECLARE
        content text := format('%s %s %s', NEW.metric, NEW.old_period_us, NEW.new_period_us);
    BEGIN
        INSERT INTO plan_change_set (digest) VALUES (content) ON CONFLICT DO NOTHING;
        INSERT INTO plan_change_set_member
        SELECT set_id, 0, NEW.metric, NEW.old_period_us, NEW.new_period_us FROM plan_change_set WHERE digest = content
        ON CONFLICT DO NOTHING;
        INSERT INTO plan_change_event (time, until, job_key, set_id, node, job_id, cause, actor, reason, level)
        SELECT NEW.time, NEW.until, NEW.job_key, set_id, NEW.node, NEW.job_id, NEW.cause, NEW.actor, NEW.reason, NEW.level
        FROM plan_change_set WHERE digest = content;
        RETURN NEW;
    END $$;
    CREATE TRIGGER insert_plan_change INSTEAD OF INSERT ON plan_change FOR EACH ROW EXECUTE FUNCTION insert_plan_change();
    CREATE FUNCTION insert_ledger() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO ledger_source (source) VALUES (NEW.source) ON CONFLICT DO NOTHING;
        INSERT INTO ledger_line (session_key, job_key, handle, source_id)
        SELECT session_key, NEW.job_key, NEW.handle, source_id FROM session, ledger_source
        WHERE session_id = NEW.session_id AND source = NEW.source;
        RETURN NEW;
    END $$;
    CREATE TRIGGER insert_ledger INSTEAD OF INSERT ON ledger FOR EACH ROW EXECUTE FUNCTION insert_ledger()";

pub(super) const SQLITE: &str = "
    CREATE TRIGGER insert_series INSTEAD OF INSERT ON series BEGIN
        INSERT OR IGNORE INTO series_shape (digest) VALUES (NEW.metric || NEW.labels);
        INSERT OR IGNORE INTO series_shape_member (shape_id, position, metric, labels, role)
        SELECT shape_id, 0, NEW.metric, NEW.labels, NEW.role FROM series_shape WHERE digest = NEW.metric || NEW.labels;
        INSERT INTO series_block (first_id, shape_id, job_key, node, job_id)
        SELECT coalesce(NEW.series_id, next_id), shape_id, NEW.job_key, NEW.node, NEW.job_id
        FROM series_counter, series_shape WHERE digest = NEW.metric || NEW.labels;
        UPDATE series_counter SET next_id = max(next_id, (SELECT max(first_id) + 1 FROM series_block));
    END;
    CREATE TRIGGER insert_plan_change INSTEAD OF INSERT ON plan_change BEGIN
        INSERT OR IGNORE INTO plan_change_set (digest)
        VALUES (format('%s %s %s', NEW.metric, NEW.old_period_us, NEW.new_period_us));
        INSERT OR IGNORE INTO plan_change_set_member
        SELECT set_id, 0, NEW.metric, NEW.old_period_us, NEW.new_period_us, NULL, NULL FROM plan_change_set
        WHERE digest = format('%s %s %s', NEW.metric, NEW.old_period_us, NEW.new_period_us);
        INSERT INTO plan_change_event (time, until, job_key, set_id, node, job_id, cause, actor, reason, level)
        SELECT NEW.time, NEW.until, NEW.job_key, set_id, NEW.node, NEW.job_id, NEW.cause, NEW.actor, NEW.reason, NEW.level
        FROM plan_change_set WHERE digest = format('%s %s %s', NEW.metric, NEW.old_period_us, NEW.new_period_us);
    END;
    CREATE TRIGGER insert_ledger INSTEAD OF INSERT ON ledger BEGIN
        INSERT OR IGNORE INTO ledger_source (source) VALUES (NEW.source);
        INSERT INTO ledger_line (session_key, job_key, handle, source_id)
        SELECT session_key, NEW.job_key, NEW.handle, source_id FROM session, ledger_source
        WHERE session_id = NEW.session_id AND source = NEW.source;
    END";
