//! Parts of experiments in processes of their own: this program again, as `polymeter-bench part NAME`.

use std::error::Error;

use clap::Subcommand;
use polymeter_benches::bare::Bare;

use super::papers::stamps::{self, Stamps};
use super::polling::stand_ins::StandIns;
use super::scale::exporters::Exporters;
use super::scale::fleet::Fleet;
use super::{connections, ebpf, jitter, overhead};

/// A part of an experiment. JSON describes the larger ones.
#[derive(Debug, Subcommand)]
pub(crate) enum Part {
    /// Bare reads.
    Bare { json: String },
    /// Reads the clock on every CPU.
    Clock { seconds: u64 },
    /// Draws pairs of random numbers on every CPU.
    Draw { pairs: u64 },
    /// Causes events that eBPF programs count.
    Events { kind: ebpf::Kind },
    /// Mock exporters.
    Exporters { json: String },
    /// Mock agents.
    Fleet { json: String },
    /// Receives and answers messages, with the keys of standard input.
    Receiver,
    /// Takes time stamps.
    Stamps { json: String },
    /// Stand-ins for devices outside the nodes.
    StandIns { json: String },
}

impl Part {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        match self {
            Self::Bare { json } => serde_json::from_str::<Bare>(&json)?.run(),
            Self::Clock { seconds } => jitter::read_clocks(seconds),
            Self::Draw { pairs } => overhead::draw(pairs),
            Self::Events { kind } => ebpf::cause(kind),
            Self::Exporters { json } => serde_json::from_str::<Exporters>(&json)?.run(),
            Self::Fleet { json } => serde_json::from_str::<Fleet>(&json)?.run(),
            Self::Receiver => connections::receive(),
            Self::Stamps { json } => stamps::take(serde_json::from_str::<Stamps>(&json)?),
            Self::StandIns { json } => serde_json::from_str::<StandIns>(&json)?.run(),
        }
    }
}
