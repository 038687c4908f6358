//! Versions of libraries and formats in this program.

use polymeter_client::version::LocalVersion;

pub(crate) fn libraries() -> LocalVersion {
    let (major, minor, patch) = zmq::version();
    LocalVersion {
        schema: polymeter_store::SCHEMA_VERSION,
        zeromq: format!("{major}.{minor}.{patch}"),
        curve: zmq::has("curve") == Some(true),
    }
}
