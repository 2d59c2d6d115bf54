//! The engine from outside: one binary, one module per subject.

mod acceptance;
mod basic;
mod crash;
mod crash_workload;
mod kill;
mod model;
mod snapshots;
mod stalls;
mod support;
