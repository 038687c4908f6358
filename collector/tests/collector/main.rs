//! Tests of the collector with actual stores, sockets and agents.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::wildcard_enum_match_arm,
    reason = "a fault of a test is a failed test"
)]

#[macro_use]
mod support;

mod api;
mod api_agents;
mod api_hostile;
mod api_samples;
mod api_tokens;
mod citus;
mod clocks;
mod connections;
mod devices;
mod displaced_store;
mod energy;
mod energy_sources;
mod federation;
mod flood;
mod grafana;
mod job_end;
mod job_facts;
mod job_labels;
mod job_runs;
mod kept;
mod ledger;
mod live;
mod live_clients;
mod mail;
mod metadata;
mod metrics;
mod notices;
mod operations;
mod otlp;
mod plans;
mod postgres;
mod postgrest;
mod program;
mod reading;
mod reading_ends;
mod removal_plans;
mod retention;
mod retention_year;
mod roles;
mod rollup_tables;
mod rollups;
mod sample_table;
mod schema;
mod served_devices;
mod several_collectors;
mod shared_stragglers;
mod sinks;
mod slow_statements;
mod sql_administration;
mod sql_energy;
mod sql_leaks;
mod sql_roles;
mod sql_views;
mod stacks;
mod store_copy;
mod stores;
mod stragglers;
mod texts;
mod time_range;
mod typed_rows;
mod usage;
mod windows;

/// Tests that run at a time for each CPU. They wait for servers about half of their time.
const TESTS_PER_CPU: usize = 2;

fn main() -> std::process::ExitCode {
    let tests = [
        api::TESTS,
        api_agents::TESTS,
        api_hostile::TESTS,
        api_samples::TESTS,
        api_tokens::TESTS,
        citus::TESTS,
        clocks::TESTS,
        connections::TESTS,
        devices::TESTS,
        displaced_store::TESTS,
        energy::TESTS,
        energy_sources::TESTS,
        federation::TESTS,
        flood::TESTS,
        grafana::TESTS,
        job_end::TESTS,
        job_facts::TESTS,
        job_labels::TESTS,
        job_runs::TESTS,
        kept::TESTS,
        ledger::TESTS,
        live::TESTS,
        live_clients::TESTS,
        mail::TESTS,
        otlp::TESTS,
        metadata::TESTS,
        metrics::TESTS,
        notices::TESTS,
        operations::TESTS,
        plans::TESTS,
        postgres::TESTS,
        postgrest::TESTS,
        program::TESTS,
        reading::TESTS,
        reading_ends::TESTS,
        removal_plans::TESTS,
        retention::TESTS,
        retention_year::TESTS,
        roles::TESTS,
        rollup_tables::TESTS,
        rollups::TESTS,
        sample_table::TESTS,
        schema::TESTS,
        several_collectors::TESTS,
        shared_stragglers::TESTS,
        sinks::TESTS,
        served_devices::TESTS,
        slow_statements::TESTS,
        sql_administration::TESTS,
        sql_energy::TESTS,
        sql_leaks::TESTS,
        sql_roles::TESTS,
        sql_views::TESTS,
        stacks::TESTS,
        store_copy::TESTS,
        stores::TESTS,
        stragglers::TESTS,
        texts::TESTS,
        time_range::TESTS,
        typed_rows::TESTS,
        usage::TESTS,
        windows::TESTS,
    ];
    let _servers = support::server::KeptServers::new();
    polymeter_test_harness::run_side_by_side(&tests, TESTS_PER_CPU)
}
