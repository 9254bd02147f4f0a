//! One small value, written by one thread and read by others without locks: a sequence lock.
//!
//! The audio callback reads the clock's line and the sample map this way and writes its figures, so neither side ever
//! waits for the other: a writer is never held up, a reader tries a bounded number of times and then keeps what it read
//! before.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Machine words of the largest value that is published.
pub const WORDS: usize = 16;
/// So often a reader tries before it gives up: a write takes nanoseconds, so a second failure means that the writer was
/// preempted in the middle of one, and waiting would not help.
const TRIES: usize = 4;

/// A value that can be taken apart into words and put together again.
pub trait Words: Copy {
    /// The value as words; unused ones are zero.
    fn pack(&self) -> [u64; WORDS];
    /// The value that [`pack`](Self::pack) took apart.
    fn unpack(words: &[u64; WORDS]) -> Self;
}

struct Cell {
    /// Odd while a write is under way.
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// The only writer of a published value.
pub struct Publisher<T> {
    cell: Arc<Cell>,
    _value: PhantomData<fn(T)>,
}

/// A reader of a published value. Cheap to clone; each keeps the last value that it read.
#[derive(Clone)]
pub struct Subscriber<T> {
    cell: Arc<Cell>,
    last: T,
}

/// A published value that starts as `initial`.
pub fn published<T: Words>(initial: T) -> (Publisher<T>, Subscriber<T>) {
    let cell = Arc::new(Cell { sequence: AtomicU64::new(0), words: initial.pack().map(AtomicU64::new) });
    (Publisher { cell: cell.clone(), _value: PhantomData }, Subscriber { cell, last: initial })
}

impl<T: Words> Publisher<T> {
    /// Replaces the value. Never waits.
    pub fn publish(&mut self, value: T) {
        let sequence = self.cell.sequence.load(Ordering::Relaxed);
        self.cell.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in self.cell.words.iter().zip(value.pack()) {
            word.store(value, Ordering::Relaxed);
        }
        self.cell.sequence.store(sequence.wrapping_add(2), Ordering::Release);
    }
}

impl<T: Words> Subscriber<T> {
    /// The newest value, or the one read before if a write is under way. Never waits.
    pub fn latest(&mut self) -> T {
        if let Some(value) = self.read() {
            self.last = value;
        }
        self.last
    }

    /// The newest value; `None` if writes were under way at each try.
    pub fn read(&self) -> Option<T> {
        for _ in 0..TRIES {
            let before = self.cell.sequence.load(Ordering::Acquire);
            if before & 1 == 1 {
                std::hint::spin_loop();
                continue;
            }
            let mut words = [0; WORDS];
            for (word, from) in words.iter_mut().zip(&self.cell.words) {
                *word = from.load(Ordering::Relaxed);
            }
            fence(Ordering::Acquire);
            if self.cell.sequence.load(Ordering::Relaxed) == before {
                return Some(T::unpack(&words));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[derive(Clone, Copy, Debug, PartialEq)]
    struct Same(u64);

    impl Words for Same {
        fn pack(&self) -> [u64; WORDS] {
            [self.0; WORDS]
        }
        fn unpack(words: &[u64; WORDS]) -> Self {
            assert!(words.iter().all(|word| *word == words[0]), "torn: {words:?}");
            Self(words[0])
        }
    }

    #[test]
    fn reads_are_never_torn_and_never_go_back() {
        let (mut publisher, subscriber) = published(Same(0));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                let (mut subscriber, stop) = (subscriber.clone(), &stop);
                scope.spawn(move || {
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let Same(now) = subscriber.latest();
                        assert!(now >= last);
                        last = now;
                    }
                });
            }
            for value in 1..=200_000 {
                publisher.publish(Same(value));
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert_eq!(subscriber.read(), Some(Same(200_000)));
    }
}
