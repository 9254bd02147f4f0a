//! A log of every frame that was presented, for measurements: one line of CSV a frame.

use super::error::EngineError;
use super::stats::{FrameLog, PresentationSample};
use std::io::Write;
use std::path::Path;
use std::sync::mpsc::{SyncSender, sync_channel};

/// Lines under way to the writer; at 200 frames a second it may sleep for 20 s.
const QUEUE: usize = 4096;
/// The first line of the file.
pub const HEADER: &str = "stream,sender_time_ns,presented_ns,monotonic_ns";

struct Line {
    stream: &'static str,
    sample: PresentationSample,
    monotonic_ns: i64,
}

/// Writes on a thread of its own, so that no streaming thread waits for a disk.
#[derive(Clone)]
pub struct FrameLogWriter(SyncSender<Line>);

impl FrameLogWriter {
    /// Creates (or empties) the file.
    ///
    /// # Errors
    /// When the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, EngineError> {
        let failed = |error: std::io::Error| {
            EngineError::Usage(format!("--frame-log {} cannot be written: {error}", path.display()))
        };
        let mut file = std::io::BufWriter::new(std::fs::File::create(path).map_err(failed)?);
        writeln!(file, "{HEADER}").map_err(failed)?;
        let (sender, lines) = sync_channel::<Line>(QUEUE);
        std::thread::Builder::new()
            .name("frame-log".into())
            .spawn(move || {
                let mut unflushed = 0;
                while let Ok(line) = lines.recv() {
                    let sender_time = line.sample.sender_time.map(|time| time.to_string()).unwrap_or_default();
                    let written =
                        writeln!(file, "{},{sender_time},{},{}", line.stream, line.sample.presented, line.monotonic_ns);
                    unflushed += 1;
                    if unflushed >= 25 && written.is_ok() {
                        let _ = file.flush();
                        unflushed = 0;
                    }
                }
                let _ = file.flush();
            })
            .map_err(failed)?;
        Ok(Self(sender))
    }

    /// The hook for the statistics of one stream.
    pub fn hook(&self, stream: &'static str) -> FrameLog {
        let lines = self.0.clone();
        Box::new(move |sample| {
            // A full queue loses a line rather than making a frame late.
            let _ = lines.try_send(Line { stream, sample: *sample, monotonic_ns: crate::clock::monotonic_ns() });
        })
    }
}
