//! How an agent of SNMP is asked: with a community, or as a user of version 3.

use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use snmp2::v3::{Auth, AuthProtocol, Cipher, KeyExtension, Security};
use snmp2::{AsnReader, Error, Pdu};

use super::message::Request;
use crate::clock;
use crate::sources::outside::connection::DeviceError;
use crate::sources::outside::credentials::Credentials;

const KEYS: [&str; 6] = ["community", "user", "auth", "auth_password", "privacy", "privacy_password"];

/// Community of a device whose configuration has no credentials.
const USUAL_COMMUNITY: &str = "public";

/// Fewest characters of a password (RFC 3414).
const PASSWORD_MIN: usize = 8;

pub(super) enum Access {
    Community(Vec<u8>),
    User(Box<User>),
}

/// A user of version 3, and what is known of the agent's engine.
pub(super) struct User {
    name: Vec<u8>,
    /// Passwords, and no engine yet.
    fresh: Security,
    engine: Option<Engine>,
    needs_authentication: bool,
}

/// Id and clock of an agent's engine, with the keys for it.
#[derive(Clone)]
struct Engine {
    security: Security,
    known_ns: u64,
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Community(_) => "Community",
            Self::User(_) => "User",
        })
    }
}

/// What a received message is.
pub(super) enum Received<T> {
    Answer(T),
    /// Belongs to another request.
    Other,
    /// The clock of the engine is known now: the request is repeated.
    Again,
}

impl Access {
    pub(super) fn read(path: Option<&Path>) -> Result<Self, DeviceError> {
        match path {
            None => Ok(Self::Community(USUAL_COMMUNITY.as_bytes().to_vec())),
            Some(path) => {
                let invalid = |reason| DeviceError::Credentials(format!("{}: {reason}", path.display()));
                Self::of(&Credentials::read(path, &KEYS)?).map_err(invalid)
            }
        }
    }

    fn of(credentials: &Credentials) -> Result<Self, InvalidAccess> {
        match (credentials.get("community"), credentials.get("user")) {
            (Some(community), None) => Ok(Self::Community(community.as_bytes().to_vec())),
            (None, Some(user)) => User::of(user, credentials).map(|user| Self::User(Box::new(user))),
            (Some(_), Some(_)) | (None, None) => Err(InvalidAccess::Neither),
        }
    }

    /// Encodes a request; for a user of version 3 whose engine is unknown, the question for the engine.
    pub(super) fn encode(&self, request: &Request<'_>) -> Result<Vec<u8>, Error> {
        match self {
            Self::Community(community) => Ok(request.with_community(community)),
            Self::User(user) => user.encode(request),
        }
    }

    /// Decodes a message, and passes the answer of the request with this id to `take`.
    pub(super) fn decode<T>(
        &mut self,
        bytes: &[u8],
        id: i32,
        take: impl FnOnce(Pdu<'_>) -> T,
    ) -> Result<Received<T>, Error> {
        match self {
            Self::Community(community) => {
                let pdu = Pdu::from_bytes(bytes)?;
                let is_answer = is_answer(&pdu, id) && pdu.community == community.as_slice();
                Ok(if is_answer { Received::Answer(take(pdu)) } else { Received::Other })
            }
            Self::User(user) => user.decode(bytes, id, take),
        }
    }

    /// Forgets the engine of the agent: it may be another one after a failure.
    pub(super) fn forget_engine(&mut self) {
        if let Self::User(user) = self {
            user.engine = None;
        }
    }
}

fn is_answer(pdu: &Pdu<'_>, id: i32) -> bool {
    pdu.message_type == snmp2::MessageType::Response && pdu.req_id == id
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum InvalidAccess {
    #[error("expected `community`, or `user` with its passwords")]
    Neither,
    #[error("expected md5, sha1, sha224, sha256, sha384 or sha512 as `auth`")]
    Authentication,
    #[error("expected des, aes128, aes192 or aes256 as `privacy`")]
    Privacy,
    #[error("`{0}` is missing, or has less than {PASSWORD_MIN} characters")]
    Password(&'static str),
    #[error("`privacy` needs `auth`")]
    NoAuthentication,
}

impl User {
    fn of(name: &str, credentials: &Credentials) -> Result<Self, InvalidAccess> {
        let password = |key| {
            let found = credentials.get(key).filter(|password| password.len() >= PASSWORD_MIN);
            found.ok_or(InvalidAccess::Password(key)).map(str::as_bytes)
        };
        let (fresh, needs_authentication) = match (credentials.get("auth"), credentials.get("privacy")) {
            (None, None) => (Security::new(name.as_bytes(), b"").with_auth(Auth::NoAuthNoPriv), false),
            (None, Some(_)) => return Err(InvalidAccess::NoAuthentication),
            (Some(protocol), privacy) => {
                let security = Security::new(name.as_bytes(), password("auth_password")?);
                let auth = match privacy {
                    None => Auth::AuthNoPriv,
                    Some(privacy) => Auth::AuthPriv {
                        cipher: cipher(privacy)?,
                        privacy_password: password("privacy_password")?.to_vec(),
                    },
                };
                let security = security.with_auth(auth).with_auth_protocol(auth_protocol(protocol)?);
                (security.with_key_extension_method(KeyExtension::Blumenthal), true)
            }
        };
        Ok(Self { name: name.as_bytes().to_vec(), fresh, engine: None, needs_authentication })
    }

    fn encode(&self, request: &Request<'_>) -> Result<Vec<u8>, Error> {
        let Some(engine) = &self.engine else { return Ok(request.without_authentication(b"", b"")) };
        let security = engine.now();
        let plain = request.without_authentication(security.engine_id(), &self.name);
        if !self.needs_authentication {
            return Ok(plain);
        }
        // The library encodes what it has decoded.
        let nobody = Security::new(&self.name, b"").with_auth(Auth::NoAuthNoPriv);
        let mut nobody = nobody.with_engine_id(security.engine_id())?;
        let pdu = Pdu::from_bytes_with_security(&plain, Some(&mut nobody))?;
        pdu.to_bytes_with_security(Some(&security))
    }

    fn decode<T>(
        &mut self,
        bytes: &[u8],
        id: i32,
        take: impl FnOnce(Pdu<'_>) -> T,
    ) -> Result<Received<T>, Error> {
        check_clock(bytes)?;
        let mut security = self.engine.as_ref().map_or_else(|| self.fresh.clone(), Engine::now);
        let received = match Pdu::from_bytes_with_security(bytes, Some(&mut security)) {
            Ok(pdu) if is_answer(&pdu, id) => Received::Answer(take(pdu)),
            // A report about the clock has updated it; any other one says that the request is refused.
            Ok(pdu) if pdu.message_type == snmp2::MessageType::Report => {
                return Err(Error::AuthFailure(snmp2::v3::AuthErrorKind::NotAuthenticated));
            }
            Ok(_) => Received::Other,
            Err(Error::AuthUpdated) => Received::Again,
            Err(error) => return Err(error),
        };
        self.engine = Some(Engine { security, known_ns: clock::monotonic_ns() });
        Ok(received)
    }
}

/// Refuses a message with a clock beyond the range of RFC 3414, with which the library would calculate.
fn check_clock(bytes: &[u8]) -> Result<(), Error> {
    let mut message = AsnReader::from_bytes(AsnReader::from_bytes(bytes).read_raw(0x30)?);
    message.read_asn_integer()?;
    message.read_raw(0x30)?;
    let mut of_user = AsnReader::from_bytes(message.read_asn_octetstring()?);
    let mut of_user = AsnReader::from_bytes(of_user.read_raw(0x30)?);
    of_user.read_asn_octetstring()?;
    for _ in ["boots", "time"] {
        i32::try_from(of_user.read_asn_integer()?)
            .ok()
            .filter(|value| *value >= 0)
            .ok_or(Error::ValueOutOfRange)?;
    }
    Ok(())
}

impl Engine {
    /// Security with the clock of the engine as it is now.
    fn now(&self) -> Security {
        let elapsed_s = clock::monotonic_ns().saturating_sub(self.known_ns) / 1_000_000_000;
        let time_s = self.security.engine_time().saturating_add_unsigned(elapsed_s);
        self.security.clone().with_engine_boots_and_time(self.security.engine_boots(), time_s)
    }
}

fn auth_protocol(name: &str) -> Result<AuthProtocol, InvalidAccess> {
    match name {
        "md5" => Ok(AuthProtocol::Md5),
        "sha1" => Ok(AuthProtocol::Sha1),
        "sha224" => Ok(AuthProtocol::Sha224),
        "sha256" => Ok(AuthProtocol::Sha256),
        "sha384" => Ok(AuthProtocol::Sha384),
        "sha512" => Ok(AuthProtocol::Sha512),
        _ => Err(InvalidAccess::Authentication),
    }
}

fn cipher(name: &str) -> Result<Cipher, InvalidAccess> {
    match name {
        "des" => Ok(Cipher::Des),
        "aes128" => Ok(Cipher::Aes128),
        "aes192" => Ok(Cipher::Aes192),
        "aes256" => Ok(Cipher::Aes256),
        _ => Err(InvalidAccess::Privacy),
    }
}

pub(super) fn check(data: &[u8]) {
    static USER: LazyLock<Security> = LazyLock::new(|| {
        let security = Security::new(b"polymeter", b"a password").with_auth_protocol(AuthProtocol::Sha256);
        let security = security.with_engine_id(b"\x80\x00\x1f\x88\x04fuzz");
        security.unwrap_or_else(|_| Security::new(b"polymeter", b"a password"))
    });
    let nobody = Security::new(b"polymeter", b"").with_auth(Auth::NoAuthNoPriv);
    for (fresh, engine) in
        [(nobody.clone(), None), (nobody, Some(Engine { security: USER.clone(), known_ns: 0 }))]
    {
        let mut user = User { name: b"polymeter".to_vec(), fresh, engine, needs_authentication: false };
        user.decode(data, 1, |pdu| pdu.varbinds.count()).ok();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(text: &str) -> Result<Access, String> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("pdu3");
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        Access::read(Some(&path)).map_err(|error| error.to_string())
    }

    #[test]
    fn credentials_are_a_community_or_a_user() {
        assert!(matches!(Access::read(None), Ok(Access::Community(name)) if name == b"public"));
        assert!(matches!(read("community = 'hunter2'"), Ok(Access::Community(name)) if name == b"hunter2"));
        let user = "user = 'monitor'\nauth = 'sha256'\nauth_password = 'hunter2hunter2'\n";
        let privacy = "privacy = 'aes128'\nprivacy_password = 'hunter3hunter3'\n";
        for text in ["user = 'monitor'", user, &format!("{user}{privacy}")] {
            let access = read(text).unwrap();
            assert!(matches!(access, Access::User(_)) && !format!("{access:?}").contains("hunter"));
        }
        for (wrong, expected) in [
            ("", "expected `community`, or `user`"),
            ("community = 'x'\nuser = 'y'", "expected `community`, or `user`"),
            ("user = 'y'\nauth = 'sha3'\nauth_password = 'hunter2hunter2'", "expected md5, sha1"),
            ("user = 'y'\nauth = 'sha1'\nauth_password = 'hunter2'", "less than 8 characters"),
            ("user = 'y'\nprivacy = 'des'\nprivacy_password = 'hunter3hunter3'", "`privacy` needs `auth`"),
            (&format!("{user}privacy = 'des'"), "`privacy_password` is missing"),
            ("comunity = 'hunter2'", "known keys are community, user"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(expected) && !error.contains("hunter"), "{error}");
        }
    }
}
