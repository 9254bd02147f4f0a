//! Who may watch: Basic (RFC 7617) and Digest (RFC 2069, 2617 and 7616) authentication.

use super::rtsp::Message;
use gst::glib;

/// Asks for a user and a password.
#[derive(Debug, Clone)]
pub struct Auth {
    pub user: String,
    pub password: String,
    /// What is offered, in this order. Any of them is accepted.
    pub schemes: Vec<Scheme>,
    pub realm: String,
    /// After so many requests with one nonce the camera wants a new one (`stale=true`).
    pub nonce_uses: u32,
}

/// A way to show the password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scheme {
    Basic,
    /// Digest with MD5, without `qop` as in RFC 2069: what most cameras do.
    DigestMd5,
    /// Digest with SHA-256 (RFC 7616), without `qop`.
    DigestSha256,
}

impl Auth {
    pub fn new(user: &str, password: &str, schemes: &[Scheme]) -> Self {
        Self {
            user: user.into(),
            password: password.into(),
            schemes: schemes.to_vec(),
            realm: "scripted camera".into(),
            nonce_uses: u32::MAX,
        }
    }

    /// The values of the headers WWW-Authenticate.
    pub fn challenges(&self, nonce: &str, stale: bool) -> Vec<String> {
        let stale = if stale { ", stale=true" } else { "" };
        let realm = &self.realm;
        let challenge = |scheme: &Scheme| match scheme {
            Scheme::Basic => format!("Basic realm=\"{realm}\""),
            Scheme::DigestMd5 => format!("Digest realm=\"{realm}\", nonce=\"{nonce}\"{stale}"),
            Scheme::DigestSha256 => {
                format!("Digest realm=\"{realm}\", nonce=\"{nonce}\", algorithm=SHA-256{stale}")
            }
        };
        self.schemes.iter().map(challenge).collect()
    }

    /// Whether the request shows the password in one of the ways that were offered, with this nonce.
    pub fn accepts(&self, request: &Message, nonce: &str) -> bool {
        let Some((scheme, rest)) = request.header("Authorization").and_then(|value| value.split_once(' ')) else {
            return false;
        };
        match scheme.to_ascii_lowercase().as_str() {
            "basic" => {
                let expected = format!("{}:{}", self.user, self.password);
                self.schemes.contains(&Scheme::Basic) && glib::base64_decode(rest.trim()) == expected.as_bytes()
            }
            "digest" => self.accepts_digest(request, rest, nonce),
            _ => false,
        }
    }

    fn accepts_digest(&self, request: &Message, rest: &str, nonce: &str) -> bool {
        let fields = fields(rest);
        let field = |name: &str| fields.iter().find(|(key, _)| key == name).map_or("", |(_, value)| value);
        let (scheme, hash) = match field("algorithm").to_ascii_uppercase().as_str() {
            "" | "MD5" => (Scheme::DigestMd5, glib::ChecksumType::Md5),
            "SHA-256" => (Scheme::DigestSha256, glib::ChecksumType::Sha256),
            _ => return false,
        };
        self.schemes.contains(&scheme)
            && field("username") == self.user
            && field("realm") == self.realm
            && field("nonce") == nonce
            && field("uri") == request.uri()
            && field("response") == self.response(hash, request.method(), request.uri(), nonce)
    }

    /// The hash that shows the password (RFC 7616, section 3.4.1, without `qop`).
    pub fn response(&self, hash: glib::ChecksumType, method: &str, uri: &str, nonce: &str) -> String {
        let secret = digest(hash, &format!("{}:{}:{}", self.user, self.realm, self.password));
        digest(hash, &format!("{secret}:{nonce}:{}", digest(hash, &format!("{method}:{uri}"))))
    }
}

fn digest(hash: glib::ChecksumType, text: &str) -> String {
    glib::compute_checksum_for_string(hash, text).expect("MD5 and SHA-256 are always there").to_string()
}

/// `key="value", key=value, …`; the values of RTSP clients hold no quotes.
fn fields(text: &str) -> Vec<(String, String)> {
    let mut fields = Vec::new();
    let mut rest = text;
    while let Some((key, after)) = rest.split_once('=') {
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => after.split_at(after.find(',').unwrap_or(after.len())),
        };
        fields.push((key.trim_matches([' ', ',']).to_ascii_lowercase(), value.trim().to_owned()));
        rest = after;
    }
    fields
}
