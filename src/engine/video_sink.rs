//! A clocked video sink: it waits for each frame's time as any sink does, takes the time, and hands the frame to a sink
//! that a front end made, if there is one. It measures what a screen behind a perfect renderer would show.

use super::meta::SenderTimes;
use super::renderer::Renderer;
use super::stats::{PresentationSample, StreamStats};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::subclass::prelude::*;
use std::sync::{Arc, LazyLock, Mutex, OnceLock, PoisonError};

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct MeasuringSink {
        pub stats: OnceLock<Arc<StreamStats>>,
        pub renderer: OnceLock<Renderer>,
        times: Mutex<SenderTimes>,
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

        fn change_state(&self, transition: gst::StateChange) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
            let Some(renderer) = self.renderer.get() else { return self.parent_change_state(transition) };
            renderer.prepare(transition, self.obj().bus().as_ref())?;
            let result = self.parent_change_state(transition);
            renderer.release(transition);
            result
        }
    }

    impl BaseSinkImpl for MeasuringSink {
        fn caps(&self, filter: Option<&gst::Caps>) -> Option<gst::Caps> {
            match self.renderer.get() {
                Some(renderer) => Some(renderer.caps(filter)),
                None => self.parent_caps(filter),
            }
        }

        fn event(&self, event: gst::Event) -> bool {
            let taken = self.renderer.get().is_none_or(|renderer| renderer.event(&event));
            self.parent_event(event) && taken
        }

        fn query(&self, query: &mut gst::QueryRef) -> bool {
            match self.renderer.get() {
                // Where textures live is between the decoder and the sink that shows them.
                Some(renderer) if query.type_() == gst::QueryType::Context => renderer.query(query),
                _ => BaseSinkImplExt::parent_query(self, query),
            }
        }

        fn propose_allocation(&self, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
            match self.renderer.get() {
                Some(renderer) if renderer.query(query) => Ok(()),
                _ => self.parent_propose_allocation(query),
            }
        }

        /// Called after the wait for the clock.
        fn render(&self, buffer: &gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
            if let (Some(stats), Some(clock)) = (self.stats.get(), self.obj().clock()) {
                stats.record(PresentationSample {
                    presented: clock.time().nseconds(),
                    sender_time: self.times.lock().unwrap_or_else(PoisonError::into_inner).of(buffer),
                });
            }
            match self.renderer.get() {
                Some(renderer) => renderer.show(buffer),
                None => {
                    raise_once();
                    Ok(gst::FlowSuccess::Ok)
                }
            }
        }
    }

    /// The streaming thread is not ours, and may be another after a change of the stream.
    fn raise_once() {
        thread_local!(static RAISED: std::cell::Cell<bool> = const { std::cell::Cell::new(false) });
        if !RAISED.replace(true) {
            crate::engine::priority::raise_this_thread();
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

    /// The same; each frame is handed to `renderer` after its wait. `None` when that is no sink.
    pub fn with_renderer(stats: Arc<StreamStats>, renderer: &gst::Element) -> Option<Self> {
        let sink = Self::new(stats);
        let _ = sink.imp().renderer.set(Renderer::new(renderer)?);
        Some(sink)
    }
}
