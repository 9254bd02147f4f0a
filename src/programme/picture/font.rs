//! The lettering: round strokes of one width, drawn from lines and arcs, so that it needs no font file and scales to
//! any size. Digits are tabular: all as wide as each other.

/// How strongly each pixel of a small picture is covered, 0 to 255.
#[derive(Debug, Clone)]
pub struct Mask {
    pub width: usize,
    pub height: usize,
    pub alpha: Vec<u8>,
}

impl Mask {
    /// Draws what `distance` says: the signed distance of a pixel's centre (x, y in pixels) to the shape's edge,
    /// negative inside.
    pub fn from_distance(width: usize, height: usize, distance: impl Fn(f32, f32) -> f32) -> Self {
        let mut alpha = Vec::with_capacity(width * height);
        for y in 0..height {
            for x in 0..width {
                // An edge within half a pixel of the centre covers the pixel in part.
                let covered = (0.5 - distance(x as f32 + 0.5, y as f32 + 0.5)).clamp(0.0, 1.0);
                alpha.push((covered * 255.0).round() as u8);
            }
        }
        Self { width, height, alpha }
    }
}

/// A stroke in a box one unit high and at most [`DIGIT_WIDTH`] wide; y grows downwards, angles turn clockwise from the
/// right.
#[derive(Clone, Copy)]
enum Stroke {
    Line([f32; 2], [f32; 2]),
    /// Centre, radius, and the angles between which it runs, degrees.
    Arc([f32; 2], f32, [f32; 2]),
    Dot([f32; 2]),
}

use Stroke::{Arc, Dot, Line};

/// The width of a digit's centre lines, in units of their height.
const DIGIT_WIDTH: f32 = 0.5;
/// The width of a stroke.
const STROKE: f32 = 0.125;
/// The space between two characters.
const SPACING: f32 = 0.2;
/// How much thicker than a stroke a dot is.
const DOT: f32 = 1.3;

/// The strokes of a character and the width of its centre lines. Characters that the picture does not need are blank.
fn strokes(character: char) -> (f32, &'static [Stroke]) {
    const ZERO: &[Stroke] = &[
        Arc([0.25, 0.25], 0.25, [180.0, 360.0]),
        Arc([0.25, 0.75], 0.25, [0.0, 180.0]),
        Line([0.0, 0.25], [0.0, 0.75]),
        Line([0.5, 0.25], [0.5, 0.75]),
    ];
    match character {
        '0' | 'O' => (DIGIT_WIDTH, ZERO),
        '1' => (DIGIT_WIDTH, &[Line([0.3, 0.0], [0.3, 1.0]), Line([0.3, 0.0], [0.08, 0.2])]),
        '2' => (
            DIGIT_WIDTH,
            &[Arc([0.25, 0.25], 0.25, [185.0, 396.87]), Line([0.45, 0.4], [0.0, 1.0]), Line([0.0, 1.0], [0.5, 1.0])],
        ),
        '3' => (DIGIT_WIDTH, &[Arc([0.25, 0.235], 0.235, [200.0, 450.0]), Arc([0.235, 0.735], 0.265, [270.0, 520.0])]),
        '4' => (
            DIGIT_WIDTH,
            &[Line([0.36, 0.0], [0.0, 0.7]), Line([0.0, 0.7], [0.5, 0.7]), Line([0.36, 0.0], [0.36, 1.0])],
        ),
        '5' => (
            DIGIT_WIDTH,
            &[
                Line([0.45, 0.0], [0.07, 0.0]),
                Line([0.07, 0.0], [0.022, 0.522]),
                Arc([0.22, 0.72], 0.28, [225.0, 510.0]),
            ],
        ),
        '6' => (DIGIT_WIDTH, &[Arc([0.25, 0.74], 0.26, [0.0, 360.0]), Line([0.025, 0.61], [0.377, 0.0])]),
        '7' => (DIGIT_WIDTH, &[Line([0.0, 0.0], [0.5, 0.0]), Line([0.5, 0.0], [0.16, 1.0])]),
        '8' => (DIGIT_WIDTH, &[Arc([0.25, 0.23], 0.23, [0.0, 360.0]), Arc([0.25, 0.73], 0.27, [0.0, 360.0])]),
        '9' => (DIGIT_WIDTH, &[Arc([0.25, 0.26], 0.26, [0.0, 360.0]), Line([0.475, 0.39], [0.123, 1.0])]),
        ':' => (0.0, &[Dot([0.0, 0.3]), Dot([0.0, 0.78])]),
        '.' => (0.0, &[Dot([0.0, 0.98])]),
        '-' => (0.3, &[Line([0.0, 0.52], [0.3, 0.52])]),
        'C' => (
            DIGIT_WIDTH,
            &[
                Arc([0.25, 0.25], 0.25, [180.0, 330.0]),
                Arc([0.25, 0.75], 0.25, [30.0, 180.0]),
                Line([0.0, 0.25], [0.0, 0.75]),
            ],
        ),
        'I' => (0.0, &[Line([0.0, 0.0], [0.0, 1.0])]),
        'N' => {
            (DIGIT_WIDTH, &[Line([0.0, 1.0], [0.0, 0.0]), Line([0.0, 0.0], [0.5, 1.0]), Line([0.5, 1.0], [0.5, 0.0])])
        }
        'S' => (DIGIT_WIDTH, &[Arc([0.25, 0.245], 0.245, [90.0, 330.0]), Arc([0.25, 0.745], 0.255, [270.0, 510.0])]),
        'T' => (DIGIT_WIDTH, &[Line([0.0, 0.0], [0.5, 0.0]), Line([0.25, 0.0], [0.25, 1.0])]),
        'U' => (
            DIGIT_WIDTH,
            &[Line([0.0, 0.0], [0.0, 0.75]), Arc([0.25, 0.75], 0.25, [0.0, 180.0]), Line([0.5, 0.75], [0.5, 0.0])],
        ),
        _ => (0.2, &[]),
    }
}

impl Stroke {
    /// How far a point is from the stroke's outline.
    fn distance(self, x: f32, y: f32) -> f32 {
        match self {
            Dot([cx, cy]) => (x - cx).hypot(y - cy) - 0.5 * STROKE * DOT,
            Line([ax, ay], [bx, by]) => {
                let (dx, dy) = (bx - ax, by - ay);
                let along = (((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
                (x - ax - along * dx).hypot(y - ay - along * dy) - 0.5 * STROKE
            }
            Arc([cx, cy], radius, [from, to]) => {
                let angle = (y - cy).atan2(x - cx).to_degrees();
                let centre_line = if (angle - from).rem_euclid(360.0) <= to - from {
                    ((x - cx).hypot(y - cy) - radius).abs()
                } else {
                    let end = |degrees: f32| {
                        let (sin, cos) = degrees.to_radians().sin_cos();
                        (x - cx - radius * cos).hypot(y - cy - radius * sin)
                    };
                    end(from).min(end(to))
                };
                centre_line - 0.5 * STROKE
            }
        }
    }
}

/// From the start of a character to the start of the next, in pixels, at a height of `height` pixels.
pub fn advance(character: char, height: f32) -> f32 {
    (strokes(character).0 + STROKE + SPACING) * height / (1.0 + STROKE)
}

/// Draws a character `height` pixels high.
pub fn draw(character: char, height: f32) -> Mask {
    let (width, strokes) = strokes(character);
    let scale = height / (1.0 + STROKE);
    // A margin on both sides for the bowls that are a little wider than the box, and for the soft edge.
    let margin = SPACING / 2.0;
    let pixels = |units: f32| (units * scale).ceil() as usize;
    Mask::from_distance(pixels(width + STROKE + 2.0 * margin), pixels(1.0 + STROKE) + 2, |x, y| {
        let (x, y) = (x / scale - margin - 0.5 * STROKE, (y - 1.0) / scale - 0.5 * STROKE);
        strokes.iter().map(|stroke| stroke.distance(x, y)).fold(f32::MAX, f32::min) * scale
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_character_has_ink_within_its_box_and_digits_are_tabular() {
        for character in "0123456789:.-UNISOTC".chars() {
            let mask = draw(character, 90.0);
            assert_eq!(mask.alpha.len(), mask.width * mask.height);
            let ink = mask.alpha.iter().map(|alpha| f32::from(*alpha) / 255.0).sum::<f32>();
            assert!(ink > 100.0, "{character}: {ink}");
            // Nothing is cut off at the sides.
            let edge =
                (0..mask.height).any(|y| mask.alpha[y * mask.width] > 0 || mask.alpha[(y + 1) * mask.width - 1] > 0);
            assert!(!edge, "{character} touches its edge");
        }
        let widths: Vec<f32> = ('0'..='9').map(|digit| advance(digit, 90.0)).collect();
        assert!(widths.iter().all(|width| *width == widths[0]), "{widths:?}");
    }

    #[test]
    fn all_digits_differ_clearly() {
        let masks: Vec<Mask> = ('0'..='9').map(|digit| draw(digit, 60.0)).collect();
        for (i, one) in masks.iter().enumerate() {
            for other in &masks[..i] {
                let differing = one.alpha.iter().zip(&other.alpha).filter(|(a, b)| a.abs_diff(**b) > 128).count();
                assert!(differing > 60, "{differing} pixels differ");
            }
        }
    }
}
