//! What a message on the pipeline's bus means for the room: a pure function.

use super::error::EngineError;
use gst::prelude::*;

/// What the engine has to know of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum BusEvent {
    /// The stream is over; of a live stream that means the connection is gone.
    Eos,
    /// The pipeline failed.
    Error(EngineError),
    /// A decoder or the like is not installed.
    MissingPlugin(String),
    /// A sink dropped a frame that came too late.
    Dropped,
    /// The pipeline plays.
    Playing,
    /// Something for the log.
    Warning(String),
}

/// Reads a message of the pipeline `playbin`, which plays `location` (an address without credentials).
pub fn read(message: &gst::MessageRef, playbin: &gst::Object, location: &str) -> Option<BusEvent> {
    match message.view() {
        gst::MessageView::Eos(_) => Some(BusEvent::Eos),
        gst::MessageView::Error(error) => Some(BusEvent::Error(read_error(error, location))),
        gst::MessageView::Warning(warning) => Some(BusEvent::Warning(warning.error().message().to_owned())),
        gst::MessageView::Element(element) => {
            let structure = element.structure().filter(|structure| structure.name() == "missing-plugin")?;
            Some(BusEvent::MissingPlugin(structure.get::<String>("name").unwrap_or_else(|_| "a decoder".into())))
        }
        gst::MessageView::Qos(_) => Some(BusEvent::Dropped),
        gst::MessageView::StateChanged(change)
            if message.src() == Some(playbin) && change.current() == gst::State::Playing =>
        {
            Some(BusEvent::Playing)
        }
        _ => None,
    }
}

/// The RTSP status that rtspsrc puts into the details of its errors.
fn rtsp_status(error: &gst::message::Error) -> Option<(u32, String)> {
    let details = error.details()?;
    let code = details.get::<u32>("rtsp-status-code").ok()?;
    Some((code, details.get::<String>("rtsp-status-reason").unwrap_or_default()))
}

fn read_error(message: &gst::message::Error, location: &str) -> EngineError {
    let (error, location) = (message.error(), location.to_owned());
    match rtsp_status(message) {
        Some((404, _)) => return EngineError::NotFound { location },
        Some((401 | 403, _)) => return EngineError::Unauthorized { location },
        Some((code, reason)) => return EngineError::Refused { location, status: format!("{code} {reason}") },
        None => {}
    }
    if error.matches(gst::ResourceError::NotFound) {
        return EngineError::NotFound { location };
    }
    if error.matches(gst::ResourceError::NotAuthorized) {
        return EngineError::Unauthorized { location };
    }
    if error.matches(gst::ResourceError::OpenRead) || error.matches(gst::ResourceError::OpenReadWrite) {
        return EngineError::Connect { address: location, why: "the server does not answer as an RTSP server".into() };
    }
    if error.matches(gst::StreamError::CodecNotFound) || error.matches(gst::CoreError::MissingPlugin) {
        return EngineError::MissingPlugin { missing: "a decoder for it".into(), hint: PLUGIN_HINT.into() };
    }
    if error.matches(gst::ResourceError::Read) || error.matches(gst::ResourceError::Write) {
        return EngineError::Lost(first_line(error.message()));
    }
    let from = message.src().map(|source| source.name().to_string()).unwrap_or_default();
    EngineError::Stream(format!("the stream cannot be played: {} ({from})", first_line(error.message())))
}

/// Where decoders come from on Debian and its like.
pub const PLUGIN_HINT: &str = "on Debian: apt install gstreamer1.0-libav gstreamer1.0-plugins-bad";

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pipeline() -> gst::Pipeline {
        gst::init().unwrap();
        gst::Pipeline::new()
    }

    fn read_from(pipeline: &gst::Pipeline, message: &gst::Message) -> Option<BusEvent> {
        read(message, pipeline.upcast_ref(), "rtsp://cam.example/x")
    }

    #[test]
    fn statuses_of_the_server_are_told_apart() {
        let pipeline = pipeline();
        for (code, wanted) in [(404u32, "404"), (401, "--password-file"), (454, "454 why")] {
            let details = gst::Structure::builder("details")
                .field("rtsp-status-code", code)
                .field("rtsp-status-reason", "why")
                .build();
            let message = gst::message::Error::builder(gst::ResourceError::Read, "x").details(details).build();
            let Some(BusEvent::Error(error)) = read_from(&pipeline, &message) else { panic!("{code}") };
            assert!(error.to_string().contains(wanted), "{error}");
            assert!(error.exit_code() == super::super::error::exit::CONNECT);
        }
    }

    #[test]
    fn missing_codecs_are_named() {
        let pipeline = pipeline();
        let structure = gst::Structure::builder("missing-plugin").field("name", "H.265 decoder").build();
        let message = gst::message::Element::new(structure);
        assert_eq!(read_from(&pipeline, &message), Some(BusEvent::MissingPlugin("H.265 decoder".into())));
        let message = gst::message::Error::new(gst::StreamError::CodecNotFound, "x");
        let Some(BusEvent::Error(error)) = read_from(&pipeline, &message) else { panic!() };
        assert_eq!(error.exit_code(), super::super::error::exit::PLAYING);
    }

    #[test]
    fn only_the_pipeline_itself_plays() {
        let pipeline = pipeline();
        let other = gst::Pipeline::new();
        let change = |from: &gst::Pipeline| {
            gst::message::StateChanged::builder(gst::State::Paused, gst::State::Playing, gst::State::VoidPending)
                .src(from)
                .build()
        };
        assert_eq!(read_from(&pipeline, &change(&pipeline)), Some(BusEvent::Playing));
        assert_eq!(read_from(&pipeline, &change(&other)), None);
    }
}
