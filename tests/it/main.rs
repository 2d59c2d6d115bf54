//! The engine from outside: one binary, one module per subject.

mod acceptance;
mod basic;
mod corruption;
mod crash;
mod crash_workload;
mod faults;
mod kill;
mod locks;
mod recovery;
mod stalls;
mod support;
