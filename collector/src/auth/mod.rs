//! Authentication of agents: their CURVE keys are checked when they connect (ZAP), and again for each
//! message.
//!
//! A separate thread answers libzmq's requests and reads the directory of authorised keys, so that the
//! receiver never waits for a disk. If no handler answers, libzmq accepts every connection: therefore a
//! message is accepted only if its connection has a user id that this handler assigned. User ids begin with a
//! secret of this process, since a peer may claim any other id.

mod authorised;
mod handler;
mod handshake;
mod key_directory;
mod zap;

pub(crate) use self::authorised::AuthorisedKeys;
pub(crate) use self::handler::{AuthError, AuthHandler, AuthOptions};
pub(crate) use self::handshake::HandshakeFailure;
pub use self::{key_directory::authorise, zap::ask};
