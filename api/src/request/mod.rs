//! Declaration of a resource, a request for it after its parameters were checked, and the means to answer
//! it.

mod arguments;
mod call;
mod endpoint;

pub(crate) use self::arguments::{Arguments, FORMAT, Kind, Parameter, check_encoding};
pub(crate) use self::call::{Call, Services};
pub(crate) use self::endpoint::{Answer, Endpoint, OBJECT, TABLE};
