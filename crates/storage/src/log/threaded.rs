//! A log's device on a thread of its own.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::JoinHandle;

use super::device::{Device, Store};
use super::logged::Driver;

/// Called after each store, so that the worker polls.
pub type Waker = Box<dyn Fn() + Send>;

/// A [`Driver`] whose thread stores and waits. Dropping it waits for the store under way.
#[derive(Debug)]
pub struct Threaded {
    stores: Option<SyncSender<Store>>,
    ended: Receiver<Result<(), String>>,
    thread: Option<JoinHandle<()>>,
}

impl Threaded {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system's reason.
    pub fn start<D: Device + Send + 'static>(
        mut device: D,
        wake: Waker,
    ) -> std::io::Result<Threaded> {
        let (stores, asked) = sync_channel::<Store>(1);
        let (end, ended) = sync_channel(1);
        let thread = std::thread::Builder::new().name("log".into()).spawn(move || {
            while let Ok(store) = asked.recv() {
                if end.send(device.store(&store)).is_err() {
                    return;
                }
                wake();
            }
        })?;
        Ok(Threaded { stores: Some(stores), ended, thread: Some(thread) })
    }
}

impl Driver for Threaded {
    fn begin(&mut self, store: Store) {
        // A thread that is gone is told by the next poll.
        if let Some(stores) = &self.stores {
            drop(stores.send(store));
        }
    }

    fn ended(&mut self) -> Option<Result<(), String>> {
        match self.ended.try_recv() {
            Ok(ended) => Some(ended),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(Err("its thread ended".into())),
        }
    }
}

impl Drop for Threaded {
    fn drop(&mut self) {
        self.stores = None;
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}
