//! The engine from outside: one binary, one module per subject.

mod acceptance;
mod basic;
mod crash;
mod crash_workload;
mod faults;
mod kill;
mod stalls;
mod support;
