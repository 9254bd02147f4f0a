//! The address of a stream. Credentials are taken out of it at once and never printed.

use std::fmt;

/// The port of RTSP servers (RFC 7826, section 19).
pub const RTSP_PORT: u16 = 554;
/// The port of RTSP servers over TLS.
pub const RTSPS_PORT: u16 = 322;

/// A text that is never printed: its `Debug` shows dots.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret(String);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that has to send it.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// User and password for the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The user's name, decoded.
    pub user: Secret,
    /// The password, decoded; empty when none was given.
    pub password: Secret,
}

/// The address of a stream without credentials, which are beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamUrl {
    location: String,
    host: String,
    port: u16,
    credentials: Option<Credentials>,
}

/// Why an address cannot be used. The text says what to write; it never holds more of the address than its scheme.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("no address: give one as rtsp://HOST[:PORT]/PATH")]
    Empty,
    #[error("'{0}' addresses cannot be played: give one that starts with rtsp:// or rtsps://")]
    Scheme(String),
    #[error("this is no address: give one as rtsp://HOST[:PORT]/PATH, or at least a host with a dot or a colon")]
    NotAnAddress,
    #[error("the address names no host: give one as rtsp://HOST[:PORT]/PATH")]
    NoHost,
    #[error(
        "the host of the address has characters that no host name has; reserved characters in a user or password may be written as %40 for @, %2F for / and %3A for :"
    )]
    BadHost,
    #[error("the port of the address is not a number from 1 to 65535")]
    BadPort,
    #[error("the address holds blanks or control characters")]
    Blanks,
}

/// What rtspsrc understands: rtspu, rtspt and rtsph choose the transport.
const SCHEMES: [&str; 7] = ["rtsp", "rtspu", "rtspt", "rtsph", "rtsps", "rtspsu", "rtspst"];

impl StreamUrl {
    /// Reads an address as people write it: with or without scheme, credentials raw or percent-encoded.
    ///
    /// # Errors
    /// Says what to write instead.
    pub fn parse(text: &str) -> Result<Self, UrlError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(UrlError::Empty);
        }
        if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(UrlError::Blanks);
        }
        let (scheme, rest) = match text.split_once("://") {
            Some((scheme, rest)) => (scheme.to_ascii_lowercase(), rest),
            // Only what looks like a host: a word alone is more likely a misspelt command.
            None if text.contains(['.', ':']) && !text.starts_with(['/', '.', '-']) => match text.split_once(':') {
                Some((scheme, _)) if ["http", "https", "file", "mailto", "udp", "rtp"].contains(&scheme) => {
                    return Err(UrlError::Scheme(scheme.to_owned()));
                }
                _ => ("rtsp".to_owned(), text),
            },
            None => return Err(UrlError::NotAnAddress),
        };
        if !SCHEMES.contains(&scheme.as_str()) {
            let plain = scheme.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) && scheme.len() <= 16;
            return Err(UrlError::Scheme(if plain { scheme } else { "these".to_owned() }));
        }
        let (userinfo, rest) = split_credentials(rest);
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (host, port) = split_authority(authority)?;
        let default_port = if scheme.starts_with("rtsps") { RTSPS_PORT } else { RTSP_PORT };
        let shown_host = if host.contains(':') { format!("[{host}]") } else { host.clone() };
        let shown_port = port.map(|port| format!(":{port}")).unwrap_or_default();
        let path = if path.is_empty() { "/" } else { path };
        let credentials = userinfo.map(|userinfo| {
            let (user, password) = userinfo.split_once(':').unwrap_or((userinfo, ""));
            Credentials { user: Secret(percent_decode(user)), password: Secret(percent_decode(password)) }
        });
        Ok(Self {
            location: format!("{scheme}://{shown_host}{shown_port}{path}"),
            host,
            port: port.unwrap_or(default_port),
            credentials,
        })
    }

    /// The address without credentials: safe to print, and what rtspsrc gets.
    pub fn location(&self) -> &str {
        &self.location
    }

    /// The host's name or address, without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The port, the scheme's own when none was given.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The credentials that were in the address.
    pub fn credentials(&self) -> Option<&Credentials> {
        self.credentials.as_ref()
    }
}

impl fmt::Display for StreamUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.location)
    }
}

/// Splits `[USER[:PASSWORD]@]REST`. Raw passwords may hold any character: when the plain reading (RFC 3986) has no
/// valid host, the last `@` that a valid host follows ends the credentials.
fn split_credentials(rest: &str) -> (Option<&str>, &str) {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    if !rest[..end].contains('@') && split_authority(&rest[..end]).is_ok() {
        return (None, rest);
    }
    let valid_host_after = |at: &usize| {
        let after = &rest[at + 1..];
        let end = after.find(['/', '?', '#']).unwrap_or(after.len());
        split_authority(&after[..end]).is_ok()
    };
    // First an @ within the authority (the standard form, or a raw @ in the password), then any.
    let plain = rest[..end].rmatch_indices('@').map(|(at, _)| at).find(valid_host_after);
    // With a slash in the password: rather an @ whose host is followed by a path, since a path may hold an @ too.
    let raw = || rest.rmatch_indices('@').map(|(at, _)| at).filter(valid_host_after);
    match plain.or_else(|| raw().find(|at| rest[*at..].contains('/'))).or_else(|| raw().next()) {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => match rest[..end].rfind('@') {
            // No host is valid: let the caller name the fault of what stands after the credentials.
            Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
            None => (None, rest),
        },
    }
}

/// Splits `HOST[:PORT]`.
fn split_authority(authority: &str) -> Result<(String, Option<u16>), UrlError> {
    let (host, port) = if let Some(inner) = authority.strip_prefix('[') {
        let (host, after) = inner.split_once(']').ok_or(UrlError::BadHost)?;
        let zoneless = host.split('%').next().unwrap_or_default();
        if zoneless.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(UrlError::BadHost);
        }
        (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or(UrlError::BadPort)?) })
    } else {
        match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        }
    };
    if host.is_empty() {
        return Err(UrlError::NoHost);
    }
    let is_v6 = host.contains(':');
    if !is_v6 && !host.chars().all(|c| c.is_alphanumeric() || "-._~".contains(c)) {
        return Err(UrlError::BadHost);
    }
    let port = match port {
        None | Some("") => None,
        Some(port) if port.bytes().all(|digit| digit.is_ascii_digit()) => {
            Some(port.parse::<u16>().ok().filter(|port| *port > 0).ok_or(UrlError::BadPort)?)
        }
        Some(_) => return Err(UrlError::BadPort),
    };
    Ok((host.to_owned(), port))
}

/// Decodes `%XX`; what is no such triple stays as it is, so that raw text passes.
fn percent_decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let triple = (bytes[at] == b'%').then(|| bytes.get(at + 1..at + 3)).flatten();
        let value = triple
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok());
        match value {
            Some(value) => {
                decoded.push(value);
                at += 3;
            }
            None => {
                decoded.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8(decoded).unwrap_or_else(|_| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> StreamUrl {
        StreamUrl::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    fn credentials(text: &str) -> (String, String) {
        let url = parsed(text);
        let credentials = url.credentials().expect("credentials");
        assert_eq!(url.host(), "cam.example", "{text}");
        (credentials.user.reveal().to_owned(), credentials.password.reveal().to_owned())
    }

    #[test]
    fn reads_addresses_with_and_without_scheme() {
        for (text, location, host, port) in [
            ("rtsp://cam.example/live", "rtsp://cam.example/live", "cam.example", 554),
            ("RTSP://cam.example:8554/a?b=c@d#e", "rtsp://cam.example:8554/a?b=c@d#e", "cam.example", 8554),
            ("rtsps://cam.example/x", "rtsps://cam.example/x", "cam.example", 322),
            ("cam.example/live", "rtsp://cam.example/live", "cam.example", 554),
            ("cam:8554", "rtsp://cam:8554/", "cam", 8554),
            ("rtsp://[::1]:8554/test", "rtsp://[::1]:8554/test", "::1", 8554),
            ("rtsp://cam.example/path@2", "rtsp://cam.example/path@2", "cam.example", 554),
            ("rtsp://localhost", "rtsp://localhost/", "localhost", 554),
            ("  rtsp://cam.example/live ", "rtsp://cam.example/live", "cam.example", 554),
        ] {
            let url = parsed(text);
            assert_eq!((url.location(), url.host(), url.port()), (location, host, port), "{text}");
            assert_eq!(url.credentials(), None, "{text}");
        }
    }

    #[test]
    fn credentials_may_be_raw_or_encoded() {
        let pair = |user: &str, password: &str| (user.to_owned(), password.to_owned());
        assert_eq!(credentials("rtsp://admin:secret@cam.example/x"), pair("admin", "secret"));
        assert_eq!(credentials("rtsp://admin@cam.example/x"), pair("admin", ""));
        assert_eq!(credentials("rtsp://ad%40min:p%2Fw%3a%25%23@cam.example/x"), pair("ad@min", "p/w:%#"));
        assert_eq!(credentials("rtsp://admin:p@ss@cam.example/x"), pair("admin", "p@ss"));
        assert_eq!(credentials("rtsp://admin:pa/ss@cam.example:99/x@y"), pair("admin", "pa/ss"));
        assert_eq!(credentials("rtsp://admin:pa#s?s:w@cam.example/x"), pair("admin", "pa#s?s:w"));
        assert_eq!(credentials("rtsp://admin:100%@cam.example/x"), pair("admin", "100%"));
    }

    #[test]
    fn says_what_is_wrong_without_the_password() {
        for (text, wanted) in [
            ("", UrlError::Empty),
            ("http://cam.example/x", UrlError::Scheme("http".into())),
            ("http:x.y", UrlError::Scheme("http".into())),
            ("camera", UrlError::NotAnAddress),
            ("/dev/video0", UrlError::NotAnAddress),
            ("rtsp://", UrlError::NoHost),
            ("rtsp:///x", UrlError::NoHost),
            ("rtsp://:554/x", UrlError::NoHost),
            ("rtsp://cam.example:99999/x", UrlError::BadPort),
            ("rtsp://cam.example:0/x", UrlError::BadPort),
            ("rtsp://cam.example:abc/x", UrlError::BadPort),
            ("rtsp://u:topsecret@cam.example:abc/x", UrlError::BadPort),
            ("rtsp://u:topsecret@/x", UrlError::NoHost),
            ("rtsp://[::1/x", UrlError::BadHost),
            ("rtsp://a b/x", UrlError::Blanks),
        ] {
            let error = StreamUrl::parse(text).unwrap_err();
            assert_eq!(error, wanted, "{text}");
            assert!(!error.to_string().contains("topsecret"));
        }
    }

    #[test]
    fn nothing_printed_holds_the_password() {
        let url = parsed("rtsp://admin:topsecret@cam.example/x");
        for printed in [format!("{url}"), format!("{url:?}"), url.location().to_owned()] {
            assert!(!printed.contains("topsecret") && !printed.contains("admin"), "{printed}");
        }
    }

    proptest! {
        #[test]
        fn never_panics_and_never_tells(text in "\\PC{0,60}") {
            if let Err(error) = StreamUrl::parse(&text) {
                prop_assert!(error.to_string().lines().count() <= 3);
            }
        }

        #[test]
        fn encoded_credentials_read_back(user in "[ -~]{1,12}", password in "[ -~]{0,12}") {
            let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02X}")).collect::<String>();
            let url = StreamUrl::parse(&format!("rtsp://{}:{}@cam.example/x", encode(&user), encode(&password))).unwrap();
            let credentials = url.credentials().unwrap();
            prop_assert_eq!(credentials.user.reveal(), user);
            prop_assert_eq!(credentials.password.reveal(), password);
        }
    }
}
