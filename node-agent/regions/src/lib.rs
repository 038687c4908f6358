//! Counts the regions of an instrumented program and sends them to the agent of its job.
//!
//! A region is a part of a program with a name, which threads enter and leave: by the functions of
//! `polymeter.h`, LIKWID's marker functions, or those of Kokkos Tools. Each thread counts in a table of its
//! own, without locks and allocations after the first entry. One thread adds the tables up once a second and
//! sends the sums over the control socket of the agent.
//!
//! The invariant: the program runs as it would without the library. Nothing fails where no agent is, nothing
//! waits for one but the end of the process, for at most [`limits::FLUSH_WAIT`], and no signal is handled
//! here.

pub mod c_api;
mod clock;
mod current;
mod destination;
pub mod kokkos;
pub mod likwid;
pub mod limits;
mod message;
mod process;
mod registry;
mod sender;
mod slot;
mod thread_table;
