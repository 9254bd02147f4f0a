//! A room as its users run it: the program, headless, with its status lines read as they come.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// The program under test.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono"));
    command.stdin(Stdio::null());
    command
}

/// A running `unisono --headless --json`, killed when it is dropped.
pub struct Room {
    child: Child,
    lines: Receiver<Value>,
    stderr: Option<ChildStderr>,
    /// Everything it has said so far.
    pub said: Vec<Value>,
}

impl Room {
    /// Starts a room that plays `url` with more options.
    pub fn start(url: &str, options: &[&str]) -> Self {
        let mut command = program();
        command.args(["--headless", "--json", url]).args(options);
        Self::spawn(command)
    }

    /// Starts a room by a command of its own, e.g. within another program that bends its clocks.
    pub fn spawn(mut command: Command) -> Self {
        let mut child =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start the room");
        let stdout = child.stdout.take().expect("a pipe");
        let stderr = child.stderr.take();
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
                if sender.send(value).is_err() {
                    break;
                }
            }
        });
        Self { child, lines, stderr, said: Vec::new() }
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line; `None` after `timeout` or at the end.
    pub fn next(&mut self, timeout: Duration) -> Option<Value> {
        match self.lines.recv_timeout(timeout) {
            Ok(value) => {
                self.said.push(value.clone());
                Some(value)
            }
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => None,
        }
    }

    /// Waits for a line that `is` likes, and returns it; panics with all that was said when there is none in time.
    pub fn wait_for(&mut self, what: &str, timeout: Duration, is: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + timeout;
        while let Some(line) = self.next(deadline.saturating_duration_since(Instant::now())) {
            if is(&line) {
                return line;
            }
        }
        self.fail(what)
    }

    /// Waits for a status with this verdict.
    pub fn wait_for_verdict(&mut self, verdict: &str, timeout: Duration) -> Value {
        self.wait_for(&format!("the verdict {verdict}"), timeout, |line| {
            line["type"] == "status" && line["verdict"] == verdict
        })
    }

    /// Waits for a status with this reason.
    pub fn wait_for_reason(&mut self, code: &str, timeout: Duration) -> Value {
        self.wait_for(&format!("the reason {code}"), timeout, |line| {
            line["type"] == "status" && line["reason"]["code"] == code
        })
    }

    /// Collects the statuses of so long.
    pub fn statuses(&mut self, time: Duration) -> Vec<Value> {
        let deadline = Instant::now() + time;
        let mut statuses = Vec::new();
        while let Some(line) = self.next(deadline.saturating_duration_since(Instant::now())) {
            if line["type"] == "status" {
                statuses.push(line);
            }
        }
        statuses
    }

    fn fail(&mut self, what: &str) -> ! {
        let _ = self.child.kill();
        let said: Vec<String> = self.said.iter().map(Value::to_string).collect();
        panic!("{what} did not come; the room said:\n{}\n{}", said.join("\n"), self.stderr_text());
    }

    fn stderr_text(&mut self) -> String {
        let mut text = String::new();
        if let Some(mut stderr) = self.stderr.take() {
            let _ = stderr.read_to_string(&mut text);
        }
        text
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Waits for the end; panics when it does not come in time. Returns the status and what was said on stderr.
    pub fn wait_for_end(mut self, timeout: Duration) -> (ExitStatus, String, Vec<Value>) {
        let deadline = Instant::now() + timeout;
        while self.next(deadline.saturating_duration_since(Instant::now())).is_some() {}
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("wait") {
                let text = self.stderr_text();
                return (status, text, std::mem::take(&mut self.said));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        self.fail("the end")
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
