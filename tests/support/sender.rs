//! The reference sender as its users run it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long a sender may take to listen on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The program under test.
pub fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_unisono-send"));
    command.stdin(Stdio::null());
    command
}

/// A running `unisono-send` on a free port of loopback, killed when it is dropped.
pub struct Sender {
    child: Child,
    stderr: Option<ChildStderr>,
    /// The printed address, `rtsp://127.0.0.1:PORT/test`: picture and sound.
    pub url: String,
    /// The printed command for a room.
    pub room_command: String,
}

impl Sender {
    /// Starts a sender with more options, and waits until it listens.
    pub fn start(options: &[&str]) -> Self {
        let mut command = program();
        command.args(["--port", "0"]).args(options);
        Self::spawn(command)
    }

    /// Starts a sender by a command of its own, e.g. within another program that bends its clocks. Its port must be
    /// free or 0. Panics with what it said when it does not listen.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("start the sender");
        let stdout = child.stdout.take().expect("a pipe");
        let mut stderr = child.stderr.take();
        let (lines_in, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if lines_in.send(line).is_err() {
                    break;
                }
            }
        });
        let deadline = Instant::now() + START_TIMEOUT;
        let line = || lines.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok();
        let (Some(url), Some(room_command)) = (line(), line()) else {
            let _ = child.kill();
            let mut text = String::new();
            let _ = stderr.as_mut().map(|stderr| stderr.read_to_string(&mut text));
            let _ = child.wait();
            panic!("the sender does not listen: {text}");
        };
        Self { child, stderr, url, room_command }
    }

    /// The address of another mount, e.g. `/audio-l16`.
    pub fn mount(&self, path: &str) -> String {
        self.url.replace("/test", path)
    }

    /// The process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        // SAFETY: the child has not been waited for, so the id is still its own.
        unsafe { libc::kill(self.child.id() as libc::pid_t, signal) };
    }

    /// Waits for the end; panics when it does not come in time. Returns the status and what was said on stderr.
    pub fn wait_for_end(mut self, timeout: Duration) -> (ExitStatus, String) {
        let deadline = Instant::now() + timeout;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait().expect("wait") {
                let mut text = String::new();
                let _ = self.stderr.take().map(|mut stderr| stderr.read_to_string(&mut text));
                return (status, text);
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the sender did not end within {timeout:?}");
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
