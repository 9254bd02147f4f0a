//! The media that rooms share: all on the shared clock, with base time zero, so that running time is capture time.

use super::pipeline::{self, MediaSpec};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_rtsp_server::prelude::*;
use gst_rtsp_server::subclass::prelude::*;
use gstreamer_rtsp_server as gst_rtsp_server;
use std::sync::OnceLock;
use std::time::Duration;

/// A sender report at least about so often, so that a room without in-packet capture times need not wait longer. The
/// session's own rule, made for meetings of many, gives 5 s.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// What a factory makes, and says about it.
#[derive(Debug)]
pub struct Setup {
    pub media: MediaSpec,
    /// The shared clock, synchronized, in the NTP epoch.
    pub clock: gst::Clock,
    /// The value of the session attribute `x-unisono`.
    pub signalled: String,
}

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct Factory {
        pub(super) setup: OnceLock<Setup>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Factory {
        const NAME: &'static str = "UnisonoMediaFactory";
        type Type = super::Factory;
        type ParentType = gst_rtsp_server::RTSPMediaFactory;
    }

    impl ObjectImpl for Factory {}

    impl RTSPMediaFactoryImpl for Factory {
        fn create_element(&self, _url: &gst_rtsp::RTSPUrl) -> Option<gst::Element> {
            let setup = self.setup.get()?;
            pipeline::build(&setup.media).inspect_err(|error| tracing::error!("{error}")).ok()
        }

        fn create_pipeline(&self, media: &gst_rtsp_server::RTSPMedia) -> Option<gst::Pipeline> {
            let setup = self.setup.get()?;
            let pipeline = self.parent_create_pipeline(media)?;
            pipeline.use_clock(Some(&setup.clock));
            // No start time: the base time stays as it is set here through every change of state.
            pipeline.set_start_time(gst::ClockTime::NONE);
            pipeline.set_base_time(gst::ClockTime::ZERO);
            // Packets leave when they are made; the encoders' own latency needs no waiting.
            pipeline.set_latency(gst::ClockTime::ZERO);
            Some(pipeline)
        }

        fn configure(&self, media: &gst_rtsp_server::RTSPMedia) {
            self.parent_configure(media);
            if let (Some(media), Some(setup)) = (media.downcast_ref::<super::Media>(), self.setup.get()) {
                // A media is configured once.
                let _ = media.imp().signalled.set(setup.signalled.clone());
            }
        }
    }

    #[derive(Default)]
    pub struct Media {
        pub(super) signalled: OnceLock<String>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Media {
        const NAME: &'static str = "UnisonoMedia";
        type Type = super::Media;
        type ParentType = gst_rtsp_server::RTSPMedia;
    }

    impl ObjectImpl for Media {}

    impl RTSPMediaImpl for Media {
        fn setup_rtpbin(&self, rtpbin: &gst::Element) -> Result<(), gst::LoggableError> {
            self.parent_setup_rtpbin(rtpbin)?;
            // Reports pair RTP timestamps with capture times on the shared clock, not with the times of sending on the
            // host's.
            rtpbin.set_property_from_str("ntp-time-source", "clock-time");
            rtpbin.set_property("rtcp-sync-send-time", false);
            if let Some(bin) = rtpbin.downcast_ref::<gst::Bin>() {
                bin.connect_element_added(|_, element| report_often(element));
            }
            Ok(())
        }

        fn setup_sdp(
            &self,
            sdp: &mut gst_sdp::SDPMessageRef,
            info: &gst_rtsp_server::subclass::SDPInfo,
        ) -> Result<(), gst::LoggableError> {
            self.parent_setup_sdp(sdp, info)?;
            if let Some(signalled) = self.signalled.get() {
                sdp.add_attribute("x-unisono", Some(signalled));
            }
            Ok(())
        }

        fn handle_message(&self, message: &gst::MessageRef) -> bool {
            if let gst::MessageView::Error(error) = message.view() {
                tracing::error!(debug = ?error.debug(), "{}", error.error());
            }
            self.parent_handle_message(message)
        }

        fn prepared(&self) {
            tracing::info!("starts to send");
            self.parent_prepared();
        }

        fn unprepared(&self) {
            tracing::info!("no receiver is left: stops sending");
            self.parent_unprepared();
        }
    }
}

/// Shortens the report interval when `element` is one of rtpbin's sessions.
fn report_often(element: &gst::Element) {
    if element.factory().is_some_and(|factory| factory.name() == "rtpsession") {
        let session = element.property::<glib::Object>("internal-session");
        session.set_property("rtcp-min-interval", REPORT_INTERVAL.as_nanos() as u64);
    }
}

glib::wrapper! {
    /// Makes the media of one mount.
    pub struct Factory(ObjectSubclass<imp::Factory>) @extends gst_rtsp_server::RTSPMediaFactory;
}

glib::wrapper! {
    /// A media on the shared clock.
    pub struct Media(ObjectSubclass<imp::Media>) @extends gst_rtsp_server::RTSPMedia;
}

impl Factory {
    /// A factory whose one media is shared by all who ask for it.
    pub fn new(setup: Setup) -> Self {
        let factory: Self = glib::Object::new();
        // Fresh, so not set yet.
        let _ = factory.imp().setup.set(setup);
        factory.set_shared(true);
        factory.set_media_gtype(Media::static_type());
        factory
    }
}
