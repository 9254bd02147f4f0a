//! A clocked video sink that shows nothing: it waits for each frame's time as any sink does, then takes the time. It
//! measures what a screen behind a perfect renderer would show.

use super::meta::sender_time;
use super::stats::{PresentationSample, StreamStats};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use std::sync::{Arc, LazyLock, OnceLock};

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct MeasuringSink {
        pub stats: OnceLock<Arc<StreamStats>>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for MeasuringSink {
        const NAME: &'static str = "UnisonoMeasuringSink";
        type Type = super::MeasuringSink;
        type ParentType = gst_base::BaseSink;
    }

    impl ObjectImpl for MeasuringSink {}
    impl GstObjectImpl for MeasuringSink {}

    impl ElementImpl for MeasuringSink {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Unisono measuring sink",
                    "Sink/Video",
                    "Waits for each frame's presentation time, then measures the presentation error",
                    "Unisono",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
                gst::PadTemplate::new(
                    "sink",
                    gst::PadDirection::Sink,
                    gst::PadPresence::Always,
                    &gst::Caps::builder("video/x-raw").any_features().build(),
                )
                .into_iter()
                .collect()
            });
            &TEMPLATES
        }
    }

    impl BaseSinkImpl for MeasuringSink {
        /// Called after the wait for the clock.
        fn render(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
            if let (Some(stats), Some(clock)) = (self.stats.get(), self.obj().clock()) {
                stats.record(PresentationSample {
                    presented: clock.time().nseconds(),
                    sender_time: sender_time(buffer),
                });
            }
            Ok(gst::FlowSuccess::Ok)
        }
    }
}

glib::wrapper! {
    pub struct MeasuringSink(ObjectSubclass<imp::MeasuringSink>)
        @extends gst_base::BaseSink, gst::Element, gst::Object;
}

impl MeasuringSink {
    /// A sink that records every frame in `stats`.
    pub fn new(stats: Arc<StreamStats>) -> Self {
        let sink: Self = glib::Object::builder().property("name", "unisono-video").build();
        // No QoS: a decoder that skips frames to catch up would hide that the latency is too small.
        sink.set_property("qos", false);
        // A new object has no statistics yet.
        let _ = sink.imp().stats.set(stats);
        sink
    }
}
