//! Background work: a pool of threads, or, with no threads, a queue that the caller empties at fixed points, so that
//! file operations come in the same order in every run.
//!
//! With threads there are two queues, each first in, first out. High ones (flushes) go before low ones (compactions),
//! and of two or more threads one is never given a low job, so that a flush does not wait for a long compaction.
//! Inline there is one queue, in the order of `spawn`.
//!
//! A job that panics does not take its thread along: the panic is counted, kept as a message and told to the hook.

use crate::error::{Error, ErrorKind, Result};
use crate::sync::{Arc, Condvar, Mutex, spawn};
use std::any::Any;
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::{JoinHandle, ThreadId, current};

/// A piece of background work.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// Is told of each panic, on the thread of the job, with no lock of the executor held.
pub(crate) type PanicHook = Arc<dyn Fn(&str) + Send + Sync>;

/// Which jobs go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    /// Somebody waits for it, or soon will: flushes.
    High,
    /// It can wait: compactions.
    Low,
}

/// Runs jobs, on its threads or on its caller's. Dropping it shuts it down.
pub(crate) struct Executor {
    shared: Arc<Shared>,
    threads: usize,
    handles: Mutex<Vec<JoinHandle<()>>>,
    /// A forked child has a copy of this value, but none of its threads.
    pid: u32,
}

struct Shared {
    state: Mutex<State>,
    /// Told of every change of `state`.
    changed: Condvar,
    max_low: usize,
}

#[derive(Default)]
struct State {
    high: VecDeque<Job>,
    low: VecDeque<Job>,
    running_low: usize,
    /// The pool's threads that have not ended.
    workers: Vec<ThreadId>,
    /// Inline: the thread that runs the jobs now.
    runner: Option<ThreadId>,
    shut_down: bool,
    panics: u64,
    last_panic: Option<String>,
    hook: Option<PanicHook>,
}

impl State {
    fn next(&mut self, max_low: usize) -> Option<(Priority, Job)> {
        if let Some(job) = self.high.pop_front() {
            return Some((Priority::High, job));
        }
        if self.running_low >= max_low {
            return None;
        }
        let job = self.low.pop_front()?;
        self.running_low += 1;
        Some((Priority::Low, job))
    }
}

impl Shared {
    fn run(&self, job: Job) {
        let Err(payload) = catch_unwind(AssertUnwindSafe(job)) else { return };
        let message = panic_message(&*payload);
        let hook = {
            let mut state = self.state.lock();
            state.panics += 1;
            state.last_panic = Some(message.clone());
            state.hook.clone()
        };
        if let Some(hook) = hook {
            // A hook that panics must not end the thread either.
            let _ = catch_unwind(AssertUnwindSafe(|| hook(&message)));
        }
    }

    fn work(&self) {
        let mut state = self.state.lock();
        while !state.shut_down {
            let Some((priority, job)) = state.next(self.max_low) else {
                self.changed.wait(&mut state);
                continue;
            };
            drop(state);
            self.run(job);
            state = self.state.lock();
            if priority == Priority::Low {
                state.running_low -= 1;
            }
        }
        state.workers.retain(|&id| id != current().id());
        self.changed.notify_all();
    }
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)").to_owned()
}

impl Executor {
    /// An executor of `threads` threads; of none, jobs run inside [`run_pending`](Self::run_pending).
    pub(crate) fn new(threads: usize) -> Result<Arc<Self>> {
        let max_low = threads.saturating_sub(1).max(1);
        let shared = Arc::new(Shared { state: Mutex::default(), changed: Condvar::new(), max_low });
        let executor = Executor { shared, threads, handles: Mutex::default(), pid: std::process::id() };
        for number in 0..threads {
            let shared = Arc::clone(&executor.shared);
            // On failure `executor` is dropped, which ends the threads started so far.
            let handle = spawn(&format!("siftdb-{number}"), move || shared.work()).map_err(|e| {
                Error::new(ErrorKind::Io, format!("cannot start background thread {number} of {threads}: {e}"))
            })?;
            executor.shared.state.lock().workers.push(handle.thread().id());
            executor.handles.lock().push(handle);
        }
        Ok(Arc::new(executor))
    }

    /// Whether jobs run on the caller.
    pub(crate) fn is_inline(&self) -> bool {
        self.threads == 0
    }

    /// Queues a job. After [`shutdown`](Self::shutdown) it is dropped unrun, and the answer is false.
    pub(crate) fn spawn(&self, priority: Priority, job: Job) -> bool {
        let mut state = self.shared.state.lock();
        if state.shut_down {
            drop(state);
            return false;
        }
        match priority {
            Priority::Low if !self.is_inline() => state.low.push_back(job),
            Priority::Low | Priority::High => state.high.push_back(job),
        }
        // All of them: the one that would be woken alone may not be allowed a low job.
        self.shared.changed.notify_all();
        true
    }

    /// Inline: runs what is queued, and what that queues, in order. To be called with no lock held. When it returns,
    /// every job queued before has run, except that a call from within a job returns at once; while another thread is
    /// running the jobs, the call waits for that. With threads it does nothing.
    pub(crate) fn run_pending(&self) {
        if !self.is_inline() || self.forked() {
            return;
        }
        let me = current().id();
        let mut state = self.shared.state.lock();
        while state.runner.is_some_and(|runner| runner != me) {
            self.shared.changed.wait(&mut state);
        }
        if state.runner.is_some() {
            return;
        }
        state.runner = Some(me);
        while let Some(job) = state.high.pop_front() {
            drop(state);
            self.shared.run(job);
            state = self.shared.state.lock();
        }
        state.runner = None;
        self.shared.changed.notify_all();
    }

    /// Takes no more jobs, drops what is queued, waits for what is running and ends the threads. May be called again,
    /// and from a job, which then waits for the other jobs only. In a forked child it does nothing.
    pub(crate) fn shutdown(&self) {
        if self.forked() {
            return;
        }
        let queued = {
            let mut state = self.shared.state.lock();
            state.shut_down = true;
            (std::mem::take(&mut state.high), std::mem::take(&mut state.low))
        };
        self.shared.changed.notify_all();
        // With no lock held: what a job owns may call back when it goes.
        drop(queued);
        let handles = std::mem::take(&mut *self.handles.lock());
        for handle in handles {
            if handle.thread().id() != current().id() {
                // It can't have panicked: jobs are caught.
                let _ = handle.join();
            }
        }
        self.wait_for_others();
    }

    /// Whether the caller is a job.
    pub(crate) fn is_running_here(&self) -> bool {
        let me = current().id();
        let state = self.shared.state.lock();
        state.workers.contains(&me) || state.runner == Some(me)
    }

    /// For those who found the threads in somebody else's hands. A job must not wait for another that may be here,
    /// too, waiting for this one.
    fn wait_for_others(&self) {
        let me = current().id();
        let mut state = self.shared.state.lock();
        if state.workers.contains(&me) || state.runner == Some(me) {
            return;
        }
        while !state.workers.is_empty() || state.runner.is_some() {
            self.shared.changed.wait(&mut state);
        }
    }

    /// How many jobs panicked, and what the last one said.
    #[cfg(test)]
    pub(crate) fn panics(&self) -> (u64, Option<String>) {
        let state = self.shared.state.lock();
        (state.panics, state.last_panic.clone())
    }

    /// Sets who is told of panics from now on.
    pub(crate) fn on_panic(&self, hook: PanicHook) {
        self.shared.state.lock().hook = Some(hook);
    }

    fn forked(&self) -> bool {
        std::process::id() != self.pid
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        if self.forked() {
            // These threads are the parent's: not even detached here.
            std::mem::take(self.handles.get_mut()).into_iter().for_each(std::mem::forget);
            return;
        }
        self.shutdown();
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("threads", &self.threads).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(20);
    /// Long enough for a wrong answer to come, in most runs.
    const MOMENT: Duration = Duration::from_millis(30);

    /// A job that says it began, and ends when its sender is dropped.
    fn gate(name: u32, began: &Sender<u32>) -> (Job, Sender<()>) {
        let (open, gate) = channel::<()>();
        let began = began.clone();
        let job = move || {
            began.send(name).unwrap();
            let _ = gate.recv_timeout(LONG);
        };
        (Box::new(job), open)
    }

    fn says(name: u32, out: &Sender<u32>) -> Job {
        let out = out.clone();
        Box::new(move || out.send(name).unwrap())
    }

    fn all(receiver: &Receiver<u32>) -> Vec<u32> {
        receiver.try_iter().collect()
    }

    #[test]
    fn inline_jobs_run_on_the_caller_in_order_and_only_when_asked() {
        let executor = Executor::new(0).unwrap();
        let (out, done) = channel();
        executor.spawn(Priority::Low, says(1, &out));
        executor.spawn(Priority::High, says(2, &out));
        let me = current().id();
        executor.spawn(Priority::Low, Box::new(move || assert_eq!(current().id(), me)));
        assert!(executor.is_inline() && all(&done).is_empty());
        executor.run_pending();
        assert_eq!((all(&done), executor.panics().0), (vec![1, 2], 0));
    }

    #[test]
    fn an_inline_job_may_queue_another_but_not_run_it_inside_itself() {
        let executor = Executor::new(0).unwrap();
        let (out, done) = channel();
        let inner = Arc::clone(&executor);
        let sender = out.clone();
        let job = move || {
            inner.spawn(Priority::High, says(2, &sender));
            inner.run_pending();
            sender.send(1).unwrap();
        };
        executor.spawn(Priority::High, Box::new(job));
        executor.run_pending();
        assert_eq!(all(&done), [1, 2]);
    }

    #[test]
    fn run_pending_waits_while_another_thread_runs_the_inline_jobs() {
        let executor = Executor::new(0).unwrap();
        let (out, done) = channel();
        let (job, open) = gate(1, &out);
        executor.spawn(Priority::High, job);
        executor.spawn(Priority::High, says(2, &out));
        let other = Arc::clone(&executor);
        let runner = spawn("runner", move || other.run_pending()).unwrap();
        assert_eq!(done.recv_timeout(LONG), Ok(1));
        let (other, sender) = (Arc::clone(&executor), out.clone());
        let waiter = spawn("waiter", move || {
            other.run_pending();
            sender.send(3).unwrap();
        })
        .unwrap();
        assert!(done.recv_timeout(MOMENT).is_err());
        drop(open);
        runner.join().unwrap();
        waiter.join().unwrap();
        assert_eq!(all(&done), [2, 3]);
    }

    #[test]
    fn threads_run_jobs_first_in_first_out_and_run_pending_does_nothing() {
        let executor = Executor::new(1).unwrap();
        let (out, done) = channel();
        let (job, open) = gate(0, &out);
        executor.spawn(Priority::High, job);
        assert_eq!(done.recv_timeout(LONG), Ok(0));
        for name in 1..5 {
            executor.spawn(Priority::Low, says(name, &out));
        }
        executor.spawn(Priority::High, says(9, &out));
        executor.run_pending();
        assert!(all(&done).is_empty());
        drop(open);
        let order: Vec<u32> = (0..5).map(|_| done.recv_timeout(LONG).unwrap()).collect();
        assert_eq!(order, [9, 1, 2, 3, 4]);
    }

    #[test]
    fn one_of_two_threads_stays_free_for_high_jobs() {
        let executor = Executor::new(2).unwrap();
        let (out, done) = channel();
        let (first, open_first) = gate(1, &out);
        let (second, open_second) = gate(2, &out);
        executor.spawn(Priority::Low, first);
        executor.spawn(Priority::Low, second);
        assert_eq!(done.recv_timeout(LONG), Ok(1));
        assert!(done.recv_timeout(MOMENT).is_err());
        executor.spawn(Priority::High, says(3, &out));
        assert_eq!(done.recv_timeout(LONG), Ok(3));
        drop(open_first);
        assert_eq!(done.recv_timeout(LONG), Ok(2));
        drop(open_second);
    }

    #[test]
    fn a_panic_is_counted_and_told_and_the_thread_goes_on() {
        for threads in [0, 1] {
            let executor = Executor::new(threads).unwrap();
            let (out, done) = channel();
            let sender = Mutex::new(out.clone());
            executor
                .on_panic(Arc::new(move |message| sender.lock().send(u32::try_from(message.len()).unwrap()).unwrap()));
            executor.spawn(Priority::Low, Box::new(|| std::panic::resume_unwind(Box::new("four"))));
            executor.spawn(Priority::Low, says(9, &out));
            executor.run_pending();
            assert_eq!(done.recv_timeout(LONG), Ok(4));
            assert_eq!(done.recv_timeout(LONG), Ok(9));
            assert_eq!(executor.panics(), (1, Some("four".to_owned())));
        }
    }

    #[test]
    fn shutdown_waits_for_the_running_job_and_drops_the_queued_ones() {
        let executor = Executor::new(1).unwrap();
        let (out, done) = channel();
        let (job, open) = gate(1, &out);
        executor.spawn(Priority::High, job);
        assert_eq!(done.recv_timeout(LONG), Ok(1));
        executor.spawn(Priority::High, says(2, &out));
        let other = Arc::clone(&executor);
        let sender = out.clone();
        let closer = spawn("closer", move || {
            other.shutdown();
            sender.send(3).unwrap();
        })
        .unwrap();
        assert!(done.recv_timeout(MOMENT).is_err());
        drop(open);
        executor.shutdown();
        closer.join().unwrap();
        assert_eq!(all(&done), [3]);
        assert!(!executor.spawn(Priority::High, says(4, &out)));
    }

    #[test]
    fn inline_shutdown_drops_the_queue() {
        let executor = Executor::new(0).unwrap();
        let (out, done) = channel();
        executor.spawn(Priority::High, says(1, &out));
        executor.shutdown();
        executor.shutdown();
        executor.run_pending();
        assert!(all(&done).is_empty());
    }

    #[test]
    fn a_job_may_shut_the_pool_down_and_so_may_two_at_once() {
        for threads in [0, 1, 3] {
            let executor = Executor::new(threads).unwrap();
            let (out, done) = channel();
            for name in 0..2 {
                let (inner, out) = (Arc::clone(&executor), out.clone());
                let job = move || {
                    inner.shutdown();
                    out.send(name).unwrap();
                };
                executor.spawn(Priority::High, Box::new(job));
            }
            executor.run_pending();
            assert!(done.recv_timeout(LONG).is_ok());
            executor.shutdown();
        }
    }

    #[test]
    fn the_last_handle_may_be_dropped_by_a_job() {
        let executor = Executor::new(2).unwrap();
        let (out, done) = channel();
        let (go, wait) = channel::<()>();
        let inner = Arc::clone(&executor);
        let job = move || {
            let _ = wait.recv_timeout(LONG);
            drop(inner);
            out.send(1).unwrap();
        };
        executor.spawn(Priority::High, Box::new(job));
        drop(executor);
        drop(go);
        assert_eq!(done.recv_timeout(LONG), Ok(1));
    }

    #[test]
    fn an_executor_of_another_process_is_left_alone() {
        let mut executor = Arc::into_inner(Executor::new(1).unwrap()).unwrap();
        let (out, done) = channel();
        executor.pid ^= 1;
        executor.shutdown();
        assert!(executor.spawn(Priority::High, says(1, &out)));
        assert_eq!(done.recv_timeout(LONG), Ok(1));
        executor.pid ^= 1;
    }
}
