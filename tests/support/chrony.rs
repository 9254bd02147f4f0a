//! A real time server: chronyd on a port of its own, serving this host's clock without touching it.

use super::ports::free_address;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Stopped when dropped.
pub struct Chrony {
    child: Child,
    address: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Chrony {
    /// Starts chronyd and waits until it answers; `None`, with the reason printed, where there is none to start.
    pub fn start() -> Option<Self> {
        let program = ["/usr/sbin/chronyd", "/usr/bin/chronyd", "/usr/local/sbin/chronyd"]
            .into_iter()
            .find(|path| std::path::Path::new(path).exists());
        let Some(program) = program else {
            eprintln!("skipped: chronyd is not installed");
            return None;
        };
        let folder = tempfile::tempdir().expect("a temporary folder");
        let address = free_address(Ipv4Addr::LOCALHOST.into());
        let config = folder.path().join("chrony.conf");
        let text = format!(
            "port {}\nbindaddress 127.0.0.1\nallow 127.0.0.0/8\ncmdport 0\nlocal stratum 1\npidfile {}\n",
            address.port(),
            folder.path().join("chronyd.pid").display()
        );
        std::fs::File::create(&config).and_then(|mut file| file.write_all(text.as_bytes())).expect("its configuration");
        // -x: the host's clock is not touched. -U: any user may start it so.
        let child = Command::new(program)
            .args(["-x", "-U", "-d", "-u", &user(), "-f"])
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let child = match child {
            Ok(child) => child,
            Err(error) => {
                eprintln!("skipped: chronyd does not start: {error}");
                return None;
            }
        };
        let chrony = Self { child, address, _folder: folder };
        if !chrony.answers(Duration::from_secs(20)) {
            eprintln!("skipped: chronyd does not answer");
            return None;
        }
        Some(chrony)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn answers(&self, within: Duration) -> bool {
        let Ok(socket) = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) else {
            return false;
        };
        let deadline = Instant::now() + within;
        let mut request = [0; 48];
        request[0] = 0x23; // version 4, client
        while Instant::now() < deadline {
            let _ = socket.set_read_timeout(Some(Duration::from_millis(200)));
            let _ = socket.send_to(&request, self.address);
            if socket.recv(&mut [0; 128]).is_ok_and(|length| length >= 48) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        false
    }
}

/// The name of the user who runs the tests.
fn user() -> String {
    let name = Command::new("id").arg("-un").output().map(|output| output.stdout).unwrap_or_default();
    String::from_utf8_lossy(&name).trim().to_owned()
}

impl Drop for Chrony {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
