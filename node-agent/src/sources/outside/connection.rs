//! What every protocol has in common: finding and reading the values of a device.

use std::fmt;
use std::io;

use polymeter_proto::catalogue::DeviceValue;
use polymeter_proto::key::KeyFileError;
use polymeter_proto::series::Unit;
use polymeter_service::http_client::NoAnswer;
use rustix::io::Errno;

use super::settings::DeviceMetric;
use crate::sources::unknown_lines::UnknownLines;

/// Values of one device: a switch of 512 ports has some thousands. What a device has beyond it is left out.
pub const VALUES_MAX: usize = 4096;

/// Connection to a device. Each call may block for a few times the timeout of the device, and runs on the
/// device's own thread. After an error the connection is dropped, and a new one is made later.
pub trait Connection: Send + fmt::Debug {
    /// Finds the values of the device that the metrics name, at most [`VALUES_MAX`].
    ///
    /// # Errors
    ///
    /// Fails if the device does not answer, or not as its protocol says. A metric that it lacks is no error.
    fn find(&mut self, metrics: &[DeviceMetric]) -> Result<Vec<Found>, DeviceError>;

    /// Reads the values with the `wanted` addresses, each into its place of `values`. A value that the device
    /// does not have now, or that is the same measurement as the last one, stays absent.
    ///
    /// # Errors
    ///
    /// Fails if there is no value because the device does not answer, or not as its protocol says.
    fn read(&mut self, wanted: &[&str], values: &mut [Option<Number>]) -> Result<(), DeviceError>;

    /// Lists metrics that the device offers, for `polymeter device try`.
    ///
    /// # Errors
    ///
    /// As of [`Connection::find`].
    fn offers(&mut self) -> Result<Vec<DeviceMetric>, DeviceError>;

    /// Ends what the device keeps for this connection, which is dropped then. May block for the timeout of
    /// the device.
    fn end(&mut self) {}

    /// True if the device sends values by itself, so that [`Connection::drain`] must be called every second.
    fn is_pushed(&self) -> bool {
        false
    }

    /// Takes what the device has sent, so that it need not wait. The next read has the newest values.
    fn drain(&mut self) {}

    /// What the last answer had and no value can be: it is counted and reported.
    fn unknown_lines(&self) -> UnknownLines {
        UnknownLines::default()
    }
}

/// A value that a device has.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Index of its metric in the list that was searched for.
    pub metric: usize,
    /// What the protocol reads.
    pub address: String,
    /// Tell it apart from the metric's other values: `("port", "Ethernet1")`. The configuration may rename
    /// the key of a single one.
    pub labels: Vec<(String, String)>,
    /// Unit of the values behind the factor of this protocol.
    pub unit: Unit,
    pub of_type: DeviceValue,
    /// Factor that the device states: 0.001 for thousandths.
    pub factor: f64,
}

/// Number as a device states it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Number {
    Whole(u64),
    Double(f64),
}

impl Number {
    pub fn to_f64(self) -> f64 {
        match self {
            Self::Whole(value) => polymeter_proto::units::to_f64(value),
            Self::Double(value) => value,
        }
    }
}

/// Why a device could not be read. Contains no secret, and no text of the device. The message has its cause.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    #[error("it did not answer in time; check its address and that it permits this host")]
    Timeout,
    #[error("its answer is malformed: {0}; check that `url` names a device of this protocol")]
    Malformed(&'static str),
    #[error("it redirects to another address; name that one in `url`")]
    Redirected,
    #[error("it refuses the credentials: {0}")]
    Refused(String),
    #[error("it has no session left; end those of others, or wait for a minute")]
    Busy,
    #[error("it closed the connection; check that it permits this host")]
    Closed,
    #[error("cannot reach it: {0}; check `url`")]
    Io(io::Error),
    #[error("cannot reach it: {0}; check `url`")]
    Http(NoAnswer),
    #[error("it answers with the HTTP status {0}; check the path in `url`")]
    Status(u16),
    #[error("cannot use its credentials: {0}")]
    KeyFile(KeyFileError),
    #[error("cannot use its credentials: {0}")]
    Credentials(String),
}

impl From<io::Error> for DeviceError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<NoAnswer> for DeviceError {
    fn from(error: NoAnswer) -> Self {
        Self::Http(error)
    }
}

impl From<KeyFileError> for DeviceError {
    fn from(error: KeyFileError) -> Self {
        Self::KeyFile(error)
    }
}

impl DeviceError {
    pub(super) fn errno(&self) -> Errno {
        match self {
            Self::Timeout => Errno::TIMEDOUT,
            Self::Malformed(_) | Self::Redirected | Self::Status(_) => Errno::BADMSG,
            Self::Http(_) => Errno::IO,
            Self::Refused(_) | Self::KeyFile(_) | Self::Credentials(_) => Errno::ACCESS,
            Self::Busy => Errno::BUSY,
            Self::Closed => Errno::CONNRESET,
            Self::Io(error) => Errno::from_io_error(error).unwrap_or(Errno::IO),
        }
    }
}
