//! A real NTP server on loopback: chronyd, which serves the host's clock and sets nothing (`-x`).

use super::ports::free_address;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long it may take to answer on a busy machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// A port may be taken between looking and binding: so many are tried.
const TRIES: usize = 5;

/// A running chronyd, killed when it is dropped.
pub struct Chrony {
    child: Child,
    address: SocketAddr,
    _directory: TempDir,
}

impl Chrony {
    /// Starts a server on a free port of 127.0.0.1. `None`, after saying so, when chronyd is not installed; panics when
    /// it is and does not answer.
    pub fn start() -> Option<Self> {
        Self::start_with(Command::new("chronyd"))
    }

    /// As [`Chrony::start`], by a command to which chronyd's options are added: another program may bend the clock
    /// that is served, e.g. `faketime -f +1h chronyd`.
    pub fn start_with(mut command: Command) -> Option<Self> {
        let found = Command::new("chronyd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if found.is_err() {
            eprintln!("skipped: chronyd is not installed (apt install chrony)");
            return None;
        }
        for _ in 0..TRIES {
            if let Some(server) = Self::try_start(&mut command) {
                return Some(server);
            }
        }
        panic!("chronyd does not answer");
    }

    fn try_start(command: &mut Command) -> Option<Self> {
        let address = free_address(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let directory = tempfile::tempdir().expect("a directory");
        let config = directory.path().join("chrony.conf");
        let mut text = String::new();
        // No control port or socket, no drift file: it leaves nothing behind but its pid file.
        let pid_file = directory.path().join("chronyd.pid");
        let _ = write!(
            text,
            "port {}\nbindaddress {}\nallow 127.0.0.1\nlocal stratum 1\ncmdport 0\nbindcmdaddress /\npidfile {}\nuser {}\n",
            address.port(),
            address.ip(),
            pid_file.display(),
            user()
        );
        std::fs::write(&config, text).expect("write the configuration");
        // -d: in the foreground; -U: also without root.
        let mut command = {
            let mut again = Command::new(command.get_program());
            again.args(command.get_args());
            again
        };
        command.args(["-x", "-d", "-U", "-f"]).arg(&config);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok()?;
        let mut server = Self { child, address, _directory: directory };
        let deadline = Instant::now() + START_TIMEOUT;
        while Instant::now() < deadline && matches!(server.child.try_wait(), Ok(None)) {
            if server.answers() {
                return Some(server);
            }
        }
        None
    }

    /// Whether a client's request gets an answer of a synchronized server.
    fn answers(&self) -> bool {
        let mut packet = [0; 48];
        packet[0] = 4 << 3 | 3; // NTP version 4, client
        let exchange = || -> std::io::Result<bool> {
            let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            socket.send_to(&packet, self.address)?;
            let mut answer = [0; 48];
            let length = socket.recv(&mut answer)?;
            Ok(length == 48 && answer[0] >> 6 != 3 && answer[1] == 1)
        };
        exchange().unwrap_or_else(|_| {
            std::thread::sleep(Duration::from_millis(20));
            false
        })
    }

    /// Where it answers.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What to write after `--clock`.
    pub fn clock(&self) -> String {
        format!("ntp://{}", self.address)
    }
}

impl Drop for Chrony {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The user that runs the test: chronyd would change to its own.
fn user() -> String {
    let id = Command::new("id").arg("-un").output().expect("id");
    String::from_utf8_lossy(&id.stdout).trim().to_owned()
}
