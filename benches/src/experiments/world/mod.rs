//! Fills a store with months of past jobs through the real collector, and measures reads from it.

mod arguments;
mod calendar;
mod fill;
mod fleet;
mod measure;
mod node;
mod reads;
mod remote;
mod scale;
mod sizes;
mod template;

use std::error::Error;

use polymeter_benches::store::{Kind, Store};
use polymeter_benches::table::{self, say};

pub(crate) use self::arguments::Arguments;

pub(crate) fn run(arguments: Arguments) -> Result<(), Box<dyn Error>> {
    let arguments = arguments.or_quick();
    table::machine();
    let store = match &arguments.into {
        Some(url) => Store::existing(url)?,
        None => Store::start(arguments.store.unwrap_or_else(Kind::best))?,
    };
    let is_filled = measure::is_filled(&store);
    if is_filled && !arguments.measure && arguments.add.is_empty() {
        return Err("the store has been filled before; --measure measures it".into());
    }
    if !is_filled {
        fill::fill(&store, &arguments)?;
    }
    if !arguments.add.is_empty() {
        fill::add(&store, &arguments)?;
    }
    let sizes = sizes::measure(&store)?;
    if arguments.measure {
        say("");
        measure::measure(&store, &arguments, &sizes)?;
    }
    Ok(())
}
