//! The engine from outside: one binary, one module per subject.

mod basic;
mod support;
