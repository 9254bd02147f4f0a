//! RTSP/1.0 messages (RFC 2326) and interleaved frames (section 10.12), read and written by hand.

use std::io::{self, BufRead, Read};

/// A longer body or more header lines than this is no client of ours.
const BODY_MAX: usize = 1 << 20;
const HEADERS_MAX: usize = 256;

/// The value of a header, whatever its case.
pub fn header<'a>(headers: &'a [(String, String)], name: &str) -> Option<&'a str> {
    headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
}

/// A request, or on the client's side a response: the start line tells.
#[derive(Debug, Clone, Default)]
pub struct Message {
    pub start: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Message {
    pub fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }

    /// The method of a request.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// The URI of a request.
    pub fn uri(&self) -> &str {
        self.start.split(' ').nth(1).unwrap_or_default()
    }

    /// The status code of a response.
    pub fn status(&self) -> u16 {
        self.uri().parse().unwrap_or_default()
    }

    /// The message on the wire, with the Content-Length that its body needs.
    pub fn bytes(&self) -> Vec<u8> {
        let mut text = format!("{}\r\n", self.start);
        for (key, value) in &self.headers {
            text += &format!("{key}: {value}\r\n");
        }
        if !self.body.is_empty() {
            text += &format!("Content-Length: {}\r\n", self.body.len());
        }
        let mut out = (text + "\r\n").into_bytes();
        out.extend(&self.body);
        out
    }
}

/// What comes over the connection.
#[derive(Debug, Clone)]
pub enum Incoming {
    Message(Message),
    Interleaved { channel: u8, data: Vec<u8> },
}

/// Reads the next message or frame; `None` at the end of the connection.
///
/// # Errors
/// Those of the connection, and `InvalidData` for what is no RTSP.
pub fn read(reader: &mut impl BufRead) -> io::Result<Option<Incoming>> {
    let mut first = [0];
    loop {
        if reader.read(&mut first)? == 0 {
            return Ok(None);
        }
        if first[0] == b'$' {
            let mut head = [0; 3];
            reader.read_exact(&mut head)?;
            let mut data = vec![0; u16::from_be_bytes([head[1], head[2]]).into()];
            reader.read_exact(&mut data)?;
            return Ok(Some(Incoming::Interleaved { channel: head[0], data }));
        }
        // Empty lines between messages are allowed.
        if !matches!(first[0], b'\r' | b'\n') {
            break;
        }
    }
    let mut message = Message { start: char::from(first[0]).to_string() + &line(reader)?, ..Message::default() };
    loop {
        let line = line(reader)?;
        if line.is_empty() {
            break;
        }
        let (key, value) = line.split_once(':').ok_or_else(|| invalid("a header without a colon"))?;
        message.headers.push((key.trim().to_owned(), value.trim().to_owned()));
        if message.headers.len() > HEADERS_MAX {
            return Err(invalid("too many headers"));
        }
    }
    let length = message.header("Content-Length").and_then(|value| value.parse().ok()).unwrap_or(0);
    if length > BODY_MAX {
        return Err(invalid("too long a body"));
    }
    message.body = vec![0; length];
    reader.read_exact(&mut message.body)?;
    Ok(Some(Incoming::Message(message)))
}

fn line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut bytes = Vec::new();
    reader.take(BODY_MAX as u64).read_until(b'\n', &mut bytes)?;
    if bytes.pop() != Some(b'\n') {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(String::from_utf8_lossy(&bytes).trim_end_matches('\r').to_owned())
}

fn invalid(text: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// A frame for the connection.
pub fn interleaved(channel: u8, data: &[u8]) -> Vec<u8> {
    let mut out = vec![b'$', channel];
    out.extend((data.len() as u16).to_be_bytes());
    out.extend(data);
    out
}
