//! The picture: a sink for the engine and the widget that shows what it gets.

use gst::prelude::*;
use gtk::prelude::*;
use gtk::{gdk, glib};

/// Why there is no picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the picture cannot be shown: {0}")]
pub struct VideoViewError(&'static str);

/// How frames come to the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rendering {
    /// As textures of the graphics processor.
    Gl,
    /// As plain memory: works everywhere.
    Plain,
}

/// A picture on the screen.
pub struct VideoView {
    /// For the engine.
    pub sink: gst::Element,
    /// For a `GtkPicture`.
    pub paintable: gdk::Paintable,
}

impl VideoView {
    /// A sink that fits what the renderer of `widget`'s window can do. The window must be realized, and GTK's main thread
    /// must call.
    ///
    /// # Errors
    /// When GStreamer has no elements for it.
    pub fn new(widget: &impl IsA<gtk::Widget>) -> Result<Self, VideoViewError> {
        let sink = gst::ElementFactory::make("gtk4paintablesink")
            .build()
            .map_err(|_| VideoViewError("the GTK sink is not there"))?;
        // Made here and now, on the main thread: later the sink would wait for it on the engine's.
        let paintable = sink
            .property::<Option<gdk::Paintable>>("paintable")
            .ok_or(VideoViewError("the GTK sink has no picture"))?;
        let rendering = if gl_is_usable(widget, &paintable) { Rendering::Gl } else { Rendering::Plain };
        let (outer, rendering) = match rendering {
            Rendering::Gl => match gst::ElementFactory::make("glsinkbin").property("sink", &sink).build() {
                Ok(outer) => (outer, Rendering::Gl),
                Err(_) => (plain(&sink)?, Rendering::Plain),
            },
            Rendering::Plain => (plain(&sink)?, Rendering::Plain),
        };
        tracing::info!(?rendering, "the picture");
        // Frames that are drawn when they come, not when a clock says so: the engine's sink has waited already.
        for property in ["sync", "async", "qos"] {
            if sink.find_property(property).is_some() {
                sink.set_property(property, false);
            }
        }
        Ok(Self { sink: outer, paintable })
    }
}

/// Whether textures of the graphics processor reach the screen: GTK must draw by GL, and the sink must have found a
/// context that shares with GTK's. Without that it paints pink, or nothing.
fn gl_is_usable(widget: &impl IsA<gtk::Widget>, paintable: &gdk::Paintable) -> bool {
    let by_gl = widget
        .native()
        .and_then(|native| native.renderer())
        .map(|renderer| renderer.type_().name().to_owned())
        // GskGLRenderer, GskNglRenderer: not GskCairoRenderer, and not yet GskVulkanRenderer.
        .is_some_and(|name| name.contains("GL") || name.contains("Ngl"));
    let shared = paintable.find_property("gl-context").is_some()
        && paintable.property::<Option<gdk::GLContext>>("gl-context").is_some();
    by_gl && shared && !is_software(widget)
}

/// Whether GL is emulated: then uploading and converting by it costs more than it saves.
fn is_software(widget: &impl IsA<gtk::Widget>) -> bool {
    let _ = widget;
    glib::getenv("LIBGL_ALWAYS_SOFTWARE").is_some_and(|value| value == "1")
}

/// The sink behind a filter for formats without alpha: those are drawn by every renderer without a shader.
fn plain(sink: &gst::Element) -> Result<gst::Element, VideoViewError> {
    const FAILED: VideoViewError = VideoViewError("the core elements of GStreamer are not there");
    let bin = gst::Bin::new();
    let filter = gst::ElementFactory::make("capsfilter")
        .property(
            "caps",
            gst_video::VideoCapsBuilder::new()
                .format_list([gst_video::VideoFormat::Rgb, gst_video::VideoFormat::Bgr])
                .build(),
        )
        .build()
        .map_err(|_| FAILED)?;
    bin.add_many([&filter, sink]).map_err(|_| FAILED)?;
    filter.link(sink).map_err(|_| FAILED)?;
    let target = filter.static_pad("sink").ok_or(FAILED)?;
    let pad = gst::GhostPad::with_target(&target).map_err(|_| FAILED)?;
    bin.add_pad(&pad).map_err(|_| FAILED)?;
    Ok(bin.upcast())
}
