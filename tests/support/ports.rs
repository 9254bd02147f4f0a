//! Free ports for servers that go away and come back.

use super::random::Random;
use std::collections::HashSet;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{LazyLock, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Below those that the system hands out, so that nobody takes a port while its server is away.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const TRIES: usize = 1_000;

/// A test of another process may look whether a port is free just when it is to be bound: it lets go at once.
const BIND_PATIENCE: Duration = Duration::from_secs(2);

/// The ports that this process has given out: tests run as its threads too, and a port may be free between two uses.
static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);

/// An address on which nobody listens, neither with TCP nor with UDP, and which this process gives out once. Panics when
/// there is none.
pub fn free_address(ip: IpAddr) -> SocketAddr {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let mut random = Random::new(now ^ (u64::from(std::process::id()) << 32) ^ given.len() as u64);
    let candidate = |_| {
        let address = SocketAddr::new(ip, PORTS.start + (random.bits() % PORTS.len() as u64) as u16);
        (TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()).then_some(address)
    };
    let address = (0..TRIES).filter_map(candidate).find(|address| given.insert(address.port()));
    address.expect("a free port on loopback")
}

/// Binds an address that [`free_address`] gave, waiting while another test only looks at it.
///
/// # Errors
/// When somebody has taken it for good.
pub fn bind<T>(bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
    let deadline = Instant::now() + BIND_PATIENCE;
    loop {
        match bind() {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            result => return result,
        }
    }
}
