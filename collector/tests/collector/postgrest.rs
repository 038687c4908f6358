//! Tests of the views and functions through PostgREST, and of the statements that it sends.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use crate::postgres::server;
use crate::sql_views::store_of_jobs;
use crate::support::server::Server;
use crate::support::{Kind, wait_until};

polymeter_test_harness::tests![postgrest_statements_run_on_postgresql, postgrest_serves_views_and_functions];

/// Sends the statements of PostgREST 12, with the parameters as text.
fn postgrest_statements_run_on_postgresql() {
    let mut environment = store_of_jobs(Kind::Postgres);
    let server = server(&mut environment);
    let body = "SELECT null::bigint AS total_result_set, pg_catalog.count(_postgrest_t) AS page_total,
        coalesce(json_agg(_postgrest_t), '[]') AS body FROM (SELECT * FROM pgrst_source) _postgrest_t";
    let page = |prepared: &str, arguments: &str| {
        let statement = format!(
            "PREPARE request AS {prepared} SELECT page_total FROM ({body}) AS answer; EXECUTE request({arguments})"
        );
        server.query(&format!("BEGIN READ ONLY; SET LOCAL ROLE polymeter_reader; {statement}; COMMIT"))
    };
    let of_view = r#"WITH pgrst_source AS (SELECT "public"."metrics_by_job".* FROM "public"."metrics_by_job"
        WHERE "public"."metrics_by_job"."job_id" = $1 AND "public"."metrics_by_job"."metric_id" = ANY ($2) LIMIT ALL OFFSET 0)"#;
    assert_eq!(page(of_view, "'20', '{cpu.usage,node.load1}'"), "35");
    let of_function = r#"WITH pgrst_source AS (SELECT "pgrst_call".* FROM (SELECT $1::json AS json_data) pgrst_payload,
        LATERAL (SELECT "job_id", "metrics" FROM json_to_record(pgrst_payload.json_data) AS _("job_id" integer, "metrics" text) LIMIT 1) pgrst_body,
        LATERAL "api"."get_metrics"("job_id" := pgrst_body."job_id", "metrics" := pgrst_body."metrics") pgrst_call)"#;
    assert_eq!(page(of_function, r#"'{"job_id": "20", "metrics": "cpu.usage"}'"#), "31");
}

fn postgrest_serves_views_and_functions() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let Some(program) =
        std::env::split_paths(&path).map(|directory| directory.join("postgrest")).find(|file| file.is_file())
    else {
        polymeter_test_harness::skip("postgrest", "postgrest is not in PATH")
    };
    let mut environment = store_of_jobs(Kind::Postgres);
    let server = server(&mut environment);
    server.query(
        "CREATE ROLE authenticator LOGIN NOINHERIT; CREATE ROLE alice IN ROLE polymeter_user;
         GRANT polymeter_reader, alice TO authenticator",
    );
    let rows = |answer: &str| answer.matches("\"timestamp\":").count();
    let public = "Accept-Profile: public\r\n";
    {
        let all = Postgrest::start(server, &program, "polymeter_reader");
        assert_eq!(rows(&all.get("/rpc/get_metrics?job_id=20", "")), 66);
        assert_eq!(rows(&all.get("/rpc/get_metrics?job_id=20&metrics=cpu.usage&as_rate=true", "")), 31);
        assert_eq!(rows(&all.get("/rpc/get_metrics?job=20&metrics=cpu.usage", "")), 31);
        assert_eq!(all.get("/rpc/get_metrics?nodes=n1", ""), "[]");
        assert_eq!(all.get("/rpc/update_promoted_metrics", ""), "[]");
        assert!(all.get("/rpc/get_metrics", "").contains("Missing 'devices', 'nodes' or 'job_id' argument"));
        let available = all.get("/rpc/available_metrics?params=%7B%22job_id%22:20%7D", "");
        assert_eq!(available.matches("device_id").count(), 3, "{available}");
        assert_eq!(rows(&all.get("/metrics_by_job?job_id=eq.20&metric_id=eq.cpu.usage", public)), 31);
        assert_eq!(all.get("/nodetime_by_job?job_id=eq.20&select=node", public), r#"[{"node":"n1"}]"#);
    }
    // The role in force decides, not the one that logged in: job 20 is alice's, job 21 is not.
    let alice = Postgrest::start(server, &program, "alice");
    assert_eq!(rows(&alice.get("/rpc/get_metrics?job_id=20", "")), 66);
    assert_eq!(alice.get("/rpc/get_metrics?job_id=21", ""), "[]");
    assert_eq!(alice.get("/metrics_by_job?job_id=eq.21", public), "[]");
    assert!(alice.get("/samples?limit=1", public).contains("permission denied"));
}

struct Postgrest {
    process: Child,
    socket: PathBuf,
}

impl Postgrest {
    fn start(server: &Server, program: &Path, role: &str) -> Self {
        let socket = server.socket_directory().join(format!("postgrest.{role}"));
        let process = server
            .program(program)
            .env(
                "PGRST_DB_URI",
                format!("host={} user=authenticator dbname=postgres", server.socket_directory().display()),
            )
            .env("PGRST_DB_SCHEMAS", "api,public")
            .env("PGRST_DB_ANON_ROLE", role)
            .env("PGRST_SERVER_UNIX_SOCKET", &socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let started = Self { process, socket };
        wait_until("PostgREST answers", || {
            started.socket.exists() && started.get("/rpc/get_metrics?job_id=0", "") == "[]"
        });
        started
    }

    fn get(&self, path: &str, headers: &str) -> String {
        let Ok(mut stream) = UnixStream::connect(&self.socket) else { return String::new() };
        write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n{headers}\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    }
}

impl Drop for Postgrest {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}
