//! The tests, by theme. Each is named by the fact that it shows.

mod addresses;
mod apparmor;
mod asking;
mod automounts;
mod bad_policy_files;
mod ceilings;
mod check;
mod containers;
mod derived;
mod derived_trust;
mod descriptors;
mod devices;
mod doctor;
mod environment;
mod escape;
mod events;
mod exit_codes;
mod explicit;
mod flow;
mod fronting;
mod in_bwrap;
mod inside;
mod interrupted;
mod learn;
mod lookups;
mod modes;
mod nested;
mod nested_walls;
mod next_run;
mod platforms;
mod policy;
mod policy_files;
mod policy_shown;
mod ports;
mod programs;
mod proxy;
mod reach;
mod real_root;
mod refuse;
mod service;
mod service_attacks;
mod service_away;
mod service_cases;
mod service_clients;
mod service_crowd;
mod service_events;
mod service_limits;
mod service_operations;
mod service_users;
mod several;
mod signals;
pub mod steps;
mod system_file;
mod terminal;
mod terminal_jobs;
mod terminal_programs;
mod trust;
mod unix_sockets;
mod usage;
pub mod without_nf_tables;

use crate::Test;

/// All tests.
pub fn all() -> impl Iterator<Item = &'static Test> {
    let themes = [
        reach::TESTS,
        refuse::TESTS,
        fronting::TESTS,
        addresses::TESTS,
        lookups::TESTS,
        flow::TESTS,
        modes::TESTS,
        in_bwrap::TESTS,
        inside::TESTS,
        interrupted::TESTS,
        descriptors::TESTS,
        devices::TESTS,
        exit_codes::TESTS,
        steps::TESTS,
        platforms::TESTS,
        signals::TESTS,
        terminal::TESTS,
        terminal_jobs::TESTS,
        terminal_programs::TESTS,
        unix_sockets::TESTS,
        programs::runtimes::TESTS,
        programs::builds::TESTS,
        programs::desks::TESTS,
        programs::wrapping::TESTS,
        escape::sockets::TESTS,
        escape::descriptors::TESTS,
        escape::processes::TESTS,
        escape::kernel::TESTS,
        escape::mounts::TESTS,
        escape::root::TESTS,
        nested::TESTS,
        nested_walls::TESTS,
        containers::TESTS,
        apparmor::TESTS,
        real_root::TESTS,
        next_run::TESTS,
        automounts::TESTS,
        trust::TESTS,
        asking::TESTS,
        ceilings::TESTS,
        policy_files::TESTS,
        policy_shown::TESTS,
        bad_policy_files::TESTS,
        system_file::TESTS,
        events::TESTS,
        usage::TESTS,
        check::TESTS,
        policy::TESTS,
        doctor::TESTS,
        derived::TESTS,
        derived_trust::TESTS,
        learn::TESTS,
        environment::TESTS,
        ports::TESTS,
        several::TESTS,
        service::TESTS,
        service_attacks::TESTS,
        service_away::TESTS,
        service_cases::TESTS,
        service_crowd::TESTS,
        service_events::TESTS,
        service_limits::TESTS,
        service_clients::TESTS,
        service_users::TESTS,
        service_operations::TESTS,
        proxy::TESTS,
        explicit::TESTS,
        without_nf_tables::TESTS,
    ];
    themes.into_iter().flatten()
}
