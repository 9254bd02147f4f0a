//! A tiny RTSP client that shows the bytes: for testing the scripted camera, and any sender, on the wire.
//!
//! It reads RTP and RTCP by itself and shares no code with what it tests, but for the framing of RTSP messages.

use super::camera::rtsp::{Incoming, Message, read};
use std::collections::VecDeque;
use std::io::{self, BufReader, Write};
use std::net::{TcpStream, UdpSocket};
use std::time::{Duration, Instant};

/// How long an answer may take on a busy machine.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// A client with one control connection.
pub struct Client {
    reader: BufReader<TcpStream>,
    url: String,
    sequence: u32,
    /// The Session header for the requests after SETUP.
    pub session: Option<String>,
    /// Sent with every request.
    pub authorization: Option<String>,
    /// RTP and RTCP that came while an answer was awaited.
    waiting: VecDeque<Arrival>,
    udp: Vec<(UdpSocket, UdpSocket)>,
}

/// A packet with its channel: even for RTP, odd for RTCP. Stream N has the channels 2 N and 2 N + 1.
#[derive(Debug, Clone)]
pub struct Arrival {
    pub channel: u8,
    pub bytes: Vec<u8>,
    pub at: Instant,
}

impl Client {
    /// # Errors
    /// Those of the connection.
    pub fn connect(url: &str) -> io::Result<Self> {
        let authority = url.trim_start_matches("rtsp://").split('/').next().unwrap_or_default();
        let stream = TcpStream::connect(authority)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        Ok(Self {
            reader: BufReader::new(stream),
            url: url.to_owned(),
            sequence: 0,
            session: None,
            authorization: None,
            waiting: VecDeque::new(),
            udp: Vec::new(),
        })
    }

    /// Sends a request without waiting for an answer.
    ///
    /// # Errors
    /// Those of the connection.
    pub fn send(&mut self, method: &str, url: &str, headers: &[(&str, &str)]) -> io::Result<()> {
        self.sequence += 1;
        let mut request = Message { start: format!("{method} {url} RTSP/1.0"), ..Message::default() };
        request.headers.push(("CSeq".into(), self.sequence.to_string()));
        let fixed = [("Session", &self.session), ("Authorization", &self.authorization)];
        request.headers.extend(fixed.iter().filter_map(|(key, value)| Some(((*key).to_owned(), (*value).clone()?))));
        request.headers.extend(headers.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        self.reader.get_mut().write_all(&request.bytes())
    }

    /// Sends a request and waits for the answer.
    ///
    /// # Errors
    /// Those of the connection; `UnexpectedEof` when it is closed instead, `WouldBlock` when no answer comes.
    pub fn request(&mut self, method: &str, url: &str, headers: &[(&str, &str)]) -> io::Result<Message> {
        self.send(method, url, headers)?;
        loop {
            match read(&mut self.reader)? {
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
                Some(Incoming::Message(message)) => return Ok(message),
                Some(Incoming::Interleaved { channel, data }) => {
                    self.waiting.push_back(Arrival { channel, bytes: data, at: Instant::now() });
                }
            }
        }
    }

    /// The SDP.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn describe(&mut self) -> io::Result<String> {
        let answer = self.request("DESCRIBE", &self.url.clone(), &[("Accept", "application/sdp")])?;
        Ok(String::from_utf8_lossy(&answer.body).into_owned())
    }

    /// Sets up the next stream, in the connection or over UDP, and keeps the session.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn setup(&mut self, control: &str, udp: bool) -> io::Result<Message> {
        let url = format!("{}/{control}", self.url.split('?').next().unwrap_or_default());
        let transport = if udp {
            let (rtp, rtcp) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
            let ports = (rtp.local_addr()?.port(), rtcp.local_addr()?.port());
            self.udp.push((rtp, rtcp));
            format!("RTP/AVP;unicast;client_port={}-{}", ports.0, ports.1)
        } else {
            "RTP/AVP/TCP;unicast".to_owned()
        };
        let answer = self.request("SETUP", &url, &[("Transport", &transport)])?;
        let session = answer.header("Session").and_then(|value| value.split(';').next()).map(str::to_owned);
        self.session = self.session.take().or(session);
        Ok(answer)
    }

    /// # Errors
    /// As [`Client::request`].
    pub fn play(&mut self) -> io::Result<Message> {
        self.request("PLAY", &self.url.clone(), &[])
    }

    /// Connects, sets up all streams of the SDP, and plays.
    ///
    /// # Errors
    /// As [`Client::request`].
    pub fn playing(url: &str, udp: bool) -> io::Result<Self> {
        let mut client = Self::connect(url)?;
        let sdp = client.describe()?;
        let media = sdp.split("\nm=").skip(1);
        let controls = media.filter_map(|media| media.lines().find_map(|line| line.trim().strip_prefix("a=control:")));
        for control in controls {
            client.setup(control, udp)?;
        }
        client.play()?;
        Ok(client)
    }

    /// What arrives within `duration`; less when the connection is closed.
    pub fn collect(&mut self, duration: Duration) -> Vec<Arrival> {
        self.collect_until(duration, |_| false)
    }

    /// What arrives until `enough` says so, or `timeout` has passed, or the connection is closed.
    pub fn collect_until(&mut self, timeout: Duration, enough: impl Fn(&[Arrival]) -> bool) -> Vec<Arrival> {
        let deadline = Instant::now() + timeout;
        let mut arrivals: Vec<Arrival> = self.waiting.drain(..).collect();
        while !enough(&arrivals) {
            let Some(left) = deadline.checked_duration_since(Instant::now()) else { break };
            if self.udp.is_empty() {
                match self.next_interleaved(left) {
                    Ok(Some(arrival)) => arrivals.push(arrival),
                    Ok(None) => break,
                    Err(_) => {}
                }
            } else {
                arrivals.extend(self.next_datagrams());
            }
        }
        arrivals
    }

    /// Waits for data before it reads: a frame, once begun, is read whole.
    fn next_interleaved(&mut self, left: Duration) -> io::Result<Option<Arrival>> {
        if self.reader.buffer().is_empty() {
            self.reader.get_ref().set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            let peeked = self.reader.get_ref().peek(&mut [0]);
            self.reader.get_ref().set_read_timeout(Some(ANSWER_TIMEOUT))?;
            peeked?;
        }
        match read(&mut self.reader) {
            Ok(Some(Incoming::Interleaved { channel, data })) => {
                Ok(Some(Arrival { channel, bytes: data, at: Instant::now() }))
            }
            Ok(Some(Incoming::Message(_))) => Err(io::ErrorKind::WouldBlock.into()),
            Ok(None) | Err(_) => Ok(None),
        }
    }

    fn next_datagrams(&self) -> Vec<Arrival> {
        let mut buffer = [0; 2048];
        let mut arrivals = Vec::new();
        for (stream, (rtp, rtcp)) in self.udp.iter().enumerate() {
            for (channel, socket) in [(2 * stream as u8, rtp), (2 * stream as u8 + 1, rtcp)] {
                // Only a look: without packets the loop would spin otherwise.
                let _ = socket.set_read_timeout(Some(Duration::from_millis(2)));
                if let Ok(length) = socket.recv(&mut buffer) {
                    arrivals.push(Arrival { channel, bytes: buffer[..length].to_vec(), at: Instant::now() });
                }
            }
        }
        arrivals
    }

    /// Whether the other side has closed the connection within `timeout`.
    pub fn closed_within(&mut self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        while let Some(left) = deadline.checked_duration_since(Instant::now()) {
            if let Ok(None) = self.next_interleaved(left) {
                return true;
            }
        }
        false
    }
}

/// The fields of an RTP packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RtpPacket {
    pub payload_type: u8,
    pub marker: bool,
    pub sequence: u16,
    pub timestamp: u32,
    pub ssrc: u32,
    /// Profile word and data of the header extension.
    pub extension: Option<(u16, Vec<u8>)>,
    pub payload: Vec<u8>,
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Reads a packet without padding and contributing sources. Panics on anything else: it is a test that failed.
pub fn rtp(bytes: &[u8]) -> RtpPacket {
    assert_eq!(bytes[0] & 0xef, 0x80, "version 2, no padding, no CSRC");
    let half = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let (extension, payload) = if bytes[0] & 0x10 == 0 {
        (None, 12)
    } else {
        let end = 16 + 4 * usize::from(half(14));
        (Some((half(12), bytes[16..end].to_vec())), end)
    };
    RtpPacket {
        payload_type: bytes[1] & 0x7f,
        marker: bytes[1] & 0x80 != 0,
        sequence: half(2),
        timestamp: word(bytes, 4),
        ssrc: word(bytes, 8),
        extension,
        payload: bytes[payload..].to_vec(),
    }
}

/// One packet of an RTCP compound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Rtcp {
    SenderReport { ssrc: u32, ntp: u64, rtp: u32, packets: u32, octets: u32 },
    Cname { ssrc: u32, name: String },
    Bye { ssrc: u32 },
    Other(u8),
}

/// Splits a compound and reads what it holds.
pub fn rtcp(bytes: &[u8]) -> Vec<Rtcp> {
    let mut packets = Vec::new();
    let mut rest = bytes;
    while rest.len() >= 8 {
        let length = 4 * (1 + usize::from(u16::from_be_bytes([rest[2], rest[3]])));
        let packet = &rest[..length];
        let ssrc = word(packet, 4);
        packets.push(match packet[1] {
            200 => Rtcp::SenderReport {
                ssrc,
                ntp: u64::from(word(packet, 8)) << 32 | u64::from(word(packet, 12)),
                rtp: word(packet, 16),
                packets: word(packet, 20),
                octets: word(packet, 24),
            },
            202 => {
                let name = packet[10..10 + usize::from(packet[9])].to_vec();
                Rtcp::Cname { ssrc, name: String::from_utf8(name).expect("CNAME is UTF-8") }
            }
            203 => Rtcp::Bye { ssrc },
            other => Rtcp::Other(other),
        });
        rest = &rest[length..];
    }
    packets
}

/// The RTP packets of one stream.
pub fn rtp_of(arrivals: &[Arrival], stream: u8) -> Vec<RtpPacket> {
    arrivals.iter().filter(|arrival| arrival.channel == 2 * stream).map(|arrival| rtp(&arrival.bytes)).collect()
}

/// The compounds of one stream.
pub fn rtcp_of(arrivals: &[Arrival], stream: u8) -> Vec<Vec<Rtcp>> {
    arrivals.iter().filter(|arrival| arrival.channel == 2 * stream + 1).map(|arrival| rtcp(&arrival.bytes)).collect()
}
