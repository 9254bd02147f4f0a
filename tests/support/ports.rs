//! Free ports for servers that go away and come back.

use super::random::Random;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

/// Below those that the system hands out, so that nobody takes a port while its server is away.
const PORTS: std::ops::Range<u16> = 12_000..32_000;
const TRIES: usize = 1_000;

/// An address on which nobody listens, neither with TCP nor with UDP. Panics when there is none.
pub fn free_address(ip: IpAddr) -> SocketAddr {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let mut random = Random::new(now ^ u64::from(std::process::id()) << 32);
    let candidate = |_| {
        let address = SocketAddr::new(ip, PORTS.start + (random.bits() % PORTS.len() as u64) as u16);
        (TcpListener::bind(address).is_ok() && UdpSocket::bind(address).is_ok()).then_some(address)
    };
    (0..TRIES).find_map(candidate).expect("a free port on loopback")
}
