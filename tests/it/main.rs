//! The engine from outside: one binary, one module per subject.

mod acceptance;
mod basic;
mod conditional;
mod crash;
mod crash_workload;
mod determinism;
mod keyspaces;
mod kill;
mod model;
mod snapshots;
mod stalls;
mod support;
