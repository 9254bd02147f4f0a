//! What the camera received and did, for assertions.

use super::super::timeline::Nanos;
use super::rtsp::Message;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// One line of the log.
#[derive(Debug, Clone)]
pub struct Record {
    /// Time of the camera's [`super::super::timeline::Timeline`].
    pub at: Nanos,
    /// Connections are numbered from 0 in the order in which they came.
    pub connection: u32,
    pub what: What,
}

/// What happened.
#[derive(Debug, Clone)]
pub enum What {
    Connected,
    Request(Message),
    /// The status of an answer; none when there was no answer.
    Answered {
        method: String,
        status: u16,
    },
    /// A session plays. Sessions are numbered from 0.
    Playing {
        session: u32,
        streams: Vec<Truth>,
    },
    /// A `$` frame came.
    Interleaved {
        channel: u8,
        data: Vec<u8>,
    },
    /// A datagram came, to the RTP or the RTCP port of a stream.
    Datagram {
        stream: usize,
        rtcp: bool,
        data: Vec<u8>,
    },
    /// No request carried the Session header for the whole time-out.
    Expired,
    Closed,
}

/// What an honest report would say of the first packet of a stream.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Truth {
    /// The place of the stream in the script.
    pub stream: usize,
    pub ssrc: u32,
    pub sequence: u16,
    pub timestamp: u32,
    /// When the first frame was captured: true UTC, ns since 1970.
    pub captured: Nanos,
    /// From one frame to the next, ns, at the nominal rate.
    pub period: Nanos,
}

/// The log; cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Log(Arc<(Mutex<Vec<Record>>, Condvar)>);

impl Log {
    fn lock(&self) -> MutexGuard<'_, Vec<Record>> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn push(&self, record: Record) {
        self.lock().push(record);
        self.0.1.notify_all();
    }

    /// Everything so far.
    pub fn records(&self) -> Vec<Record> {
        self.lock().clone()
    }

    /// All requests with this method.
    pub fn requests(&self, method: &str) -> Vec<Message> {
        let of = |record: Record| match record.what {
            What::Request(request) if request.method() == method => Some(request),
            _ => None,
        };
        self.records().into_iter().filter_map(of).collect()
    }

    /// The sessions that have played so far: what their streams started with.
    pub fn sessions(&self) -> Vec<Vec<Truth>> {
        sessions(&self.lock())
    }

    /// As [`Log::sessions`], once there are so many; `None` after `timeout`.
    pub fn wait_for_sessions(&self, count: usize, timeout: Duration) -> Option<Vec<Vec<Truth>>> {
        self.wait(timeout, |records| Some(sessions(records)).filter(|sessions| sessions.len() >= count))
    }

    /// Waits until `find` finds something, and returns it; `None` after `timeout`. `find` must not use the log itself.
    pub fn wait<T>(&self, timeout: Duration, find: impl Fn(&[Record]) -> Option<T>) -> Option<T> {
        let deadline = Instant::now() + timeout;
        let mut records = self.lock();
        loop {
            if let Some(found) = find(&records) {
                return Some(found);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            records = self.0.1.wait_timeout(records, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

fn sessions(records: &[Record]) -> Vec<Vec<Truth>> {
    let of = |record: &Record| match &record.what {
        What::Playing { streams, .. } => Some(streams.clone()),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}
