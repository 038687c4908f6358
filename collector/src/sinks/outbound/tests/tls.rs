//! Tests of https with certificates of an authority of our own.

use std::sync::Arc;

use polymeter_test_harness::certificates::Authority;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use super::fixture::{BEGIN_MS, Fixture, accept, times, times_of};
use super::receiver::{Receiver, Reply};
use crate::sinks::outbound::protocol::Protocol;
use crate::sinks::remote_write::{AUTO, V1};
use crate::sinks::testing::TestSession;

fn server(authority: &Authority, host: &str) -> ServerConfig {
    authority.issue("server", host);
    let certificate = CertificateDer::from_pem_file(authority.path("server.crt")).unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.path("server.key")).unwrap();
    ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap()
}

fn fixture(authority: &Authority, usual: Reply, host: &str, protocol: &'static Protocol) -> Fixture {
    let mut fixture = Fixture::new(Receiver::start_tls(usual, server(authority, host)), protocol);
    let url = format!("https://localhost:{}/write", fixture.receiver.address.port());
    fixture.config.url = url.parse().unwrap();
    fixture.config.ca_file = Some(authority.path("root.crt"));
    fixture
}

#[test]
fn samples_are_sent_over_tls() {
    let authority = Authority::new("test root");
    for (usual, protocol) in [(Reply::V1, &V1), (Reply::V2, &AUTO)] {
        let fixture = fixture(&authority, usual, "localhost", protocol);
        let mut sink = fixture.sink();
        let mut session = TestSession::new(1, &["a"]);
        for at in 0..10 {
            accept(&mut sink, session.frame(times(BEGIN_MS + at * 100, 100)));
        }
        fixture.drive(&mut sink, |contents| (times_of(contents, "a").len() == 1000).then_some(()));
        fixture.drive_until(&mut sink, |counters| counters.pending.get() == 0);
        assert_eq!(fixture.counters.retries.get(), 0);
        let connections = fixture.receiver.wait_for(|contents| Some(contents.connections));
        assert!(connections <= 2, "they are persistent: {connections}");
    }
}

#[test]
fn nothing_is_sent_to_a_server_that_cannot_prove_its_name() {
    let (authority, other) = (Authority::new("test root"), Authority::new("another root"));
    let mut unknown = fixture(&authority, Reply::V1, "localhost", &V1);
    unknown.config.ca_file = Some(other.path("root.crt"));
    let another_name = fixture(&authority, Reply::V1, "mimir.example.org", &V1);
    let mut missing_file = fixture(&authority, Reply::V1, "localhost", &V1);
    missing_file.config.ca_file = Some("/no/such.crt".into());
    for fixture in [unknown, another_name, missing_file] {
        let mut sink = fixture.sink();
        accept(&mut sink, TestSession::new(1, &["a"]).frame(times(BEGIN_MS, 10)));
        fixture.drive_until(&mut sink, |counters| counters.retries.get() > 0);
        assert!(fixture.counters.pending.get() >= 10 && fixture.counters.sent.get() == 0);
        assert_eq!(fixture.receiver.wait_for(|contents| Some(contents.heads.len())), 0);
        sink.kill();
    }
}
