//! Tests of connections to PostgreSQL: TLS, passwords, connection poolers, standby servers, and the lock of
//! the schema.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use polymeter_collector::{Collector, CollectorConfig};
use polymeter_store::reader::{Reader, SeriesScope};
use polymeter_store::{StoreError, StoreUrl};
use polymeter_test_harness::certificates::Authority;
use rustix::process::geteuid;

use crate::postgres::{assert_counts, send_row, server};
use crate::support::agent::Agent;
use crate::support::server::{Server, free_port};
use crate::support::{Kind, TestEnvironment, counts, now_us, wait_until};

polymeter_test_harness::tests![
    tls_modes_verify_what_they_say,
    a_client_certificate_authenticates,
    samples_are_stored_over_tls,
    a_password_file_authenticates,
    a_connection_pooler_is_refused,
    a_database_that_lacks_characters_is_refused,
    reads_from_a_standby_and_continues_on_it,
    a_locked_schema_is_reported,
];

/// Accepts TCP connections with TLS only, with a certificate for `localhost`.
fn tls_server() -> (TestEnvironment, Authority, u16) {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let certificates = Authority::new("test root");
    certificates.issue("server", "localhost");
    let port = free_port();
    let running = server(&mut environment);
    running.give_to_server(&certificates.path("server.key"));
    let [root, certificate, key] =
        ["root.crt", "server.crt", "server.key"].map(|name| certificates.path(name));
    running.configure(&format!(
        "listen_addresses = '127.0.0.1'\nport = {port}\nssl = on\nssl_ca_file = '{}'\nssl_cert_file = '{}'\nssl_key_file = '{}'\n",
        root.display(),
        certificate.display(),
        key.display()
    ));
    running.authenticate(
        "local all all trust\nhostssl all meter 127.0.0.1/32 cert\nhostssl all all 127.0.0.1/32 trust\n",
    );
    running.restart();
    (environment, certificates, port)
}

fn a_database_that_lacks_characters_is_refused() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let running = server(&mut environment);
    for encoding in ["LATIN1", "SQL_ASCII", "UTF8"] {
        let name = format!("of_{}", encoding.to_lowercase());
        running.query(&format!("CREATE DATABASE {name} ENCODING '{encoding}' LOCALE 'C' TEMPLATE template0"));
        let url: StoreUrl =
            running.url().replace("dbname=postgres", &format!("dbname={name}")).parse().unwrap();
        let write = url.probe().map_err(|error| error.to_string());
        let read = Reader::open(&url).map(drop).map_err(|error| error.to_string());
        if encoding == "UTF8" {
            assert!(write.is_ok(), "{write:?}");
            continue;
        }
        for refused in [write.unwrap_err(), read.unwrap_err()] {
            let cause = format!("cannot use the database {name}: its encoding is {encoding}, ");
            assert!(refused.starts_with(&cause) && refused.contains("createdb -E UTF8"), "{refused}");
        }
    }
}

fn probe(url: &str) -> Result<(), String> {
    let url: StoreUrl = url.parse().map_err(|error: polymeter_store::InvalidStoreUrl| error.to_string())?;
    url.probe().map_err(|error| polymeter_service::log::chain(&error))
}

fn tls_modes_verify_what_they_say() {
    let (_environment, certificates, port) = tls_server();
    let another = Authority::new("another root");
    let [root, other] = [&certificates, &another].map(|root| root.path("root.crt").display().to_string());
    let probe = |host: &str, tls: &str| {
        probe(&format!("host={host} hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres {tls}"))
    };
    for (host, tls) in [
        ("localhost", ""),
        ("localhost", "sslmode=require"),
        ("db.example", "sslmode=require"),
        ("localhost", &format!("sslmode=verify-full sslrootcert={root}")),
        ("db.example", &format!("sslmode=verify-ca sslrootcert={root}")),
    ] {
        assert_eq!(probe(host, tls), Ok(()), "{host} {tls}");
    }
    for (host, tls, reason) in [
        ("localhost", "sslmode=disable", "no encryption"),
        ("localhost", &*format!("sslmode=verify-full sslrootcert={other}"), "UnknownIssuer"),
        ("localhost", &*format!("sslmode=verify-ca sslrootcert={other}"), "UnknownIssuer"),
        ("localhost", &*format!("sslmode=require sslrootcert={other}"), "UnknownIssuer"),
        ("db.example", &*format!("sslmode=verify-full sslrootcert={root}"), "not valid for name"),
        ("localhost", "sslmode=verify-full sslrootcert=/no/such.crt", "/no/such.crt"),
        ("localhost", "sslmode=verify-full sslrootcert=/dev/null", "no certificate"),
    ] {
        let error = probe(host, tls).unwrap_err();
        assert!(error.contains(reason), "{host} {tls}: {error}");
    }
}

fn a_client_certificate_authenticates() {
    let (environment, certificates, port) = tls_server();
    environment.server.as_ref().unwrap().query("CREATE ROLE meter LOGIN");
    certificates.issue("meter", "meter");
    certificates.issue("mallory", "mallory");
    let root = certificates.path("root.crt");
    let probe = |name: &str| {
        probe(&format!(
            "host=localhost hostaddr=127.0.0.1 port={port} user=meter dbname=postgres sslmode=verify-full sslrootcert={} sslcert={} sslkey={}",
            root.display(),
            certificates.path(&format!("{name}.crt")).display(),
            certificates.path(&format!("{name}.key")).display()
        ))
    };
    assert_eq!(probe("meter"), Ok(()));
    let error = probe("mallory").unwrap_err();
    assert!(error.contains("certificate authentication failed"), "{error}");
    fs::set_permissions(certificates.path("meter.key"), PermissionsExt::from_mode(0o644)).unwrap();
    let error = probe("meter").unwrap_err();
    assert!(error.contains("chmod 600"), "{error}");
}

fn samples_are_stored_over_tls() {
    let (environment, certificates, port) = tls_server();
    let root = certificates.path("root.crt");
    let store = format!(
        "postgres://postgres@localhost:{port}/postgres?sslmode=verify-full&sslrootcert={}&hostaddr=127.0.0.1",
        root.display()
    );
    let config = CollectorConfig { store: store.parse().unwrap(), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    let mut agent = Agent::to(&environment.context, &collector, "n1", 1);
    let begin_us = now_us();
    (0..20).for_each(|seed| send_row(&mut agent, begin_us, seed));
    agent.wait_until_acknowledged();
    let encrypted = "SELECT count(*) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE ssl AND application_name = 'polymeter'";
    assert!(environment.number(encrypted) > 0);
    collector.stop().unwrap();
    assert_counts(&environment, "n1", 20);
}

fn a_password_file_authenticates() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let port = free_port();
    let running = server(&mut environment);
    running.query("CREATE ROLE meter LOGIN PASSWORD 'a:b''c'");
    running.configure(&format!("listen_addresses = '127.0.0.1'\nport = {port}\n"));
    running.authenticate("local all all trust\nhost all all 127.0.0.1/32 scram-sha-256\n");
    running.restart();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pgpass");
    let url = format!("host=127.0.0.1 port={port} user=meter dbname=postgres passfile={}", file.display());
    let write = |password: &str, mode: u32| {
        fs::write(&file, format!("127.0.0.1:{port}:*:meter:{password}\n")).unwrap();
        fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
    };
    write(r"a\:b'c", 0o600);
    assert_eq!(probe(&url), Ok(()));
    write("wrong", 0o600);
    let error = probe(&url).unwrap_err();
    assert!(error.contains("password authentication failed") && !error.contains("wrong"), "{error}");
    write(r"a\:b'c", 0o644);
    let error = probe(&url).unwrap_err();
    assert!(error.contains("chmod 600"), "{error}");
}

/// PgBouncer with transaction pooling.
struct Pooler {
    process: Child,
}

impl Pooler {
    /// Skips the test if PgBouncer is not installed.
    fn start(server: &Server, directory: &Path, port: u16, settings: &str) -> Self {
        let file = directory.join("pgbouncer.ini");
        fs::write(directory.join("users.txt"), "\"postgres\" \"\"\n").unwrap();
        let text = format!(
            "[databases]\npostgres = host={} user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = trust\nauth_file = {}\npool_mode = transaction\n{settings}\n",
            server.socket_directory().display(),
            directory.join("users.txt").display()
        );
        fs::write(&file, text).unwrap();
        let mut command = if geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups", "--", "pgbouncer"]);
            command
        } else {
            Command::new("pgbouncer")
        };
        let process =
            command.arg("-q").arg(&file).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        wait_until("the pooler listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
        Self { process }
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        // A shell in the background makes its programs ignore other signals.
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

fn a_connection_pooler_is_refused() {
    if Command::new("pgbouncer").arg("--version").output().is_err() {
        polymeter_test_harness::skip("pgbouncer", "PgBouncer is not installed");
    }
    let environment = TestEnvironment::new(Kind::Postgres);
    let running = environment.server.as_ref().unwrap();
    for settings in ["", "ignore_startup_parameters = options"] {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
        let port = free_port();
        let _pooler = Pooler::start(running, directory.path(), port, settings);
        let url = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
        let error = probe(&url).unwrap_err();
        assert!(error.contains("connection pooler") && error.contains("own port"), "{settings}: {error}");
    }
    assert_eq!(probe(&running.url()), Ok(()));
}

fn reads_from_a_standby_and_continues_on_it() {
    let mut environment = TestEnvironment::new(Kind::Postgres);
    let begin_us = now_us();
    let first = environment.collector();
    let mut agent = Agent::to(&environment.context, &first, "n1", 1);
    (0..10).for_each(|seed| send_row(&mut agent, begin_us, seed));
    agent.wait_until_acknowledged();
    first.stop().unwrap();

    let standby = server(&mut environment).start_standby();
    let [primary, other] =
        [environment.server.as_ref().unwrap(), &standby].map(|server| server.socket_directory().to_owned());
    let mut reader = Reader::open(&standby.url().parse().unwrap()).unwrap();
    assert_eq!(counts(&mut reader, SeriesScope::Node("n1")), [10; 3]);
    standby.query("SELECT pg_wal_replay_pause()");
    wait_until("the standby stays as it is", || {
        standby.query("SELECT pg_get_wal_replay_pause_state()") == "paused"
    });
    // The standby is named first: the writers skip it.
    let both = format!("host={},{} user=postgres dbname=postgres", other.display(), primary.display());
    let config = CollectorConfig { store: both.parse().unwrap(), ..environment.config() };
    let collector = Collector::start(&config, &environment.context).unwrap();
    (10..20).for_each(|seed| send_row(&mut agent, begin_us, seed));
    agent.wait_until_acknowledged();
    let [of_standby, of_primary] = [standby.url(), server(&mut environment).url()];
    assert_servers_are_chosen_by_state(&both, &of_standby, &of_primary);
    standby.query("SELECT pg_wal_replay_resume()");
    // A stop waits until the standby has everything.
    server(&mut environment).stop();
    (20..30).for_each(|seed| send_row(&mut agent, begin_us, seed));
    standby.query("SELECT pg_promote()");
    agent.wait_until_acknowledged();
    assert_eq!(collector.stop().unwrap().given_up, 0);
    let mut reader = Reader::open(&standby.url().parse().unwrap()).unwrap();
    assert_eq!(counts(&mut reader, SeriesScope::Node("n1")), [30; 3]);
}

fn count_stored(servers: &str, attributes: &str) -> Result<usize, String> {
    let url = format!("{servers} target_session_attrs={attributes}");
    let mut reader = Reader::open(&url.parse().unwrap()).map_err(|error| error.to_string())?;
    Ok(counts(&mut reader, SeriesScope::Node("n1"))[0])
}

/// Tests for each `target_session_attrs` which servers readers and writers use: of both, the standby first,
/// and of each alone. The standby has 10 samples of each series, the primary 20.
fn assert_servers_are_chosen_by_state(both: &str, standby: &str, primary: &str) {
    for (attributes, expected) in [
        ("any", 10),
        ("read-write", 20),
        ("read-only", 10),
        ("primary", 20),
        ("standby", 10),
        ("prefer-standby", 10),
    ] {
        assert_eq!(count_stored(both, attributes), Ok(expected), "{attributes}");
    }
    assert_eq!(count_stored(primary, "prefer-standby"), Ok(20));
    for (server, attributes) in [(primary, "standby"), (standby, "primary")] {
        let error: String = count_stored(server, attributes).unwrap_err();
        assert!(error.contains(&format!("no server is a {attributes}")), "{error}");
    }
    for attributes in ["primary", "prefer-standby", "read-write"] {
        assert_eq!(probe(&format!("{both} target_session_attrs={attributes}")), Ok(()));
    }
    let error = probe(&format!("{both} target_session_attrs=standby")).unwrap_err();
    assert!(error.contains("a standby accepts no writes"), "{error}");
}

fn a_locked_schema_is_reported() {
    let environment = TestEnvironment::new(Kind::Postgres);
    let running = environment.server.as_ref().unwrap();
    // The lock of the schema, "polymete" in ASCII; it ends with the process of psql.
    let mut holder = running.start_query("SELECT pg_advisory_lock(x'706f6c796d657465'::int8), pg_sleep(600)");
    wait_until("the lock is held", || {
        running.query("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted") == "1"
    });
    let pid = running.query("SELECT pid FROM pg_locks WHERE locktype = 'advisory'");
    let store = format!("{} options='-c lock_timeout=300ms'", running.url());
    let config = CollectorConfig { store: store.parse().unwrap(), ..environment.config() };
    let error = Collector::start(&config, &environment.context).unwrap_err();
    let text = polymeter_service::log::chain(&error);
    assert!(text.contains(&format!("pg_terminate_backend({pid})")), "{text}");
    assert!(matches!(
        error,
        polymeter_collector::CollectorStartError::Store { source: StoreError::Unusable(_), .. }
    ));
    holder.kill().unwrap();
    holder.wait().unwrap();
    running.query(&format!("SELECT pg_terminate_backend({pid})"));
    Collector::start(&config, &environment.context).unwrap().stop().unwrap();
}
