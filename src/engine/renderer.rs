//! Hands frames to a sink that a front end made, one by one and after the clock wait of our own sink: so the moment is
//! measured, and the front end knows at each buffer that this is the frame to show now.
//!
//! ```text
//! … decode ─ MeasuringSink (waits, measures) ─ private pad ─ front end's sink (sync=false: shows at once)
//! ```

use gst::prelude::*;

/// A sink of a front end, driven from outside any pipeline.
#[derive(Debug)]
pub struct Renderer {
    sink: gst::Element,
    pad: gst::Pad,
}

impl Renderer {
    /// Takes over `sink`; `None` when it has no sink pad.
    pub fn new(sink: &gst::Element) -> Option<Self> {
        let sink_pad = sink.static_pad("sink")?;
        // A connection that did not close in time may still hold it.
        if let Some(peer) = sink_pad.peer() {
            let _ = peer.unlink(&sink_pad);
        }
        // The wait is ours, and nobody outside waits for this sink's preroll.
        for property in ["sync", "async", "qos"] {
            if sink.find_property(property).is_some() {
                sink.set_property(property, false);
            }
        }
        let pad = gst::Pad::builder(gst::PadDirection::Src).name("renderer").build();
        pad.link(&sink_pad).ok()?;
        Some(Self { sink: sink.clone(), pad })
    }

    /// Follows a state change upwards: called before the outer sink's own.
    pub fn prepare(&self, transition: gst::StateChange, bus: Option<&gst::Bus>) -> Result<(), gst::StateChangeError> {
        match transition {
            gst::StateChange::NullToReady => {
                self.sink.set_bus(bus);
                self.sink.set_state(gst::State::Ready).map(drop)
            }
            gst::StateChange::ReadyToPaused => {
                self.pad.set_active(true).map_err(|_| gst::StateChangeError)?;
                self.sink.set_state(gst::State::Playing).map(drop)
            }
            _ => Ok(()),
        }
    }

    /// Follows a state change downwards: called after the outer sink's own, when no frame comes any more.
    pub fn release(&self, transition: gst::StateChange) {
        let state = match transition {
            gst::StateChange::PausedToReady => gst::State::Ready,
            gst::StateChange::ReadyToNull => gst::State::Null,
            _ => return,
        };
        let _ = self.pad.set_active(false);
        // Going down cannot fail in a way that could be mended here.
        let _ = self.sink.set_state(state);
        if state == gst::State::Null {
            self.sink.set_bus(None);
        }
    }

    /// What the sink takes.
    pub fn caps(&self, filter: Option<&gst::Caps>) -> gst::Caps {
        self.pad.peer_query_caps(filter)
    }

    /// Hands a query on.
    pub fn query(&self, query: &mut gst::QueryRef) -> bool {
        self.pad.peer_query(query)
    }

    /// Hands an event on when it describes the frames or flushes them; the end of the stream stays outside.
    pub fn event(&self, event: &gst::Event) -> bool {
        match event.type_() {
            gst::EventType::StreamStart
            | gst::EventType::Caps
            | gst::EventType::Segment
            | gst::EventType::Tag
            | gst::EventType::FlushStart
            | gst::EventType::FlushStop => self.pad.push_event(event.clone()),
            _ => true,
        }
    }

    /// Shows a frame now.
    pub fn show(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.pad.push(buffer.clone())
    }
}

impl Drop for Renderer {
    fn drop(&mut self) {
        if let Some(peer) = self.pad.peer() {
            let _ = self.pad.unlink(&peer);
        }
    }
}
