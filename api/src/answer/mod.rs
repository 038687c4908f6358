//! Answers: problems, formats, rows as JSON and CSV, and bodies that are sent while the store is read.

mod body;
mod compression;
mod cores;
mod format;
mod problem;
mod recent;
pub(crate) mod rows;
mod table;

pub(crate) use self::body::{ChunkReceiver, Chunks, Failure, json_response};
pub(crate) use self::compression::{ChunkEncoder, accepts_gzip, compressed_answer, compressed_file};
pub(crate) use self::cores::{Cores, KeptCores};
pub(crate) use self::format::{Format, negotiate};
pub(crate) use self::problem::{Problem, as_page};
pub(crate) use self::recent::RecentAnswers;
pub(crate) use self::rows::{labels, level, rate, rate_of};
pub(crate) use self::table::{Column, Table, Type, csv_field, micros, number};
