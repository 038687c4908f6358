//! Triggers that fired: which nodes of the job could not keep the interval.

use std::collections::BTreeMap;

use polymeter_proto::ledger::Firing;
use polymeter_proto::series::Identifier;

use crate::backend::Connection;
use crate::error::Context;
use crate::writer::firings::{insert_rows, row};
use crate::{StoreError, StoreUrl};

/// Connection to the firings. After an error its state is unknown, and it must be dropped.
#[derive(Debug)]
pub struct FiringTable(Box<dyn Connection>);

impl FiringTable {
    /// Connects to a store of this version, and changes nothing.
    pub fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        Ok(Self(url.open_current_version()?.connection))
    }

    /// Adds a firing of the collector on a node.
    pub fn add(&mut self, job_key: i64, node: &Identifier, firing: &Firing) -> Result<(), StoreError> {
        const ACTION: &str = "store that a trigger fired";
        let connection = &mut *self.0;
        connection.begin().context(ACTION)?;
        insert_rows(connection, vec![row(job_key, node, firing)]).context(ACTION)?;
        connection.commit().context(ACTION)
    }

    /// Records that `asked` nodes of a job were asked to keep an interval, and those that did not, with the
    /// reasons.
    pub fn record(
        &mut self,
        job_key: i64,
        trigger: u64,
        asked: usize,
        missing: &BTreeMap<String, String>,
    ) -> Result<(), StoreError> {
        const ACTION: &str = "record the nodes of a trigger";
        let missing = serde_json::json!(missing).to_string();
        let asked = i64::try_from(asked).unwrap_or(i64::MAX);
        let (trigger, connection) = (trigger.cast_signed(), &mut *self.0);
        let update = "UPDATE trigger_firing SET nodes_asked = $3, nodes_missing = $4
             WHERE job_key = $1 AND trigger_id = $2";
        connection.begin().context(ACTION)?;
        let parameters = [job_key.into(), trigger.into(), asked.into(), missing.as_str().into()];
        connection.execute(update, &parameters).context(ACTION)?;
        connection.commit().context(ACTION)
    }
}
