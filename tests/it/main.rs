//! The engine from outside: one binary, one module per subject.

// The fences of `clippy.toml` are for the library: a test uses threads, locks and files as any program does.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]
// `..Default::default()` at the end of every literal of options, as their documentation asks for.
#![allow(clippy::needless_update)]

mod acceptance;
mod basic;
mod conditional;
mod corruption;
mod crash;
mod crash_workload;
mod descriptors;
mod determinism;
mod docs;
mod faults;
mod keyspaces;
mod kill;
mod locks;
mod model;
mod panics;
mod recovery;
mod sizes;
mod snapshots;
mod stalls;
mod support;
