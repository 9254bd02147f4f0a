//! One stream to one device (or to the default device), at one rate.

use super::callback::{Callback, RendererHome};
use super::connection::{Note, Notes};
use super::heard::PathLatency;
use super::shared::Shared;
use crate::audio::output::{MAX_CHANNELS, OutputError};
use crate::published::published;
use pipewire::{self as pw, core::CoreRc, spa};
use pw::stream::{StreamFlags, StreamListener, StreamRc};
use spa::param::audio::{AudioFormat, AudioInfoRaw};
use std::sync::Arc;

/// Where and how to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StreamConfig {
    /// The sink's name; `None` for wherever the session manager puts us: the default device.
    pub target: Option<String>,
    /// Hz.
    pub rate: u32,
    pub channels: u32,
    /// What mixers show.
    pub name: String,
}

/// A stream that plays. Closed when dropped; the renderer is at home again then.
pub(super) struct OpenStream {
    process: Option<StreamListener<Callback>>,
    control: Option<StreamListener<()>>,
    stream: StreamRc,
    shared: Arc<Shared>,
    /// Marks its notes: those of a stream that was closed still wait in the queue.
    pub number: u64,
    pub config: StreamConfig,
}

impl OpenStream {
    pub fn open(
        core: &CoreRc,
        number: u64,
        config: StreamConfig,
        home: &RendererHome,
        shared: &Arc<Shared>,
        notes: &Notes,
    ) -> Result<Self, OutputError> {
        let failed = |error: pw::Error| OutputError::Unreachable(error.to_string());
        if config.name.contains('\0') || config.target.as_ref().is_some_and(|target| target.contains('\0')) {
            return Err(OutputError::Name(config.name));
        }
        let mut properties = pw::properties::PropertiesBox::new();
        properties.insert(*pw::keys::MEDIA_TYPE, "Audio");
        properties.insert(*pw::keys::MEDIA_CATEGORY, "Playback");
        properties.insert(*pw::keys::MEDIA_NAME, config.name.as_str());
        properties.insert(*pw::keys::NODE_NAME, "unisono");
        if let Some(target) = &config.target {
            properties.insert("target.object", target.as_str());
            // A room that was told its device never plays out of another one. (The second is WirePlumber 0.5's; on
            // 0.4 the first says both.)
            properties.insert("node.dont-reconnect", "true");
            properties.insert("node.dont-fallback", "true");
        }
        let stream = StreamRc::new(core.clone(), &config.name, properties).map_err(failed)?;

        let (mut publisher, latency) = published(PathLatency::default());
        let (io, state_notes, latency_notes) = (shared.clone(), notes.clone(), notes.clone());
        // Two listeners: what the real-time thread owns is never touched by the callbacks of this thread.
        let control = stream
            .add_local_listener_with_user_data(())
            .state_changed(move |_, (), _, state| state_notes.borrow_mut().push_back(Note::Stream(number, state)))
            .param_changed(move |_, (), id, param| {
                if id == spa::sys::SPA_PARAM_Latency
                    && let Some(param) = param
                    && let Some(path) = PathLatency::parse(param, spa::sys::SPA_DIRECTION_INPUT)
                {
                    publisher.publish(path);
                    latency_notes.borrow_mut().push_back(Note::Latency(number, path));
                }
            })
            .io_changed(move |_, (), id, area, size| {
                if id == spa::sys::SPA_IO_Position {
                    let whole = size as usize >= size_of::<spa::sys::spa_io_position>();
                    let area = if whole { area.cast() } else { std::ptr::null_mut() };
                    // SAFETY: PipeWire tells of the next area, or of none, before it unmaps this one; and
                    // `OpenStream::drop` takes it away before the stream is destroyed.
                    unsafe { io.position.set(area) };
                }
            })
            .register()
            .map_err(failed)?;
        let process = stream
            .add_local_listener_with_user_data(Callback::new(home, shared, latency, config.channels, config.rate))
            .process(|stream, callback| callback.process(stream))
            .register()
            .map_err(failed)?;
        // From here on a failure closes what there is.
        let open =
            Self { process: Some(process), control: Some(control), stream, shared: shared.clone(), number, config };

        let format = format_pod(open.config.rate, open.config.channels)?;
        let pod = spa::pod::Pod::from_bytes(&format)
            .ok_or_else(|| OutputError::Library("the format does not fit into a POD".into()))?;
        open.stream
            .connect(
                spa::utils::Direction::Output,
                None,
                // RT_PROCESS: called in the cycle itself. Without it the block is heard one quantum later.
                StreamFlags::AUTOCONNECT | StreamFlags::MAP_BUFFERS | StreamFlags::RT_PROCESS,
                &mut [pod],
            )
            .map_err(failed)?;
        Ok(open)
    }

    /// The number of the stream's node in the graph.
    pub fn node(&self) -> u32 {
        self.stream.node_id()
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        // Takes the node off the real-time thread and waits for that: afterwards no callback runs.
        if let Err(error) = self.stream.disconnect() {
            tracing::debug!(%error, "cannot disconnect the stream");
        }
        drop(self.process.take());
        drop(self.control.take());
        // SAFETY: null is always valid.
        unsafe { self.shared.position.set(std::ptr::null_mut()) };
    }
}

/// Interleaved f32 in the host's byte order.
pub(crate) fn format_pod(rate: u32, channels: u32) -> Result<Vec<u8>, OutputError> {
    if channels == 0 || channels > MAX_CHANNELS {
        return Err(OutputError::Channels(channels));
    }
    let mut info = AudioInfoRaw::new();
    info.set_format(if cfg!(target_endian = "big") { AudioFormat::F32BE } else { AudioFormat::F32LE });
    info.set_rate(rate);
    info.set_channels(channels);
    let mut positions = [spa::sys::SPA_AUDIO_CHANNEL_UNKNOWN; spa::sys::SPA_AUDIO_MAX_CHANNELS as usize];
    for (position, name) in positions.iter_mut().zip(channel_positions(channels)) {
        *position = *name;
    }
    info.set_position(positions);
    let object = spa::pod::Value::Object(spa::pod::Object {
        type_: spa::sys::SPA_TYPE_OBJECT_Format,
        id: spa::sys::SPA_PARAM_EnumFormat,
        properties: info.into(),
    });
    let bytes = spa::pod::serialize::PodSerializer::serialize(std::io::Cursor::new(Vec::new()), &object)
        .map_err(|error| OutputError::Library(error.to_string()))?;
    Ok(bytes.0.into_inner())
}

/// Which loudspeaker each channel is for: the order of WAVE files, for 1 to 8 channels.
fn channel_positions(channels: u32) -> &'static [u32] {
    use spa::sys::{
        SPA_AUDIO_CHANNEL_FC as FC, SPA_AUDIO_CHANNEL_FL as FL, SPA_AUDIO_CHANNEL_FR as FR,
        SPA_AUDIO_CHANNEL_LFE as LFE, SPA_AUDIO_CHANNEL_MONO as MONO, SPA_AUDIO_CHANNEL_RC as RC,
        SPA_AUDIO_CHANNEL_RL as RL, SPA_AUDIO_CHANNEL_RR as RR, SPA_AUDIO_CHANNEL_SL as SL, SPA_AUDIO_CHANNEL_SR as SR,
    };
    match channels {
        1 => &[MONO],
        2 => &[FL, FR],
        3 => &[FL, FR, FC],
        4 => &[FL, FR, RL, RR],
        5 => &[FL, FR, FC, RL, RR],
        6 => &[FL, FR, FC, LFE, RL, RR],
        7 => &[FL, FR, FC, LFE, RC, SL, SR],
        _ => &[FL, FR, FC, LFE, RL, RR, SL, SR],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_channels_has_its_loudspeakers() {
        for channels in 1..=MAX_CHANNELS {
            assert_eq!(channel_positions(channels).len(), channels as usize);
            assert!(format_pod(48_000, channels).is_ok());
        }
        assert_eq!(format_pod(48_000, 0), Err(OutputError::Channels(0)));
        assert_eq!(format_pod(48_000, 9), Err(OutputError::Channels(9)));
    }
}
