//! What stands in for hardware events while other programs use the counters: its samples are due and absent,
//! and the ledger counts them under a name of their own.

use polymeter_proto::catalogue::Definition;

use super::event_config::EventPlaces;
use super::events::config;
use super::values::slots;
use crate::sources::custom_source::CustomSource;
use crate::sources::outcome::Outcome;
use crate::sources::reading::Reading;
use crate::sources::slot::Slot;

pub(crate) const RELEASED: &str = "perf/released/";

#[derive(Debug)]
pub(crate) struct ReleasedEvents {
    slots: Vec<Slot>,
}

impl ReleasedEvents {
    pub(crate) fn new(
        definitions: &[Definition],
        places: &EventPlaces,
        target_labels: &[(String, String)],
    ) -> Self {
        let mut measured = Vec::new();
        for definition in definitions {
            let config = config(definition, places);
            measured.push(
                config.map_or_else(|_unknown| definition.clone(), |config| config.measured(definition)),
            );
        }
        Self { slots: slots(&measured, false, target_labels) }
    }
}

impl CustomSource for ReleasedEvents {
    fn slots(&self) -> &[Slot] {
        &self.slots
    }

    fn read(&mut self, reading: &mut Reading) -> Outcome {
        reading.clear();
        Outcome::Read
    }

    fn is_lasting(&self) -> bool {
        true
    }
}
