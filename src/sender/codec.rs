//! What can be sent, and which of it is installed here.

use super::SendError;
use crate::programme::picture;
use std::fmt;
use std::str::FromStr;

/// How fast frames follow each other: `numerator / denominator` a second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameRate {
    pub numerator: u32,
    pub denominator: u32,
}

/// More frames a second than this is no picture for a test.
const FPS_MAX: u32 = 120;

impl Default for FrameRate {
    fn default() -> Self {
        Self { numerator: 25, denominator: 1 }
    }
}

impl fmt::Display for FrameRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.denominator == 1 {
            write!(f, "{}", self.numerator)
        } else {
            write!(f, "{}/{}", self.numerator, self.denominator)
        }
    }
}

impl FromStr for FrameRate {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (numerator, denominator) = text.split_once('/').unwrap_or((text, "1"));
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|number| (1..=1_000_000).contains(number));
        match (number(numerator), number(denominator)) {
            (Some(numerator), Some(denominator)) if numerator >= denominator && numerator <= FPS_MAX * denominator => {
                Ok(Self { numerator, denominator })
            }
            _ => Err(format!("'{text}' is no frame rate: give 1 to {FPS_MAX}, or a fraction as 30000/1001")),
        }
    }
}

/// Width and height in pixels, both even.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PictureSize {
    pub width: u32,
    pub height: u32,
}

impl Default for PictureSize {
    fn default() -> Self {
        Self { width: 1280, height: 720 }
    }
}

impl fmt::Display for PictureSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}", self.width, self.height)
    }
}

impl FromStr for PictureSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (width, height) = text
            .split_once('x')
            .and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)))
            .ok_or_else(|| format!("'{text}' is no size: write WIDTHxHEIGHT, like 1280x720"))?;
        picture::check_size(width, height).map_err(|error| error.to_string())?;
        Ok(Self { width, height })
    }
}

/// Which video codec was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum VideoCodecChoice {
    /// The first that is installed.
    #[default]
    Auto,
    H264,
    Vp8,
}

impl fmt::Display for VideoCodecChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::H264 => "h264",
            Self::Vp8 => "vp8",
        })
    }
}

impl FromStr for VideoCodecChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        [Self::Auto, Self::H264, Self::Vp8]
            .into_iter()
            .find(|choice| choice.to_string() == text)
            .ok_or_else(|| format!("there is no video codec '{text}' here: choose auto, h264 or vp8"))
    }
}

/// An encoder element that is installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VideoEncoder {
    X264,
    OpenH264,
    Vp8,
}

impl VideoEncoder {
    /// The GStreamer element and the Debian package that has it.
    fn element(self) -> (&'static str, &'static str) {
        match self {
            Self::X264 => ("x264enc", "gstreamer1.0-plugins-ugly"),
            Self::OpenH264 => ("openh264enc", "gstreamer1.0-plugins-bad"),
            Self::Vp8 => ("vp8enc", "gstreamer1.0-plugins-good"),
        }
    }

    pub fn name(self) -> &'static str {
        self.element().0
    }

    /// The best encoder for the choice: of the H.264 encoders, x264enc takes the least time.
    ///
    /// # Errors
    /// [`SendError::MissingElement`] when none is installed.
    pub fn choose(choice: VideoCodecChoice) -> Result<Self, SendError> {
        let candidates: &[Self] = match choice {
            VideoCodecChoice::Auto => &[Self::X264, Self::OpenH264, Self::Vp8],
            VideoCodecChoice::H264 => &[Self::X264, Self::OpenH264],
            VideoCodecChoice::Vp8 => &[Self::Vp8],
        };
        let installed = candidates.iter().copied().find(|encoder| is_installed(encoder.name()));
        installed.ok_or_else(|| missing(&candidates.iter().map(|encoder| encoder.element()).collect::<Vec<_>>()))
    }
}

/// How audio is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AudioCodec {
    /// Compressed, for any network (RFC 7587).
    #[default]
    Opus,
    /// Every sample as it is, 16 bits (RFC 3551): what measures exactly.
    L16,
    /// As cameras and telephones send it: 8 kHz, one channel (RFC 3551).
    Pcmu,
}

impl AudioCodec {
    pub const ALL: [Self; 3] = [Self::Opus, Self::L16, Self::Pcmu];

    pub fn name(self) -> &'static str {
        match self {
            Self::Opus => "opus",
            Self::L16 => "l16",
            Self::Pcmu => "pcmu",
        }
    }

    /// The encoder (none for L16) and payloader elements, each with its Debian package.
    fn elements(self) -> &'static [(&'static str, &'static str)] {
        const BASE: &str = "gstreamer1.0-plugins-base";
        const GOOD: &str = "gstreamer1.0-plugins-good";
        match self {
            Self::Opus => &[("opusenc", BASE), ("rtpopuspay", GOOD)],
            Self::L16 => &[("rtpL16pay", GOOD)],
            Self::Pcmu => &[("mulawenc", GOOD), ("rtppcmupay", GOOD)],
        }
    }
}

impl fmt::Display for AudioCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for AudioCodec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|codec| codec.name() == text)
            .ok_or_else(|| format!("there is no audio codec '{text}' here: choose opus, l16 or pcmu"))
    }
}

/// The sample rates that Opus codes (RFC 6716, section 2), Hz.
const OPUS_RATES: [u32; 5] = [8_000, 12_000, 16_000, 24_000, 48_000];
/// More channels than this is more than any room has, and no longer fits a packet of 1 ms.
const L16_CHANNELS_MAX: u32 = 8;
/// The highest rate whose RTP clock and packets are still common.
const L16_RATE_MAX: u32 = 96_000;

/// How a sound is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AudioFormat {
    pub codec: AudioCodec,
    /// Hz.
    pub rate: u32,
    pub channels: u32,
}

impl AudioFormat {
    /// With the codec's defaults for what is not given.
    ///
    /// # Errors
    /// [`SendError::Usage`] when the codec cannot carry it.
    pub fn new(codec: AudioCodec, rate: Option<u32>, channels: Option<u32>) -> Result<Self, SendError> {
        let (default_rate, default_channels) = if codec == AudioCodec::Pcmu { (8_000, 1) } else { (48_000, 2) };
        let format = Self { codec, rate: rate.unwrap_or(default_rate), channels: channels.unwrap_or(default_channels) };
        let (rates, channels, fits) = match codec {
            AudioCodec::Opus => (
                "8000, 12000, 16000, 24000 or 48000".to_owned(),
                "1 or 2",
                OPUS_RATES.contains(&format.rate) && (1..=2).contains(&format.channels),
            ),
            AudioCodec::L16 => (
                format!("a multiple of 50 from {} to {L16_RATE_MAX}", crate::programme::RATE_MIN),
                "1 to 8",
                (crate::programme::RATE_MIN..=L16_RATE_MAX).contains(&format.rate)
                    && format.rate.is_multiple_of(50)
                    && (1..=L16_CHANNELS_MAX).contains(&format.channels),
            ),
            AudioCodec::Pcmu => ("8000".to_owned(), "1", format.rate == 8_000 && format.channels == 1),
        };
        if fits {
            Ok(format)
        } else {
            Err(SendError::Usage(format!(
                "{codec} cannot carry {} Hz with {} channels: it takes {rates} Hz with {channels}",
                format.rate, format.channels
            )))
        }
    }

    /// Whether encoder and payloader are installed.
    ///
    /// # Errors
    /// [`SendError::MissingElement`] names the first that is not.
    pub fn check_installed(&self) -> Result<(), SendError> {
        match self.codec.elements().iter().find(|(element, _)| !is_installed(element)) {
            Some(element) => Err(missing(&[*element])),
            None => Ok(()),
        }
    }
}

/// The elements without which nothing can be sent.
const TRANSPORT: [(&str, &str); 5] = [
    ("rtpbin", "gstreamer1.0-plugins-good"),
    ("rtphdrextntp64", "gstreamer1.0-plugins-good"),
    ("rtph264pay", "gstreamer1.0-plugins-good"),
    ("multiudpsink", "gstreamer1.0-plugins-good"),
    ("appsink", "gstreamer1.0-plugins-base"),
];

/// Whether all that every stream needs is installed.
///
/// # Errors
/// [`SendError::MissingElement`] names the first that is not.
pub fn check_transport() -> Result<(), SendError> {
    TRANSPORT.iter().find(|(element, _)| !is_installed(element)).map_or(Ok(()), |element| Err(missing(&[*element])))
}

fn is_installed(element: &str) -> bool {
    gst::ElementFactory::find(element).is_some()
}

fn missing(candidates: &[(&str, &str)]) -> SendError {
    let (elements, packages): (Vec<_>, Vec<_>) = candidates.iter().copied().unzip();
    SendError::MissingElement { element: elements.join(" or "), package: packages.join(" or ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_codec_cannot_carry_is_refused_with_what_it_can() {
        let refused = |codec, rate, channels| AudioFormat::new(codec, rate, channels).unwrap_err().to_string();
        assert!(refused(AudioCodec::Opus, Some(44_100), None).contains("48000"));
        assert!(refused(AudioCodec::Opus, None, Some(3)).contains("1 or 2"));
        assert!(refused(AudioCodec::L16, Some(48_001), None).contains("multiple of 50"));
        assert!(refused(AudioCodec::L16, None, Some(0)).contains("1 to 8"));
        assert!(refused(AudioCodec::Pcmu, Some(48_000), None).contains("8000"));
        let format = AudioFormat::new(AudioCodec::Pcmu, None, None).unwrap();
        assert_eq!((format.rate, format.channels), (8_000, 1));
    }

    #[test]
    fn names_read_back() {
        for codec in AudioCodec::ALL {
            assert_eq!(codec.to_string().parse(), Ok(codec));
        }
        for text in ["25", "30000/1001", "1", "120"] {
            assert_eq!(text.parse::<FrameRate>().unwrap().to_string(), text);
        }
        for text in ["", "0", "1/2", "121", "25/0", "-5", "x"] {
            assert!(text.parse::<FrameRate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_missing_element_is_named_with_its_package() {
        let error = missing(&[("x264enc", "ugly"), ("openh264enc", "bad")]).to_string();
        assert!(error.contains("x264enc or openh264enc") && error.contains("ugly or bad"), "{error}");
    }
}
