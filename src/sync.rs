//! Every lock, condition variable, thread and atomic of the crate comes from here, so that a model checker can stand
//! in for them in one place. parking_lot: no poisoning, and ThreadSanitizer understands it.

pub(crate) use parking_lot::{Condvar, Mutex, MutexGuard, RwLock};
pub(crate) use std::sync::Arc;
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use std::thread::JoinHandle;

/// Starts a named thread.
#[allow(clippy::disallowed_methods)]
pub(crate) fn spawn(name: &str, body: impl FnOnce() + Send + 'static) -> std::io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name(name.to_owned()).spawn(body)
}

/// Does `then` if the thread begins to panic while this lives. Locks here are not poisoned, so whoever leaves something
/// half done says what that means.
pub(crate) struct OnPanic<F: FnMut()> {
    /// A destructor that runs because of another panic is none of ours.
    before: bool,
    then: F,
}

impl<F: FnMut()> OnPanic<F> {
    pub(crate) fn new(then: F) -> Self {
        OnPanic { before: std::thread::panicking(), then }
    }
}

impl<F: FnMut()> Drop for OnPanic<F> {
    fn drop(&mut self) {
        if !self.before && std::thread::panicking() {
            (self.then)();
        }
    }
}

/// Named points at which a test may hold a thread, to bring about one schedule. Nothing in ordinary builds.
#[cfg(any(test, feature = "internals"))]
pub mod pause {
    use super::{Arc, Condvar, Mutex};
    use std::collections::HashMap;

    #[derive(Default)]
    struct State {
        held: HashMap<String, usize>,
        waiting: HashMap<String, usize>,
    }

    /// The pause points of one database. Cheap to clone; a point that nobody holds costs a map look-up.
    #[derive(Clone, Default)]
    pub struct PausePoints(Arc<(Mutex<State>, Condvar)>);

    impl PausePoints {
        /// From now on every thread that reaches `point` waits there.
        pub fn hold(&self, point: &str) {
            *self.0.0.lock().held.entry(point.to_owned()).or_default() += 1;
        }

        /// Lets everybody at `point` go on, and does not hold there any more.
        pub fn release(&self, point: &str) {
            self.0.0.lock().held.remove(point);
            self.0.1.notify_all();
        }

        /// Waits until `count` threads stand at `point`. Gives up after 30 seconds and returns false.
        pub fn wait_for(&self, point: &str, count: usize) -> bool {
            let mut state = self.0.0.lock();
            while state.waiting.get(point).copied().unwrap_or(0) < count {
                if self.0.1.wait_for(&mut state, std::time::Duration::from_secs(30)).timed_out() {
                    return false;
                }
            }
            true
        }

        /// How many threads stand at `point` now.
        pub fn wait_now(&self, point: &str) -> usize {
            self.0.0.lock().waiting.get(point).copied().unwrap_or(0)
        }

        pub(crate) fn reach(&self, point: &str) {
            let mut state = self.0.0.lock();
            if !state.held.contains_key(point) {
                return;
            }
            *state.waiting.entry(point.to_owned()).or_default() += 1;
            self.0.1.notify_all();
            // Not for ever: a test that fails while it holds a point must end, too.
            while state.held.contains_key(point) {
                if self.0.1.wait_for(&mut state, std::time::Duration::from_secs(20)).timed_out() {
                    break;
                }
            }
            if let Some(count) = state.waiting.get_mut(point) {
                *count -= 1;
            }
        }
    }
}
