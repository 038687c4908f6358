//! Servers that lie, hang and redirect; credentials and certificates.

use std::io::Write;
use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::GzEncoder;
use polymeter_test_harness::certificates::Authority;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{ServerConfig, crypto};

use super::super::connection::DeviceError;
use super::super::protocols::connect;
use super::super::settings::DeviceSettings;
use super::{Asked, Reply, Server, ok, settings, write_secret};

fn error_of(reply: Reply) -> DeviceError {
    let server = Server::start();
    server.answer_raw("/metrics", reply);
    server.device("", &["a"]).find().unwrap_err()
}

fn bytes(text: &str) -> Reply {
    Reply::Bytes(text.as_bytes().to_vec())
}

fn packed(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn answers_may_be_compressed() {
    let server = Server::start();
    let reply = |body: &[u8]| Reply::Bytes(ok("content-encoding: gzip\r\n", body));
    let body = packed(b"a 1\n");
    server.answer_raw("/metrics", reply(&body));
    let mut device = server.device("", &["a"]);
    let found = device.find().unwrap();
    assert_eq!(device.read(&found).unwrap(), [Some(1.0)]);
    assert!(server.heads.lock().unwrap()[0].contains("\r\naccept-encoding: gzip\r\n"));
    for damaged in [&body[..body.len() - 9], &body[..3], b"a 1\n"] {
        server.answer_raw("/metrics", reply(damaged));
        assert!(matches!(device.read(&found), Err(DeviceError::Malformed(_))), "{damaged:?}");
    }
    // 9 MiB of 9 KiB.
    server.answer_raw("/metrics", reply(&packed(&vec![b'\n'; 9 * 1024 * 1024])));
    let error = device.read(&found).unwrap_err().to_string();
    assert!(error.contains("too long"), "{error}");
}

#[test]
fn answers_are_bounded_in_bytes_and_time() {
    let endless =
        "HTTP/1.1 200 OK\r\ncontent-length: 9999999999\r\n\r\n".to_owned() + &"a 1\n".repeat(3_000_000);
    assert!(matches!(error_of(bytes(&endless)), DeviceError::Http(_)));
    let server = Server::start();
    for beginning in ["HTTP/1.1 200 OK\r\nx-", "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\na 1\n"] {
        server.answer_raw("/metrics", Reply::Slow(beginning.as_bytes().to_vec()));
        let short = DeviceSettings { timeout: "200ms".parse().unwrap(), ..server.settings("", &["a"]) };
        let mut device = Asked::new(&short);
        assert!(matches!(device.find(), Err(DeviceError::Timeout)), "{beginning}");
    }
}

#[test]
fn other_answers_than_a_success_are_errors() {
    assert!(matches!(
        error_of(bytes("HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n")),
        DeviceError::Status(500)
    ));
    for status in ["401", "403"] {
        let head = format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n");
        assert!(matches!(error_of(bytes(&head)), DeviceError::Refused(_)));
    }
    let cut = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 100\r\n\r\na 1\n";
    let server = Server::start();
    server.answer_raw("/closing", bytes(cut));
    assert!(matches!(server.device("/closing", &["a"]).find(), Err(DeviceError::Http(_))));
    for garbage in ["SSH-2.0-x\r\n\r\n", "HTTP/1.1 200 OK\r\nx: \0\r\n\r\n"] {
        server.answer_raw("/closing", bytes(garbage));
        assert!(matches!(server.device("/closing", &["a"]).find(), Err(DeviceError::Http(_))), "{garbage}");
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut device = Asked::new(&settings(&format!("http://{closed}"), &["a"]));
    assert!(matches!(device.find(), Err(DeviceError::Http(_))));
}

#[test]
fn a_client_may_be_dropped_by_an_asynchronous_thread() {
    let server = Server::start();
    server.page("a 1\n");
    let mut device = server.device("/metrics", &["a"]);
    device.find().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async { drop(device) });
}

#[test]
fn no_redirection_is_followed() {
    let other = Server::start();
    other.page("a 1\n");
    for status in ["301", "302", "307", "308"] {
        let head = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: http://{}/metrics\r\ncontent-length: 0\r\n\r\n",
            other.address
        );
        let error = error_of(bytes(&head)).to_string();
        assert!(error.contains("redirects"), "{error}");
    }
    assert!(other.heads.lock().unwrap().is_empty());
}

#[test]
fn a_connection_that_the_device_has_closed_is_opened_anew() {
    let server = Server::start();
    server.answer("/closing", "text/plain", "a 1\n");
    let mut device = server.device("/closing", &["a"]);
    let found = device.find().unwrap();
    for _ in 0..3 {
        assert_eq!(device.read(&found).unwrap(), [Some(1.0)]);
    }
}

#[test]
fn credentials_are_sent_and_never_shown() {
    let server = Server::start();
    server.page("a 1\n");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("exporter");
    for (text, expected) in [
        ("user = 'u'\npassword = 's3cret'\n", "\r\nauthorization: basic dtpzm2nyzxq=\r\n"),
        ("token = 's3cret'\n", "\r\nauthorization: bearer s3cret\r\n"),
    ] {
        write_secret(&file, text);
        let device = DeviceSettings { credentials: Some(file.clone()), ..server.settings("", &["a"]) };
        let mut device = Asked::new(&device);
        device.find().unwrap();
        let heads = server.heads.lock().unwrap();
        assert!(heads.last().unwrap().contains(expected), "{heads:?}");
        assert!(!format!("{device:?}").contains("s3cret"));
    }
    for wrong in
        ["token = \"s3cret\\n\"\n", "certificate = 's3cret'\n", "certificate = ''\nca_file = 's3cret'\n"]
    {
        write_secret(&file, wrong);
        let device = DeviceSettings { credentials: Some(file.clone()), ..server.settings("", &["a"]) };
        let error = connect(&device, std::path::Path::new("/")).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error}");
    }
}

fn server_of(authority: &Authority, name: &str) -> Server {
    let certificate = CertificateDer::from_pem_file(authority.path(&format!("{name}.crt"))).unwrap();
    let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{name}.key"))).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    Server::start_with(Some(Arc::new(config)))
}

fn fingerprint(authority: &Authority, name: &str) -> String {
    let path = authority.path(&format!("{name}.crt"));
    let command = ["x509", "-fingerprint", "-sha256", "-noout", "-in"];
    let output = Command::new("openssl").args(command).arg(path).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    text.trim().split_once('=').unwrap().1.to_owned()
}

#[test]
fn a_device_must_have_the_certificate_that_is_pinned_or_of_the_authority() {
    let authority = Authority::new("site");
    authority.issue("exporter", "localhost");
    authority.issue("other", "other.example");
    let server = server_of(&authority, "exporter");
    server.page("a 1\n");
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("exporter");
    let ask = |host: &str, trust: &str| {
        write_secret(&file, trust);
        let url = format!("https://{host}:{}", server.address.port());
        let device = DeviceSettings { credentials: Some(file.clone()), ..settings(&url, &["a"]) };
        Asked::new(&device).find().map(|found| found.len())
    };
    let of_authority = format!("ca_file = '{}'\n", authority.path("root.crt").display());
    let pinned = format!("certificate = '{}'\n", fingerprint(&authority, "exporter"));
    let other = format!("certificate = '{}'\n", fingerprint(&authority, "other"));
    assert_eq!(ask("localhost", &of_authority).unwrap(), 1);
    // A pinned certificate need not state the name or the address of its server.
    assert_eq!(ask("127.0.0.1", &pinned).unwrap(), 1);
    for (host, trust) in [("127.0.0.1", &*of_authority), ("localhost", &*other)] {
        assert!(matches!(ask(host, trust), Err(DeviceError::Http(_))), "{host} {trust}");
    }
    assert_eq!(server.heads.lock().unwrap().len(), 2, "nothing is asked of a server that is not trusted");
}
