use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::*;

fn parse(text: &str) -> Result<Settings, SettingsError> {
    Settings::parse_with(text, &Environment::default())
}

fn environment(defaults: &[(&str, &str)]) -> Environment {
    let defaults = defaults.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    Environment { defaults, ..Environment::default() }
}

fn password(settings: &Settings) -> Option<String> {
    let config = settings.config().unwrap();
    config.get_password().map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
}

#[test]
fn both_forms_have_the_parameters_of_tls() {
    for text in [
        "postgres://u@db.example/d?sslmode=verify-full&sslrootcert=/a%20b.crt&connect_timeout=7",
        "host=db.example user=u dbname=d sslmode=verify-full sslrootcert='/a b.crt' connect_timeout=7",
    ] {
        let settings = parse(text).unwrap();
        let expected = TlsSettings {
            mode: TlsMode::VerifyFull,
            root: Some(tls::Root::File("/a b.crt".into())),
            client: None,
        };
        assert_eq!(settings.tls, expected);
        assert_eq!(settings.config.get_connect_timeout(), Some(&std::time::Duration::from_secs(7)));
        assert_eq!((settings.config.get_ssl_mode(), settings.database()), (SslMode::Require, Some("d")));
    }
    let settings = parse("postgres://u@db.example/d").unwrap();
    assert_eq!((settings.tls.mode, settings.config.get_ssl_mode()), (TlsMode::Prefer, SslMode::Prefer));
}

#[test]
fn every_state_of_a_server_that_libpq_knows_is_understood() {
    for (value, attributes, role) in [
        ("any", TargetSessionAttrs::Any, None),
        ("read-write", TargetSessionAttrs::ReadWrite, None),
        ("read-only", TargetSessionAttrs::ReadOnly, None),
        ("primary", TargetSessionAttrs::Any, Some(ServerRole::Primary)),
        ("standby", TargetSessionAttrs::Any, Some(ServerRole::Standby)),
        ("prefer-standby", TargetSessionAttrs::Any, Some(ServerRole::PreferStandby)),
    ] {
        for text in [
            format!("host=a,b target_session_attrs={value}"),
            format!("postgres://a,b/d?target_session_attrs={value}"),
        ] {
            let settings = parse(&text).unwrap();
            assert_eq!(
                (settings.config.get_target_session_attrs(), settings.role()),
                (attributes, role),
                "{text}"
            );
        }
    }
}

#[test]
fn unsafe_or_incomplete_parameters_are_refused() {
    for (text, reason) in [
        ("host=h sslmode=verify-full", "sslrootcert"),
        ("host=h sslmode=require sslrootcert=system", "requires sslmode=verify-full"),
        ("host=h sslmode=strict", "verify-full"),
        ("host=h sslcert=/c", "sslkey"),
        ("host=h sslcrl=/c", "revocation"),
        ("host=h target_session_attrs=leader", "`prefer-standby`"),
        ("host=h colour=red", "colour"),
        ("service=metrics", "service files are not read"),
        ("postgres://h/d?sslpassword=secret", "encrypted keys"),
        ("dbname=d", "missing host"),
    ] {
        let error = parse(text).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(reason) && !error.contains("secret"), "{text}: {error}");
    }
}

#[test]
fn the_string_precedes_the_environment() {
    let environment = environment(&[("password", "e"), ("sslmode", "require")]);
    let text = "host=one,two password=s sslmode=disable target_session_attrs=read-write";
    let settings = Settings::parse_with(text, &environment).unwrap();
    assert_eq!((password(&settings).as_deref(), settings.tls.mode), (Some("s"), TlsMode::Disable));
    assert_eq!(settings.to_string(), " on one and 1 more");
    assert_eq!(settings.config.get_target_session_attrs(), TargetSessionAttrs::ReadWrite);
    let settings = Settings::parse_with("host=h", &environment).unwrap();
    assert_eq!((password(&settings).as_deref(), settings.tls.mode), (Some("e"), TlsMode::Require));
}

fn write(file: &Path, text: &str) {
    fs::write(file, text).unwrap();
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn the_password_file_is_read_at_each_connection() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("pass");
    let settings = parse(&format!("host=a,b port=1,2 user=u dbname=d passfile={}", file.display())).unwrap();
    assert!(settings.config().unwrap_err().to_string().contains("no such file"));
    write(&file, "*:*:d:u:one\n");
    assert_eq!(password(&settings).as_deref(), Some("one"));
    write(&file, "b:2:d:u:two\n");
    assert_eq!(password(&settings).as_deref(), Some("two"));
    write(&file, "a:1:d:u:one\nb:2:d:u:two\n");
    assert!(settings.config().unwrap_err().to_string().contains("different passwords"));
}
