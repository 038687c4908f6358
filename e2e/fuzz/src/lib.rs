//! The bodies of the fuzz targets. A body takes any bytes, and panics if they break a rule.
//!
//! `tests/corpora.rs` runs them on the corpora and on mutations of them; `instrumented/` has a program of
//! libFuzzer for each.

#![allow(
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a fault of what is fuzzed is a panic, and each file tells the rules of its target"
)]

pub mod advice;
pub mod configuration;
pub mod connections;
pub mod control;
pub mod exposition;
pub mod federation;
pub mod frame;
pub mod ingest;
pub mod kernel_text;
pub mod message;
pub mod otlp;
pub mod reading;
pub mod remote_write;
pub mod sources;
pub mod spool;

pub type Body = fn(&[u8]);

/// Targets by their names, which are those of their corpora.
pub const TARGETS: &[(&str, Body)] = &[
    ("advice", advice::body),
    ("configuration", configuration::body),
    ("connections", connections::body),
    ("control", control::body),
    ("exposition", exposition::body),
    ("federation", federation::body),
    ("frame", frame::body),
    ("ingest", ingest::body),
    ("kernel_text", kernel_text::body),
    ("message", message::body),
    ("otlp", otlp::body),
    ("reading", reading::body),
    ("remote_write", remote_write::body),
    ("sources", sources::body),
    ("spool", spool::body),
];
