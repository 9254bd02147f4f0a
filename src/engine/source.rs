//! Sets up rtspsrc and the rtpbin inside it.

use super::event::{AudioOutput, EngineConfig, Transport, VideoOutput};
use super::monitor::{RtpMonitor, stream_info};
use gst::glib;
use gst::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};

/// rtpbin's `min-ts-offset`: smaller changes of a stream's offset are not applied. 1 ms is below what anyone sees, and
/// keeps small changes in a sender's reports from moving every frame.
const MIN_TS_OFFSET_NS: u64 = 1_000_000;

/// What the SDP offers, and what became of it: told to the engine when there is nothing to play.
#[derive(Debug, Clone, Default)]
pub struct MediaPlan {
    pub audio: u32,
    pub video: u32,
    pub other: u32,
    pub selected: u32,
    /// Medias that cannot be played: kind and why.
    pub skipped: Vec<(String, String)>,
}

impl MediaPlan {
    /// In words, for messages.
    pub fn offered(&self) -> String {
        let parts: Vec<String> = [(self.audio, "audio"), (self.video, "video"), (self.other, "other")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, kind)| format!("{count} {kind}"))
            .collect();
        if parts.is_empty() { "it offers no media".into() } else { format!("it offers {}", parts.join(", ")) }
    }
}

/// What the set-up of one connection shares with its callbacks.
pub struct SourceSetup {
    pub config: EngineConfig,
    /// Whether rtpbin schedules by the sender's reports.
    pub sync: bool,
    pub monitor: Arc<RtpMonitor>,
    pub plan: Arc<Mutex<MediaPlan>>,
    /// For the statistics.
    pub jitterbuffers: Arc<Mutex<Vec<glib::WeakRef<gst::Element>>>>,
}

/// Sets a property by name when this version of the element has it.
fn set_if_there(element: &gst::Element, name: &str, value: impl Into<glib::Value>) {
    if element.find_property(name).is_some() {
        element.set_property_from_value(name, &value.into());
    } else {
        tracing::debug!(element = %element.name(), name, "no such property here");
    }
}

/// The same for enumerations and flags, by their nicks.
fn set_nick_if_there(element: &gst::Element, name: &str, nick: &str) {
    if element.find_property(name).is_some() {
        element.set_property_from_str(name, nick);
    } else {
        tracing::debug!(element = %element.name(), name, "no such property here");
    }
}

impl SourceSetup {
    /// Called from playbin's `source-setup` with the rtspsrc it made.
    pub fn configure(self: Arc<Self>, source: &gst::Element) {
        if source.factory().is_none_or(|factory| factory.name() != "rtspsrc") {
            return;
        }
        let config = &self.config;
        set_if_there(source, "latency", u32::try_from(config.jitter.as_millis()).unwrap_or(u32::MAX));
        set_if_there(source, "add-reference-timestamp-meta", true);
        set_if_there(source, "ntp-sync", self.sync);
        // Without a shared clock the receiver follows the sender's rate instead.
        set_nick_if_there(source, "buffer-mode", if self.sync { "synced" } else { "slave" });
        // The pipeline clock counts in the epoch of the reports; see crate::clock.
        set_nick_if_there(source, "ntp-time-source", "clock-time");
        set_nick_if_there(
            source,
            "protocols",
            match config.transport {
                Transport::Auto => "tcp+udp-mcast+udp",
                Transport::Udp => "udp",
                Transport::Tcp => "tcp",
                Transport::Multicast => "udp-mcast",
            },
        );
        // Kept apart from the address, so that no message of any element can hold them.
        if let Some(credentials) = config.credentials.as_ref().or(config.url.credentials()) {
            source.set_property("user-id", credentials.user.reveal());
            source.set_property("user-pw", credentials.password.reveal());
        }

        let setup = Arc::downgrade(&self);
        source.connect("on-sdp", false, move |values| {
            if let (Some(setup), Some(sdp)) =
                (setup.upgrade(), values.get(1).and_then(|value| value.get::<gst_sdp::SDPMessage>().ok()))
            {
                setup.read_sdp(&sdp);
            }
            None
        });
        let setup = Arc::downgrade(&self);
        source.connect("select-stream", false, move |values| {
            let number = values.get(1).and_then(|value| value.get::<u32>().ok());
            let caps = values.get(2).and_then(|value| value.get::<gst::Caps>().ok());
            let wanted = match (setup.upgrade(), number, caps) {
                (Some(setup), Some(number), Some(caps)) => setup.select(number as usize, &caps),
                _ => true,
            };
            Some(wanted.to_value())
        });
        let setup = Arc::downgrade(&self);
        source.connect("new-manager", false, move |values| {
            if let (Some(setup), Some(manager)) =
                (setup.upgrade(), values.get(1).and_then(|value| value.get::<gst::Element>().ok()))
            {
                setup.configure_manager(&manager);
            }
            None
        });
    }

    fn plan(&self) -> std::sync::MutexGuard<'_, MediaPlan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_sdp(&self, sdp: &gst_sdp::SDPMessageRef) {
        let mut plan = self.plan();
        *plan = MediaPlan::default();
        for media in sdp.medias() {
            match media.media() {
                Some("audio") => plan.audio += 1,
                Some("video") => plan.video += 1,
                _ => plan.other += 1,
            }
        }
    }

    /// Whether this room plays the stream with these caps.
    fn select(&self, number: usize, caps: &gst::CapsRef) -> bool {
        let Some(structure) = caps.structure(0) else { return false };
        let media = structure.get::<&str>("media").unwrap_or_default().to_owned();
        let mut plan = self.plan();
        let wants_audio = self.config.audio != AudioOutput::Off;
        let wanted = match media.as_str() {
            "audio" => wants_audio,
            "video" => match self.config.video {
                VideoOutput::Off => false,
                VideoOutput::Watched => !(wants_audio && plan.audio > 0),
                VideoOutput::Described(_) | VideoOutput::Sink(_) => true,
            },
            _ => false,
        };
        if !wanted {
            return false;
        }
        if !has_depayloader(structure) {
            let encoding = structure.get::<&str>("encoding-name").unwrap_or("an unknown encoding").to_owned();
            plan.skipped.push((media, format!("the depayloader for {encoding}")));
            return false;
        }
        plan.selected += 1;
        self.monitor.set_session(number, stream_info(structure));
        true
    }

    fn configure_manager(&self, manager: &gst::Element) {
        set_if_there(manager, "min-ts-offset", MIN_TS_OFFSET_NS);
        self.monitor.watch(manager);
        let jitterbuffers = self.jitterbuffers.clone();
        manager.connect("new-jitterbuffer", false, move |values| {
            if let Some(jitterbuffer) = values.get(1).and_then(|value| value.get::<gst::Element>().ok()) {
                let mut list = jitterbuffers.lock().unwrap_or_else(PoisonError::into_inner);
                list.retain(|known| known.upgrade().is_some());
                list.push(jitterbuffer.downgrade());
            }
            None
        });
    }
}

/// Whether any installed depayloader takes these caps: a stream without one would fail the whole pipeline.
fn has_depayloader(structure: &gst::StructureRef) -> bool {
    // rtspsrc names them only after the selection.
    let mut structure = structure.to_owned();
    structure.set_name("application/x-rtp");
    let caps = gst::Caps::builder_full().structure(structure).build();
    gst::ElementFactory::factories_with_type(gst::ElementFactoryType::DEPAYLOADER, gst::Rank::MARGINAL).iter().any(
        |factory| {
            factory
                .static_pad_templates()
                .iter()
                .any(|template| template.direction() == gst::PadDirection::Sink && template.caps().can_intersect(&caps))
        },
    )
}
