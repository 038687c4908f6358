//! The directory and the store of one test.

use std::path::PathBuf;

use polymeter_store::reader::Reader;
use polymeter_test_harness::skip;
use tempfile::TempDir;

use crate::basics::unique;
use crate::server::Server;

/// A directory for sockets, configurations and logs, and a store.
pub struct TestEnvironment {
    directory: TempDir,
    pub node: String,
    server: Option<Server>,
}

impl TestEnvironment {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), node: unique(), server: None }
    }

    /// Creates an environment with a PostgreSQL server. Skips the test if PostgreSQL is not installed.
    pub fn postgres() -> Self {
        Self::with_server(Server::start(false))
    }

    /// Like `postgres`, with TimescaleDB if it is installed.
    pub fn best_postgres() -> Self {
        Self::with_server(Server::best())
    }

    fn with_server(server: Result<Server, String>) -> Self {
        let server = server.unwrap_or_else(|reason| skip("postgres", &reason));
        Self { server: Some(server), ..Self::new() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn store(&self) -> String {
        match &self.server {
            Some(server) => server.url(),
            None => format!("sqlite:{}", self.path("store.db").display()),
        }
    }

    pub fn server(&mut self) -> &mut Server {
        self.server.as_mut().unwrap()
    }

    pub fn query(&self, sql: &str) -> String {
        self.server.as_ref().unwrap().query(sql)
    }

    pub fn reader(&self) -> Reader {
        Reader::open(&self.store().parse().unwrap()).unwrap()
    }

    pub fn endpoint(&self) -> String {
        format!("ipc://{}", self.path("collector").display())
    }
}
