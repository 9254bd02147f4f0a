//! A UDP relay that delays each datagram by a random time of its own, so that the two ways are never alike.

use super::random::Random;
use std::collections::{BTreeMap, HashMap};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest that the relay sleeps: what is due is sent that late at most.
const TICK: Duration = Duration::from_micros(100);

/// Relays between its clients and one server until it is dropped.
pub struct Relay {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// A datagram on its way, and the socket that sends it.
type Travelling = (Arc<UdpSocket>, SocketAddr, Vec<u8>);

impl Relay {
    /// Delays every datagram by 0 to `longest`, evenly distributed, in each direction.
    pub fn start(server: SocketAddr, longest: Duration, seed: u64) -> std::io::Result<Self> {
        let socket = bind()?;
        let address = socket.local_addr()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || run(&socket, server, longest, seed, &stopped));
        Ok(Self { address, stop, thread: Some(thread) })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bind() -> std::io::Result<Arc<UdpSocket>> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
    socket.set_nonblocking(true)?;
    Ok(Arc::new(socket))
}

fn run(socket: &Arc<UdpSocket>, server: SocketAddr, longest: Duration, seed: u64, stop: &AtomicBool) {
    let mut random = Random::new(seed);
    let mut clients: HashMap<SocketAddr, Arc<UdpSocket>> = HashMap::new();
    let mut travelling: BTreeMap<(Instant, u64), Travelling> = BTreeMap::new();
    let (mut number, mut buffer) = (0, [0; 2048]);
    let mut send = |travelling: &mut BTreeMap<_, _>, datagram: Travelling| {
        number += 1;
        travelling.insert((Instant::now() + longest.mul_f64(random.unit()), number), datagram);
    };
    while !stop.load(Ordering::Relaxed) {
        while let Ok((length, client)) = socket.recv_from(&mut buffer) {
            let upstream = match clients.get(&client) {
                Some(known) => known.clone(),
                None => match bind() {
                    Ok(new) => clients.entry(client).or_insert(new).clone(),
                    Err(_) => continue,
                },
            };
            send(&mut travelling, (upstream, server, buffer[..length].to_vec()));
        }
        for (client, upstream) in &clients {
            while let Ok((length, _)) = upstream.recv_from(&mut buffer) {
                send(&mut travelling, (socket.clone(), *client, buffer[..length].to_vec()));
            }
        }
        while let Some(first) = travelling.first_entry()
            && first.key().0 <= Instant::now()
        {
            let (from, to, bytes) = first.remove();
            let _ = from.send_to(&bytes, to);
        }
        std::thread::sleep(TICK);
    }
}
