//! The picture of the test programme: the sender's clock, large enough to be read across a room, as a pure function of
//! the capture time.
//!
//! ```text
//! ┌──────────────────────────────────────┐
//! │ UNISONO                          UTC │
//! │            2026-11-30                │  date and time of capture of this very frame, UTC
//! │         12:34:56.789                 │
//! │  ● ● ● ● ● ● ○ ○ ○ ○                 │  one lamp for each second of the sound's period
//! │  ─────────────●────────────────────  │  a dot that crosses the picture once a second: a freeze is seen
//! │ ████████████████████████████████████ │  a bar that flashes for FLASH_NS from each whole second on
//! │ ▌▐ ▌▌ ▐▐▌ ▐  ▐▌ ▌▐ ▐▌▌▐  ▌▐ ▐ ▌▐ ▐ ▌ │  the capture time for programs, see [`cells`]
//! └──────────────────────────────────────┘
//! ```

mod canvas;
pub mod cells;
pub mod font;

pub use canvas::{Canvas, Colour, Plane, plane_size};

use super::PERIOD_S;
use crate::clock::{NtpTime, ntp_to_unix_ns};
use font::Mask;
use std::collections::HashMap;

/// The smallest picture: the cells of the bottom row are then five pixels wide.
pub const WIDTH_MIN: u32 = 320;
/// The smallest picture.
pub const HEIGHT_MIN: u32 = 180;
/// The largest picture either way: what the usual encoders take.
pub const SIZE_MAX: u32 = 4_096;
/// How long the bar flashes from each whole second on: two frames at 25 a second.
pub const FLASH_NS: u64 = 80_000_000;

const SECOND_NS: u64 = 1_000_000_000;

const BACKGROUND_TOP: Colour = Colour::rgb(22, 32, 52);
const BACKGROUND_BOTTOM: Colour = Colour::rgb(10, 15, 26);
const TEXT: Colour = Colour::rgb(240, 244, 250);
const QUIET_TEXT: Colour = Colour::rgb(128, 148, 180);
const TRACK: Colour = Colour::rgb(44, 60, 90);
const ACCENT: Colour = Colour::rgb(255, 184, 77);
const FLASH: Colour = Colour::rgb(255, 250, 236);
const BLACK: Colour = Colour::rgb(0, 0, 0);
const WHITE: Colour = Colour::rgb(255, 255, 255);

/// Where things are, in pixels.
#[derive(Debug, Clone, Copy)]
struct Layout {
    width: usize,
    height: usize,
    /// The height of the lettering.
    time: f32,
    date: f32,
    label: f32,
    /// The top edges.
    label_y: usize,
    date_y: usize,
    time_y: usize,
    lamps_y: usize,
    track_y: usize,
    bar_y: usize,
    cells_y: usize,
    /// The left edge of label, lamps and track.
    margin: usize,
    lamp: usize,
    dot: usize,
    track: usize,
    bar: usize,
}

impl Layout {
    fn new(width: usize, height: usize) -> Self {
        // Designed on 1280 × 720 and scaled by the tighter side.
        let unit = (width as f32 / 1280.0).min(height as f32 / 720.0);
        let size = |pixels: f32| ((pixels * unit) as usize).max(2) & !1;
        let down = |fraction: f32| (height as f32 * fraction) as usize & !1;
        Self {
            width,
            height,
            time: 150.0 * unit,
            date: 56.0 * unit,
            label: 30.0 * unit,
            label_y: down(0.07),
            date_y: down(0.20),
            time_y: down(0.34),
            lamps_y: down(0.645),
            track_y: down(0.735),
            bar_y: down(0.80),
            cells_y: (height - cells::row_height(height)) & !1,
            margin: (width as f32 * 0.07) as usize & !1,
            lamp: size(20.0),
            dot: size(36.0),
            track: size(6.0),
            bar: down(0.13),
        }
    }
}

/// Paints frames of one size. Everything that does not change is drawn once.
pub struct Painter {
    layout: Layout,
    background: [Vec<u8>; 3],
    /// The characters of the time and of the date.
    time_glyphs: HashMap<char, Mask>,
    date_glyphs: HashMap<char, Mask>,
    lamp: Mask,
    dot: Mask,
}

/// Why a size has no picture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "no picture of {width}x{height}: give an even width and height from {WIDTH_MIN}x{HEIGHT_MIN} to {SIZE_MAX}x{SIZE_MAX}"
)]
pub struct UnsupportedSize {
    width: u32,
    height: u32,
}

/// Whether there is a picture of this size, in pixels.
///
/// # Errors
/// [`UnsupportedSize`] unless both are even and within [`WIDTH_MIN`], [`HEIGHT_MIN`] and [`SIZE_MAX`].
pub fn check_size(width: u32, height: u32) -> Result<(), UnsupportedSize> {
    let fits = (WIDTH_MIN..=SIZE_MAX).contains(&width) && (HEIGHT_MIN..=SIZE_MAX).contains(&height);
    if fits && width.is_multiple_of(2) && height.is_multiple_of(2) {
        Ok(())
    } else {
        Err(UnsupportedSize { width, height })
    }
}

impl Painter {
    /// Draws all that does not change.
    ///
    /// # Errors
    /// [`UnsupportedSize`], see [`check_size`].
    pub fn new(width: u32, height: u32) -> Result<Self, UnsupportedSize> {
        check_size(width, height)?;
        let layout = Layout::new(width as usize, height as usize);
        let glyphs = |characters: &str, height: f32| {
            characters.chars().map(|character| (character, font::draw(character, height))).collect()
        };
        let disc = |size: usize| {
            let radius = size as f32 / 2.0;
            Mask::from_distance(size, size, |x, y| (x - radius).hypot(y - radius) - radius + 0.5)
        };
        let mut painter = Self {
            layout,
            background: [0, 1, 2].map(|plane| {
                let (width, height) = plane_size(layout.width, layout.height, plane);
                vec![0; width * height]
            }),
            time_glyphs: glyphs("0123456789:.", layout.time),
            date_glyphs: glyphs("0123456789-", layout.date),
            lamp: disc(layout.lamp),
            dot: disc(layout.dot),
        };
        painter.paint_background();
        Ok(painter)
    }

    fn paint_background(&mut self) {
        let layout = self.layout;
        let mut planes = std::mem::take(&mut self.background);
        let [y, u, v] = &mut planes;
        let half = plane_size(layout.width, layout.height, 1).0;
        let mut canvas = Canvas {
            width: layout.width,
            height: layout.height,
            planes: [
                Plane { data: y, stride: layout.width },
                Plane { data: u, stride: half },
                Plane { data: v, stride: half },
            ],
        };
        for line in (0..layout.height).step_by(2) {
            let mix = |top: u8, bottom: u8| {
                let down = line as f32 / layout.height as f32;
                (f32::from(top) * (1.0 - down) + f32::from(bottom) * down).round() as u8
            };
            let colour = Colour {
                y: mix(BACKGROUND_TOP.y, BACKGROUND_BOTTOM.y),
                u: mix(BACKGROUND_TOP.u, BACKGROUND_BOTTOM.u),
                v: mix(BACKGROUND_TOP.v, BACKGROUND_BOTTOM.v),
            };
            canvas.rectangle(0, line, layout.width, 2, colour);
        }
        let draw = |canvas: &mut Canvas, text: &str, left: f32| {
            let mut x = left;
            for character in text.chars() {
                canvas.stamp(&font::draw(character, layout.label), x as usize, layout.label_y, QUIET_TEXT);
                x += font::advance(character, layout.label);
            }
        };
        let width = |text: &str| text.chars().map(|character| font::advance(character, layout.label)).sum::<f32>();
        draw(&mut canvas, "UNISONO", layout.margin as f32);
        draw(&mut canvas, "UTC", (layout.width - layout.margin) as f32 - width("UTC"));
        let track_width = layout.width - 2 * layout.margin;
        canvas.rectangle(layout.margin, layout.track_y - layout.track / 2, track_width, layout.track, TRACK);
        canvas.rectangle(0, layout.bar_y, layout.width, layout.bar, TRACK);
        self.background = planes;
    }

    /// Paints the frame that was captured at `time` (shared clock, ns since the NTP epoch). A canvas of another size
    /// than the painter's, or with planes too small for it, is left alone.
    pub fn paint(&self, canvas: &mut Canvas, time: NtpTime) {
        let layout = &self.layout;
        if (canvas.width, canvas.height) != (layout.width, layout.height) || !canvas.is_whole() {
            return;
        }
        for (index, (plane, background)) in canvas.planes.iter_mut().zip(&self.background).enumerate() {
            let (width, height) = plane_size(layout.width, layout.height, index);
            let lines = plane.data.chunks_mut(plane.stride).take(height);
            lines
                .zip(background.chunks(width))
                .for_each(|(line, background)| line[..width].copy_from_slice(background));
        }
        let (date, clock) = civil(ntp_to_unix_ns(time));
        line_of_text(canvas, &self.date_glyphs, &date, layout.date, layout.date_y, QUIET_TEXT);
        line_of_text(canvas, &self.time_glyphs, &clock, layout.time, layout.time_y, TEXT);

        let in_second = time % SECOND_NS;
        let track_width = layout.width - 2 * layout.margin;
        for lamp in 0..PERIOD_S as usize {
            let lit = lamp as u64 == time / SECOND_NS % PERIOD_S;
            let x = layout.margin + (2 * lamp + 1) * track_width / (2 * PERIOD_S as usize) - layout.lamp / 2;
            canvas.stamp(&self.lamp, x, layout.lamps_y, if lit { ACCENT } else { TRACK });
        }
        let x = layout.margin
            + (u128::from(in_second) * (track_width - layout.dot) as u128 / u128::from(SECOND_NS)) as usize;
        canvas.stamp(&self.dot, x, layout.track_y - layout.dot / 2, ACCENT);
        if in_second < FLASH_NS {
            canvas.rectangle(0, layout.bar_y, layout.width, layout.bar, FLASH);
        }
        canvas.rectangle(0, layout.cells_y, layout.width, layout.height - layout.cells_y, BLACK);
        for (cell, white) in cells::encode(time / 1_000).into_iter().enumerate() {
            let columns = cells::columns(cell, layout.width);
            if white {
                canvas.rectangle(columns.start, layout.cells_y, columns.len(), layout.height - layout.cells_y, WHITE);
            }
        }
    }
}

/// A line of text, centred.
fn line_of_text(canvas: &mut Canvas, glyphs: &HashMap<char, Mask>, text: &str, height: f32, y: usize, colour: Colour) {
    let width: f32 = text.chars().map(|character| font::advance(character, height)).sum();
    let mut x = (canvas.width as f32 - width) / 2.0;
    for character in text.chars() {
        if let Some(mask) = glyphs.get(&character) {
            canvas.stamp(mask, x.max(0.0) as usize, y, colour);
        }
        x += font::advance(character, height);
    }
}

/// Date (`2026-11-30`) and time (`12:34:56.789`) in UTC of ns since the Unix epoch; ms are rounded down, as clocks do.
fn civil(unix_ns: i64) -> (String, String) {
    let ms = unix_ns.div_euclid(1_000_000);
    let (days, of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    // Days to a date in the Gregorian calendar: eras of 400 years, years that begin in March.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (seconds, ms) = (of_day / 1_000, of_day % 1_000);
    (
        format!("{year:04}-{month:02}-{day:02}"),
        format!("{:02}:{:02}:{:02}.{ms:03}", seconds / 3_600, seconds / 60 % 60, seconds % 60),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::unix_to_ntp_ns;

    struct Picture {
        width: usize,
        height: usize,
        planes: [Vec<u8>; 3],
    }

    fn picture(width: u32, height: u32, time: NtpTime) -> Picture {
        let (width, height) = (width as usize, height as usize);
        let mut planes = [0, 1, 2].map(|plane| {
            let (width, height) = plane_size(width, height, plane);
            vec![7; (width + 6) * height]
        });
        let [y, u, v] = &mut planes;
        let plane = |index, data| Plane { data, stride: plane_size(width, height, index).0 + 6 };
        let mut canvas = Canvas { width, height, planes: [plane(0, y), plane(1, u), plane(2, v)] };
        Painter::new(width as u32, height as u32).unwrap().paint(&mut canvas, time);
        Picture { width, height, planes }
    }

    fn at(unix_ms: i64) -> NtpTime {
        unix_to_ntp_ns(unix_ms * 1_000_000).unwrap()
    }

    #[test]
    fn every_size_carries_its_time_for_programs() {
        for (width, height) in [(320, 180), (640, 480), (1280, 720), (1000, 1400), (1920, 1080), (322, 400)] {
            let time = at(1_780_000_000_123) + 456_789;
            let picture = picture(width, height, time);
            let read = cells::read(&picture.planes[0], picture.width + 6, picture.width, picture.height);
            assert_eq!(read, Some(time / 1_000), "{width}x{height}");
        }
    }

    #[test]
    fn flashes_from_the_whole_second_on_and_always_moves() {
        let bar = |time| {
            let picture = picture(640, 360, time);
            f64::from(picture.planes[0][(360 * 86 / 100) * 646 + 100])
        };
        assert!(bar(at(1_780_000_000_000)) > 200.0 && bar(at(1_780_000_000_079)) > 200.0);
        assert!(bar(at(1_779_999_999_999)) < 100.0 && bar(at(1_780_000_000_080)) < 100.0);
        // Without the cells and the milliseconds too: the dot moves by more than a pixel in 1/60 s.
        let track = |time| {
            let picture = picture(640, 360, time);
            picture.planes[0][360 * 71 / 100 * 646..360 * 77 / 100 * 646].to_vec()
        };
        assert_ne!(track(at(1_780_000_000_500)), track(at(1_780_000_000_517)));
    }

    #[test]
    fn dates_and_times() {
        for (unix_ns, date, clock) in [
            (0, "1970-01-01", "00:00:00.000"),
            (-1, "1969-12-31", "23:59:59.999"),
            (951_782_400_000_000_000, "2000-02-29", "00:00:00.000"),
            (1_709_251_199_999_999_999, "2024-02-29", "23:59:59.999"),
            (4_107_542_400_000_000_000, "2100-03-01", "00:00:00.000"),
            (1_785_412_496_789_000_000, "2026-07-30", "11:54:56.789"),
        ] {
            assert_eq!(civil(unix_ns), (date.to_owned(), clock.to_owned()), "{unix_ns}");
        }
    }

    #[test]
    fn bad_sizes_are_refused_and_a_foreign_canvas_left_alone() {
        for (width, height) in [(0, 0), (319, 180), (1281, 720), (1280, 721), (8_192, 720)] {
            assert!(Painter::new(width, height).is_err(), "{width}x{height}");
        }
        let (mut y, mut u, mut v) = (vec![7; 320], vec![7; 10], vec![7; 10]);
        let planes = [&mut y, &mut u, &mut v].map(|data| Plane { data, stride: 320 });
        let mut canvas = Canvas { width: 320, height: 180, planes };
        Painter::new(320, 180).unwrap().paint(&mut canvas, 0);
        assert!(y.iter().all(|pixel| *pixel == 7));
    }
}
