//! Time, behind a seam. Nothing is ever *ordered* by a clock: sequence numbers do that. The monotonic clock paces
//! write delays; the wall clock only fills the "created at" fields of files.

use std::fmt;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A source of time.
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Microseconds since some fixed moment; never goes backwards.
    fn monotonic_micros(&self) -> u64;
    /// Seconds since 1970-01-01 UTC, for the "created at" fields of files.
    fn unix_seconds(&self) -> u64;
    /// Waits.
    fn sleep(&self, duration: Duration);
}

/// The operating system's clocks.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl Default for SystemClock {
    #[allow(clippy::disallowed_methods)]
    fn default() -> Self {
        SystemClock { start: Instant::now() }
    }
}

impl Clock for SystemClock {
    fn monotonic_micros(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    #[allow(clippy::disallowed_methods)]
    fn unix_seconds(&self) -> u64 {
        SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs())
    }

    fn sleep(&self, duration: Duration) {
        std::thread::sleep(duration);
    }
}

/// A real monotonic clock whose wall clock stands still: what a database with `Options::seed` writes into its files,
/// so that two runs give the same bytes.
#[derive(Debug, Default)]
pub(crate) struct FixedWallClock(SystemClock);

/// 2000-01-01T00:00:00Z.
const FIXED_WALL_SECONDS: u64 = 946_684_800;

impl Clock for FixedWallClock {
    fn monotonic_micros(&self) -> u64 {
        self.0.monotonic_micros()
    }

    fn unix_seconds(&self) -> u64 {
        FIXED_WALL_SECONDS
    }

    fn sleep(&self, duration: Duration) {
        self.0.sleep(duration);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn monotonic_time_does_not_go_back_and_wall_time_is_after_2020() {
        let clock = SystemClock::default();
        let a = clock.monotonic_micros();
        assert!(clock.monotonic_micros() >= a);
        assert!(clock.unix_seconds() > 1_577_836_800);
        assert_eq!(FixedWallClock::default().unix_seconds(), FIXED_WALL_SECONDS);
    }
}
