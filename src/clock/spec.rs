//! What the user writes after `--clock`.

use std::fmt;
use std::str::FromStr;

/// The port of NTP servers (RFC 5905).
pub const NTP_PORT: u16 = 123;
/// The highest PTP domain number for users (IEEE 1588-2008, table 2).
const PTP_DOMAIN_MAX: u8 = 127;

/// Which shared clock to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ClockSpec {
    /// The system clock of this host, disciplined by its own NTP or PTP service or not.
    System,
    /// An NTP server.
    Ntp { host: String, port: u16 },
    /// A PTP domain, on one interface or on all.
    Ptp { interface: Option<String>, domain: u8 },
    /// A GStreamer network clock provider.
    GstNet { host: String, port: u16 },
}

/// Why a clock could not be understood. The text says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClockSpecError {
    #[error("'{0}' is no clock: write system, ntp://HOST[:PORT], ptp://[INTERFACE][?domain=N] or gstnet://HOST:PORT")]
    Unknown(String),
    #[error("the clock '{0}' names no host: write it as {1}")]
    NoHost(String, &'static str),
    #[error("the clock '{0}' has a bad port: it is a number from 1 to 65535")]
    BadPort(String),
    #[error("the clock '{0}' has a bad PTP domain: it is a number from 0 to {PTP_DOMAIN_MAX}")]
    BadDomain(String),
    #[error("the clock '{0}' has something after the address that does not belong there: write it as {1}")]
    Trailing(String, &'static str),
}

const NTP_FORM: &str = "ntp://HOST[:PORT]";
const GSTNET_FORM: &str = "gstnet://HOST:PORT";
const PTP_FORM: &str = "ptp://[INTERFACE][?domain=N]";

/// Splits `HOST[:PORT]`, where HOST may be an IPv6 address in brackets.
fn host_port(text: &str, rest: &str, form: &'static str) -> Result<(String, Option<u16>), ClockSpecError> {
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains(['/', '?', '#', '@']) || rest.contains(char::is_whitespace) {
        return Err(ClockSpecError::Trailing(text.into(), form));
    }
    let (host, port) = if let Some(inner) = rest.strip_prefix('[') {
        let (host, after) = inner.split_once(']').ok_or_else(|| ClockSpecError::NoHost(text.into(), form))?;
        match after.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if after.is_empty() => (host, None),
            None => return Err(ClockSpecError::Trailing(text.into(), form)),
        }
    } else if rest.matches(':').count() > 1 {
        (rest, None) // an IPv6 address without brackets
    } else {
        match rest.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (rest, None),
        }
    };
    if host.is_empty() {
        return Err(ClockSpecError::NoHost(text.into(), form));
    }
    let port = match port {
        None => None,
        Some(port) => match port.parse::<u16>() {
            Ok(port) if port > 0 => Some(port),
            _ => return Err(ClockSpecError::BadPort(text.into())),
        },
    };
    Ok((host.to_owned(), port))
}

impl FromStr for ClockSpec {
    type Err = ClockSpecError;

    fn from_str(text: &str) -> Result<Self, ClockSpecError> {
        if text == "system" {
            return Ok(Self::System);
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err(ClockSpecError::Unknown(text.into()));
        };
        match scheme.to_ascii_lowercase().as_str() {
            "ntp" => {
                let (host, port) = host_port(text, rest, NTP_FORM)?;
                Ok(Self::Ntp { host, port: port.unwrap_or(NTP_PORT) })
            }
            "gstnet" => match host_port(text, rest, GSTNET_FORM)? {
                (host, Some(port)) => Ok(Self::GstNet { host, port }),
                (_, None) => Err(ClockSpecError::BadPort(text.into())),
            },
            "ptp" => {
                let (interface, query) = match rest.split_once('?') {
                    Some((interface, query)) => (interface, Some(query)),
                    None => (rest, None),
                };
                let interface = interface.strip_suffix('/').unwrap_or(interface);
                if interface.contains(['/', ':', '@']) || interface.contains(char::is_whitespace) {
                    return Err(ClockSpecError::Trailing(text.into(), PTP_FORM));
                }
                let domain = match query {
                    None => 0,
                    Some(query) => query
                        .strip_prefix("domain=")
                        .and_then(|number| number.parse().ok())
                        .filter(|domain| *domain <= PTP_DOMAIN_MAX)
                        .ok_or_else(|| ClockSpecError::BadDomain(text.into()))?,
                };
                Ok(Self::Ptp { interface: (!interface.is_empty()).then(|| interface.to_owned()), domain })
            }
            _ => Err(ClockSpecError::Unknown(text.into())),
        }
    }
}

impl ClockSpec {
    /// `system`, `ntp`, `ptp` or `gstnet`, as in the status.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Ntp { .. } => "ntp",
            Self::Ptp { .. } => "ptp",
            Self::GstNet { .. } => "gstnet",
        }
    }

    /// What the clock is reached by (`HOST:PORT`, or the PTP interface and domain); `None` for the system clock.
    pub fn address(&self) -> Option<String> {
        match self {
            Self::System => None,
            Self::Ntp { host, port } | Self::GstNet { host, port } if host.contains(':') => {
                Some(format!("[{host}]:{port}"))
            }
            Self::Ntp { host, port } | Self::GstNet { host, port } => Some(format!("{host}:{port}")),
            Self::Ptp { interface, domain } => {
                Some(format!("{}?domain={domain}", interface.as_deref().unwrap_or_default()))
            }
        }
    }
}

impl fmt::Display for ClockSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address() {
            None => f.write_str(self.kind()),
            Some(address) => write!(f, "{}://{address}", self.kind()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> ClockSpec {
        text.parse().unwrap()
    }

    #[test]
    fn reads_every_form() {
        assert_eq!(parsed("system"), ClockSpec::System);
        assert_eq!(parsed("ntp://pool.example"), ClockSpec::Ntp { host: "pool.example".into(), port: 123 });
        assert_eq!(parsed("NTP://10.0.0.1:1123/"), ClockSpec::Ntp { host: "10.0.0.1".into(), port: 1123 });
        assert_eq!(parsed("ntp://[::1]:99"), ClockSpec::Ntp { host: "::1".into(), port: 99 });
        assert_eq!(parsed("ntp://::1"), ClockSpec::Ntp { host: "::1".into(), port: 123 });
        assert_eq!(parsed("gstnet://box:8554"), ClockSpec::GstNet { host: "box".into(), port: 8554 });
        assert_eq!(parsed("ptp://"), ClockSpec::Ptp { interface: None, domain: 0 });
        assert_eq!(parsed("ptp://eth0?domain=3"), ClockSpec::Ptp { interface: Some("eth0".into()), domain: 3 });
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, part) in [
            ("", "is no clock"),
            ("http://x", "is no clock"),
            ("ntp:", "is no clock"),
            ("ntp://", "names no host"),
            ("ntp://:123", "names no host"),
            ("ntp://[::1", "names no host"),
            ("ntp://x:0", "bad port"),
            ("ntp://x:99999", "bad port"),
            ("ntp://x:abc", "bad port"),
            ("ntp://x/y", "does not belong"),
            ("ntp://[::1]x", "does not belong"),
            ("gstnet://x", "bad port"),
            ("ptp://eth0?domain=200", "bad PTP domain"),
            ("ptp://eth0?foo", "bad PTP domain"),
        ] {
            let error = text.parse::<ClockSpec>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(host in "[a-z0-9.-]{1,20}", port in 1u16.., domain in 0u8..=127) {
            for spec in [
                ClockSpec::Ntp { host: host.clone(), port },
                ClockSpec::GstNet { host: host.clone(), port },
                ClockSpec::Ptp { interface: Some(host.clone()), domain },
            ] {
                prop_assert_eq!(spec.to_string().parse(), Ok(spec));
            }
        }

        #[test]
        fn never_panics(text in "\\PC{0,40}") {
            let _ = text.parse::<ClockSpec>();
        }
    }
}
