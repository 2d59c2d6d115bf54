//! kvbench: read-amplification experiments on siftdb.
fn main() {}
