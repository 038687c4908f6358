//! Tests of the whole sink with a receiver that answers as ordered.

mod delivery;
mod fixture;
mod influx;
mod receiver;
mod restarts;
mod selection;
mod tls;
