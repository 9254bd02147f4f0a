//! The events of the engine on their way out: the producer never waits, statuses are coalesced to the latest, everything
//! else is never lost.

use super::event::EngineEvent;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The producing end.
#[derive(Clone)]
pub struct EventSender {
    queue: Arc<Mutex<VecDeque<EngineEvent>>>,
    wake: async_channel::Sender<()>,
}

/// The consuming end. Clones take from the same queue.
#[derive(Clone)]
pub struct EventReceiver {
    queue: Arc<Mutex<VecDeque<EngineEvent>>>,
    woken: async_channel::Receiver<()>,
}

/// Makes both ends.
pub fn channel() -> (EventSender, EventReceiver) {
    let queue = Arc::new(Mutex::default());
    let (wake, woken) = async_channel::bounded(1);
    (EventSender { queue: queue.clone(), wake }, EventReceiver { queue, woken })
}

fn lock(queue: &Mutex<VecDeque<EngineEvent>>) -> MutexGuard<'_, VecDeque<EngineEvent>> {
    // Pushing and popping leave the queue whole.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

impl EventSender {
    /// Queues an event; a status replaces the one that was not taken yet.
    pub fn send(&self, event: EngineEvent) {
        let mut queue = lock(&self.queue);
        if matches!(event, EngineEvent::Status(_)) {
            queue.retain(|queued| !matches!(queued, EngineEvent::Status(_)));
        }
        queue.push_back(event);
        drop(queue);
        // Full: the consumer has not taken the last wake-up yet, and will find this event then.
        let _ = self.wake.try_send(());
    }
}

impl EventReceiver {
    /// The next event; `None` when the engine is gone and all was taken.
    pub async fn recv(&self) -> Option<EngineEvent> {
        loop {
            if let Some(event) = lock(&self.queue).pop_front() {
                return Some(event);
            }
            if self.woken.recv().await.is_err() {
                return lock(&self.queue).pop_front();
            }
        }
    }

    /// The same, blocking the thread.
    pub fn recv_blocking(&self) -> Option<EngineEvent> {
        loop {
            if let Some(event) = lock(&self.queue).pop_front() {
                return Some(event);
            }
            if self.woken.recv_blocking().is_err() {
                return lock(&self.queue).pop_front();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::Notice;
    use super::super::verdict::{Reason, Verdict};
    use super::*;

    #[test]
    fn statuses_are_coalesced_and_nothing_else_is_lost() {
        let (sender, receiver) = channel();
        let status = |reconnects| EngineEvent::Status(Box::new(super::super::tests::status(reconnects)));
        for number in 0..100 {
            sender.send(status(number));
            sender.send(EngineEvent::Notice(Notice::Connecting { attempt: number as u32 }));
        }
        sender.send(EngineEvent::Verdict(Verdict::Unsynced(Reason::SyncOff)));
        sender.send(EngineEvent::End(Ok(())));
        drop(sender);
        let events: Vec<EngineEvent> = std::iter::from_fn(|| receiver.recv_blocking()).collect();
        assert_eq!(events.iter().filter(|event| matches!(event, EngineEvent::Notice(_))).count(), 100);
        assert_eq!(events.iter().filter(|event| matches!(event, EngineEvent::Status(_))).count(), 1);
        assert!(events.contains(&status(99)));
        assert_eq!(events.last(), Some(&EngineEvent::End(Ok(()))));
    }
}
