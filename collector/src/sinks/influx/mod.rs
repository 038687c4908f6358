//! Sink that sends samples to an InfluxDB, or another receiver of its line protocol, by HTTP or in datagrams.

mod lines;
#[cfg(test)]
mod tests;

use bytes::Bytes;

use self::lines::Lines;
use super::outbound::{Body, Form, Protocol, is_temporary, read, read_text};
use super::remote_write::prometheus_names;

pub static PROTOCOL: Protocol = Protocol {
    sink: "influx",
    version: "",
    spool: "/var/lib/polymeter/influx",
    names: prometheus_names,
    has_starts: false,
    form: &Form {
        version: "",
        headers: &[("content-type", "text/plain; charset=utf-8")],
        encode: to_lines,
        read: read_text,
        is_repeated: is_temporary,
    },
    fall_back: None,
};

fn to_lines(payload: &Bytes) -> Option<Body> {
    let Lines { text, not_numbers } = read(payload)?.into();
    Some(Body { bytes: text.into(), not_numbers })
}
