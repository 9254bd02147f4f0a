//! The room without a window: the status on stdout, logs on stderr.

pub mod report;
mod text;

use crate::engine::{Command, Engine, EngineConfig, EngineEvent, Notice, exit};
use report::Line;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{IsTerminal, Write};
use std::time::{Duration, Instant};

/// How to report.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// One JSON object a line.
    pub json: bool,
    /// End after so long.
    pub duration: Option<Duration>,
}

/// Plays until asked to end, and returns the exit code.
pub fn run(config: EngineConfig, options: Options) -> u8 {
    let started = Instant::now();
    let mut out = Reporter::new(options.json, started);
    out.json(|| Line::start(&config));
    let engine = match Engine::start(config) {
        Ok(engine) => engine,
        Err(error) => {
            out.end(&Err(error.clone()), error.exit_code());
            return error.exit_code();
        }
    };
    quit_on_signal(&engine);
    if let Some(duration) = options.duration {
        let commander = engine.commander();
        spawn("duration", move || {
            std::thread::sleep(duration.saturating_sub(started.elapsed()));
            commander.send(Command::Quit);
        });
    }
    while let Some(event) = engine.events().recv_blocking() {
        match event {
            EngineEvent::Status(status) => {
                out.json(|| Line::status(&status));
                out.update(|| text::status_line(&status));
            }
            EngineEvent::Verdict(verdict) => {
                out.json(|| Line::verdict(&verdict, started.elapsed()));
                out.line(|| text::verdict_line(&verdict));
            }
            EngineEvent::Notice(notice) => {
                out.json(|| Line::notice(&notice, started.elapsed()));
                if !matches!(notice, Notice::ClockSynced) {
                    out.line(|| notice.text());
                }
            }
            EngineEvent::End(result) => {
                let code = result.as_ref().map_or_else(|error| error.exit_code(), |()| exit::OK);
                out.end(&result, code);
                return code;
            }
        }
        if out.reader_is_gone {
            engine.send(Command::Quit);
        }
    }
    exit::PLAYING
}

fn spawn(name: &str, task: impl FnOnce() + Send + 'static) {
    if let Err(error) = std::thread::Builder::new().name(name.into()).spawn(task) {
        tracing::error!(%error, name, "cannot start a thread");
    }
}

/// SIGINT and SIGTERM end the room in order; a second one at once.
fn quit_on_signal(engine: &Engine) {
    let commander = engine.commander();
    match signal_hook::iterator::Signals::new([SIGINT, SIGTERM]) {
        Ok(mut signals) => spawn("signals", move || {
            for (count, _) in signals.forever().enumerate() {
                if count > 0 {
                    std::process::exit(i32::from(exit::OK));
                }
                commander.send(Command::Quit);
            }
        }),
        Err(error) => tracing::error!(%error, "cannot handle signals"),
    }
}

/// Writes to stdout; never panics when the reader is gone.
struct Reporter {
    json: bool,
    terminal: bool,
    started: Instant,
    reader_is_gone: bool,
    /// A status line stands on the terminal's last line.
    dirty: bool,
}

impl Reporter {
    fn new(json: bool, started: Instant) -> Self {
        let terminal = !json && std::io::stdout().is_terminal();
        Self { json, terminal, started, reader_is_gone: false, dirty: false }
    }

    fn write(&mut self, text: &str) {
        let mut stdout = std::io::stdout().lock();
        if stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).is_err() {
            self.reader_is_gone = true;
        }
    }

    fn json(&mut self, line: impl FnOnce() -> Line) {
        if !self.json {
            return;
        }
        match serde_json::to_string(&line()) {
            Ok(text) => self.write(&(text + "\n")),
            Err(error) => tracing::error!(%error, "cannot write the status"),
        }
    }

    /// A line that stays.
    fn line(&mut self, text: impl FnOnce() -> String) {
        if self.json {
            return;
        }
        let clear = if std::mem::take(&mut self.dirty) { "\r\x1b[K" } else { "" };
        self.write(&format!("{clear}{}\n", text()));
    }

    /// The line that updates; on a terminal only.
    fn update(&mut self, text: impl FnOnce() -> String) {
        if !self.terminal {
            return;
        }
        let width = terminal_width();
        let text: String = text().chars().take(width.saturating_sub(1)).collect();
        self.dirty = true;
        self.write(&format!("\r\x1b[K{text}"));
    }

    fn end(&mut self, result: &Result<(), crate::engine::EngineError>, code: u8) {
        if std::mem::take(&mut self.dirty) {
            self.write("\n");
        }
        let uptime = self.started.elapsed();
        self.json(|| Line::end(result, code, uptime));
        if let Err(error) = result {
            eprintln!("unisono: {error}");
        }
    }
}

/// Columns of the terminal on stdout; 80 when it does not say.
fn terminal_width() -> usize {
    // SAFETY: winsize is plain data, and the ioctl only writes into it.
    let columns = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        if libc::ioctl(libc::STDOUT_FILENO, libc::TIOCGWINSZ, &mut size) == 0 { size.ws_col } else { 0 }
    };
    if columns == 0 { 80 } else { usize::from(columns) }
}
