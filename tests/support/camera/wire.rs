//! The way of a packet from the camera to the receiver: transports, and what the network does to packets.

use super::super::random::Random;
use super::super::timeline::{MS, Nanos};
use super::rtsp::interleaved;
use super::script::Network;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// A packet that is to come late is held so long: longer than a frame of video lasts.
const REORDER_HOLD: Nanos = 60 * MS;
/// So long a write may wait for room in the socket.
const WRITE_SLICE: Duration = Duration::from_millis(10);
/// So long an answer may take to be written before the client is given up.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pairs of UDP ports are tried so often.
const PORT_TRIES: usize = 1_000;

/// A packet on its way.
#[derive(Debug)]
pub struct Parcel {
    pub lane: usize,
    pub rtcp: bool,
    pub bytes: Vec<u8>,
}

/// Packets that have left the camera and have not reached the socket.
pub struct Wire {
    network: Network,
    random: Random,
    /// By the time of release, then in the order of sending.
    parcels: BTreeMap<(Nanos, u64), Parcel>,
    count: u64,
}

impl Wire {
    pub fn new(network: &Network) -> Self {
        Self { random: Random::new(network.seed), network: network.clone(), parcels: BTreeMap::new(), count: 0 }
    }

    /// Sends a packet off; it may be lost.
    pub fn push(&mut self, now: Nanos, parcel: Parcel) {
        let Network { loss, reorder, jitter, burst, .. } = self.network;
        if !parcel.rtcp && loss > 0.0 && self.random.chance(loss) {
            return;
        }
        let mut release = now;
        if jitter > 0 {
            release += (self.random.unit() * jitter as f64) as Nanos;
        }
        if !parcel.rtcp && reorder > 0.0 && self.random.chance(reorder) {
            release += REORDER_HOLD;
        }
        if let Some(every) = burst {
            release = (release + every - 1) / every * every;
        }
        self.count += 1;
        self.parcels.insert((release, self.count), parcel);
    }

    /// When the next packet gets out.
    pub fn due(&self) -> Option<Nanos> {
        self.parcels.keys().next().map(|(release, _)| *release)
    }

    /// The next packet that is out by now.
    pub fn pop(&mut self, now: Nanos) -> Option<Parcel> {
        self.parcels.first_entry().filter(|entry| entry.key().0 <= now).map(|entry| entry.remove())
    }
}

/// How a stream reaches the receiver.
pub enum Transport {
    Interleaved { rtp: u8, rtcp: u8 },
    Udp(UdpPair),
}

/// The two sockets of a stream over UDP, and where they send to.
pub struct UdpPair {
    pub rtp: UdpSocket,
    pub rtcp: UdpSocket,
    pub client: IpAddr,
    pub client_ports: (u16, u16),
    /// A firewall lets nothing through.
    pub swallowed: bool,
}

impl UdpPair {
    /// Takes an even port and the one above (RFC 3550, section 11).
    ///
    /// # Errors
    /// When no pair is free.
    pub fn bind(local: IpAddr, client: IpAddr, client_ports: (u16, u16), swallowed: bool) -> io::Result<Self> {
        for _ in 0..PORT_TRIES {
            let rtp = UdpSocket::bind((local, 0))?;
            let port = rtp.local_addr()?.port();
            let Some(next) = port.checked_add(1).filter(|_| port % 2 == 0) else { continue };
            if let Ok(rtcp) = UdpSocket::bind((local, next)) {
                rtp.set_nonblocking(true)?;
                rtcp.set_nonblocking(true)?;
                return Ok(Self { rtp, rtcp, client, client_ports, swallowed });
            }
        }
        Err(io::ErrorKind::AddrInUse.into())
    }

    pub fn server_ports(&self) -> (u16, u16) {
        let port = |socket: &UdpSocket| socket.local_addr().map_or(0, |address| address.port());
        (port(&self.rtp), port(&self.rtcp))
    }

    pub fn send(&self, rtcp: bool, bytes: &[u8]) {
        let (socket, port) = if rtcp { (&self.rtcp, self.client_ports.1) } else { (&self.rtp, self.client_ports.0) };
        if !self.swallowed {
            // A receiver that has gone is noticed on the control connection.
            let _ = socket.send_to(bytes, SocketAddr::new(self.client, port));
        }
    }

    /// What has come: whether on the RTCP port, and the bytes.
    pub fn received(&self) -> Vec<(bool, Vec<u8>)> {
        let mut buffer = [0; 2048];
        let mut received = Vec::new();
        for (rtcp, socket) in [(false, &self.rtp), (true, &self.rtcp)] {
            while let Ok((length, _)) = socket.recv_from(&mut buffer) {
                received.push((rtcp, buffer[..length].to_vec()));
            }
        }
        received
    }
}

/// The writing half of a control connection. Answers and `$` frames never mix.
pub struct Outlet {
    stream: TcpStream,
    /// The rest of a frame that the socket had no room for.
    pending: Vec<u8>,
}

impl Outlet {
    /// # Errors
    /// Those of the socket.
    pub fn new(stream: TcpStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(WRITE_SLICE))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, pending: Vec::new() })
    }

    /// Writes as much of `pending` as fits; whether all of it did.
    fn flush(&mut self) -> io::Result<bool> {
        while !self.pending.is_empty() {
            match self.stream.write(&self.pending) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(written) => drop(self.pending.drain(..written)),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Ok(false);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// Writes an answer whole.
    ///
    /// # Errors
    /// Those of the socket, and `TimedOut` when the client does not read.
    pub fn answer(&mut self, bytes: &[u8]) -> io::Result<()> {
        let deadline = Instant::now() + ANSWER_TIMEOUT;
        self.pending.extend(bytes);
        while !self.flush()? {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Writes a frame, or drops it while the client does not read, as cameras do.
    ///
    /// # Errors
    /// Those of the socket.
    pub fn frame(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        if self.flush()? {
            self.pending = interleaved(channel, bytes);
            self.flush()?;
        }
        Ok(())
    }

    /// Ends the connection for both sides.
    pub fn close(&self) {
        let _ = self.stream.shutdown(Shutdown::Both);
    }
}
