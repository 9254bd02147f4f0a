//! The element that makes the test programme: a live source, paced by the shared clock.
//!
//! What it makes is said by a [`Content`]. Every buffer is timestamped with the exact time of its item on the raster,
//! so with the pipeline's base time zero its running time is the capture time on the shared clock. Neither rounding
//! nor lateness ever accumulates.

use super::pacing::{Pacer, Raster, Step, Waiter};
use crate::clock::NtpTime;
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_src::CreateSuccess;
use gst_base::subclass::prelude::*;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What a source makes.
pub trait Content: Send {
    /// Fixed caps of the buffers.
    fn caps(&self) -> gst::Caps;
    /// When items begin.
    fn raster(&self) -> Raster;
    /// Whether an item is ready when it ends (a block of sound), rather than when it begins (a picture).
    fn ready_at_end(&self) -> bool;
    /// An item later than this is left out, ns.
    fn late_max(&self) -> u64;
    /// Makes item `index`, captured at `time`. Timestamps are added by the source.
    fn make(&mut self, index: u64, time: NtpTime) -> Option<gst::Buffer>;
}

/// The longest wait without looking at the clock again, which may be set meanwhile.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct ProgrammeSource {
        pub(super) state: Mutex<Option<State>>,
        waiter: Waiter,
    }

    pub(super) struct State {
        content: Box<dyn Content>,
        pacer: Pacer,
    }

    impl State {
        pub(super) fn new(content: Box<dyn Content>) -> Self {
            let pacer = Pacer::new(content.raster(), content.ready_at_end(), content.late_max());
            Self { content, pacer }
        }
    }

    impl ProgrammeSource {
        pub(super) fn lock(&self) -> MutexGuard<'_, Option<State>> {
            // A panic of a content leaves the pacer whole.
            self.state.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    #[glib::object_subclass]
    impl ObjectSubclass for ProgrammeSource {
        const NAME: &'static str = "UnisonoProgrammeSource";
        type Type = super::ProgrammeSource;
        type ParentType = gst_base::PushSrc;
    }

    impl ObjectImpl for ProgrammeSource {
        fn constructed(&self) {
            self.parent_constructed();
            let source = self.obj();
            source.set_live(true);
            source.set_format(gst::Format::Time);
        }
    }

    impl GstObjectImpl for ProgrammeSource {}

    impl ElementImpl for ProgrammeSource {
        fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
            static METADATA: std::sync::LazyLock<gst::subclass::ElementMetadata> = std::sync::LazyLock::new(|| {
                gst::subclass::ElementMetadata::new(
                    "Test programme",
                    "Source",
                    "Makes sound or pictures that are a function of the shared clock",
                    "Unisono",
                )
            });
            Some(&METADATA)
        }

        fn pad_templates() -> &'static [gst::PadTemplate] {
            static TEMPLATES: std::sync::LazyLock<Vec<gst::PadTemplate>> = std::sync::LazyLock::new(|| {
                let template = gst::PadTemplate::new(
                    "src",
                    gst::PadDirection::Src,
                    gst::PadPresence::Always,
                    &gst::Caps::new_any(),
                );
                template.into_iter().collect()
            });
            &TEMPLATES
        }
    }

    impl BaseSrcImpl for ProgrammeSource {
        fn start(&self) -> Result<(), gst::ErrorMessage> {
            match &mut *self.lock() {
                Some(state) => {
                    state.pacer.reset();
                    Ok(())
                }
                None => Err(gst::error_msg!(gst::LibraryError::Init, ["no content was set"])),
            }
        }

        fn is_seekable(&self) -> bool {
            false
        }

        fn caps(&self, filter: Option<&gst::Caps>) -> Option<gst::Caps> {
            let caps = self.lock().as_ref().map_or_else(gst::Caps::new_any, |state| state.content.caps());
            Some(filter.map_or(caps.clone(), |filter| filter.intersect_with_mode(&caps, gst::CapsIntersectMode::First)))
        }

        fn query(&self, query: &mut gst::QueryRef) -> bool {
            if let gst::QueryViewMut::Latency(latency) = query.view_mut() {
                // Items leave when they are ready: nothing downstream shall hold them back.
                latency.set(true, gst::ClockTime::ZERO, gst::ClockTime::NONE);
                return true;
            }
            BaseSrcImplExt::parent_query(self, query)
        }

        fn unlock(&self) -> Result<(), gst::ErrorMessage> {
            self.waiter.interrupt(true);
            Ok(())
        }

        fn unlock_stop(&self) -> Result<(), gst::ErrorMessage> {
            self.waiter.interrupt(false);
            Ok(())
        }
    }

    impl PushSrcImpl for ProgrammeSource {
        fn create(&self, _buffer: Option<&mut gst::BufferRef>) -> Result<CreateSuccess, gst::FlowError> {
            let source = self.obj();
            // Both are set before a live source is asked for data.
            let (Some(clock), Some(base_time)) = (source.clock(), source.base_time()) else {
                return Err(gst::FlowError::Flushing);
            };
            loop {
                let now = clock.time().nseconds();
                let mut guard = self.lock();
                let state = guard.as_mut().ok_or(gst::FlowError::NotNegotiated)?;
                match state.pacer.step(now) {
                    Step::Wait(ns) => {
                        drop(guard);
                        if !self.waiter.wait(Duration::from_nanos(ns).min(LOOK_AGAIN)) {
                            return Err(gst::FlowError::Flushing);
                        }
                    }
                    Step::Send { index, jump } => {
                        let raster = state.content.raster();
                        let (time, end) = (raster.time(index), raster.time(index + 1));
                        let mut buffer = state.content.make(index, time).ok_or(gst::FlowError::Error)?;
                        drop(guard);
                        if jump {
                            tracing::debug!(source = %source.name(), index, "starts or skips to this item");
                        }
                        let Some(meta) = buffer.get_mut() else { return Err(gst::FlowError::Error) };
                        meta.set_pts(gst::ClockTime::from_nseconds(time).checked_sub(base_time));
                        meta.set_duration(gst::ClockTime::from_nseconds(end - time));
                        if jump {
                            meta.set_flags(gst::BufferFlags::DISCONT);
                        }
                        return Ok(CreateSuccess::NewBuffer(buffer));
                    }
                }
            }
        }
    }
}

glib::wrapper! {
    /// A live source of the test programme.
    pub struct ProgrammeSource(ObjectSubclass<imp::ProgrammeSource>)
        @extends gst_base::PushSrc, gst_base::BaseSrc, gst::Element, gst::Object;
}

impl ProgrammeSource {
    /// A source of `content`.
    pub fn new(name: &str, content: Box<dyn Content>) -> Self {
        let source: Self = glib::Object::builder().property("name", name).build();
        *source.imp().lock() = Some(imp::State::new(content));
        source
    }
}
