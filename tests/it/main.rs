//! The engine from outside: one binary, one module per subject.

mod basic;
mod model;
mod snapshots;
mod support;
