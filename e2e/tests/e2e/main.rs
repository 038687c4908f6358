//! End-to-end tests of the real programs, from the kernel to the database.

#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a fault of a test is a failed test"
)]

mod api_requests;
mod bundle;
mod capacity;
mod check;
mod compare;
mod control;
mod counters;
mod database_failover;
mod delivery;
mod devices;
mod doctor;
mod documents;
mod ebpf;
mod everyday;
mod examples;
mod export;
mod exporters;
mod failover;
mod faults;
mod final_samples;
mod first_screen;
mod full_disk;
mod gpu_errors;
mod job_ids;
mod jobs;
mod json;
mod keep_requests;
mod kept_intervals;
mod late_files;
mod leases;
mod ledger;
mod live;
mod login_node;
mod long_jobs;
mod management_controllers;
mod measuring;
mod memory_faults;
mod munge_tokens;
mod oar;
mod oar_states;
mod on_demand;
mod openmetrics;
mod operation;
mod other_schedulers;
mod outcomes;
mod output;
mod outside_devices;
mod overhead;
mod page;
mod pmu;
mod reading;
mod refresh_intervals;
mod regions;
mod remote;
mod remote_steps;
mod remote_write;
mod ring_leases;
mod run;
mod run_records;
mod sampling;
mod security;
mod service_manager;
mod service_user;
mod setup;
mod shared_requests;
mod site;
mod site_accessibility;
mod site_answers;
mod site_fixture;
mod site_functions;
mod site_health;
mod site_interruptions;
mod site_keyboard;
mod site_program;
mod slurm;
mod slurm_comment;
mod slurm_findings;
mod slurm_hindsight;
mod slurm_pages;
mod slurm_rack;
mod spool;
mod stack_findings;
mod step_counters;
mod step_leases;
mod terminal;
mod triggers;
mod two_collectors;
mod units;
mod unreadable;
mod watch;
mod web_server;
mod windows;

const ALL: &[&[polymeter_test_harness::Test]] = &[
    api_requests::TESTS,
    bundle::TESTS,
    capacity::TESTS,
    check::TESTS,
    compare::TESTS,
    control::TESTS,
    counters::TESTS,
    database_failover::TESTS,
    delivery::TESTS,
    devices::TESTS,
    doctor::TESTS,
    documents::TESTS,
    documents::guides::TESTS,
    ebpf::TESTS,
    everyday::TESTS,
    examples::TESTS,
    export::TESTS,
    exporters::TESTS,
    failover::TESTS,
    faults::TESTS,
    final_samples::TESTS,
    first_screen::TESTS,
    full_disk::TESTS,
    gpu_errors::TESTS,
    job_ids::TESTS,
    jobs::TESTS,
    json::TESTS,
    late_files::TESTS,
    leases::TESTS,
    keep_requests::TESTS,
    kept_intervals::TESTS,
    ledger::TESTS,
    live::TESTS,
    login_node::TESTS,
    long_jobs::TESTS,
    measuring::TESTS,
    memory_faults::TESTS,
    oar::TESTS,
    oar_states::TESTS,
    munge_tokens::TESTS,
    on_demand::TESTS,
    openmetrics::TESTS,
    management_controllers::TESTS,
    outside_devices::TESTS,
    operation::TESTS,
    other_schedulers::TESTS,
    outcomes::TESTS,
    output::TESTS,
    overhead::TESTS,
    page::TESTS,
    pmu::TESTS,
    reading::TESTS,
    refresh_intervals::TESTS,
    regions::TESTS,
    remote::TESTS,
    remote_steps::TESTS,
    remote_write::TESTS,
    ring_leases::TESTS,
    run::TESTS,
    run_records::TESTS,
    sampling::TESTS,
    security::TESTS,
    service_manager::TESTS,
    service_user::TESTS,
    setup::TESTS,
    shared_requests::TESTS,
    site::TESTS,
    site_accessibility::TESTS,
    site_answers::TESTS,
    site_functions::TESTS,
    site_health::TESTS,
    site_interruptions::TESTS,
    site_keyboard::TESTS,
    site_program::TESTS,
    slurm::TESTS,
    slurm_comment::TESTS,
    slurm_findings::TESTS,
    slurm_hindsight::TESTS,
    slurm_pages::TESTS,
    slurm_rack::TESTS,
    spool::TESTS,
    stack_findings::TESTS,
    step_counters::TESTS,
    step_leases::TESTS,
    triggers::TESTS,
    two_collectors::TESTS,
    units::TESTS,
    unreadable::TESTS,
    watch::TESTS,
    web_server::TESTS,
    windows::TESTS,
];

fn main() -> std::process::ExitCode {
    let _servers = polymeter_e2e::server::KeptServers::new();
    polymeter_e2e::run_side_by_side(ALL, 2)
}
