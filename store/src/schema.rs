//! The version of the schema.

/// The newest version of the schema that this program knows. Each version has a file per backend in `schema/`, and since
/// version 6 one for all of them. Since version 7 there is a file per subject.
pub const SCHEMA_VERSION: i32 = 8;
