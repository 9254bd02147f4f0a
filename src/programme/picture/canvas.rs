//! A picture in memory, as video frames have it: full luma, and two planes of colour at half the size (I420).

use super::font::Mask;

/// A colour in limited-range BT.709, as HD video is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Colour {
    pub y: u8,
    pub u: u8,
    pub v: u8,
}

impl Colour {
    /// From red, green and blue.
    pub const fn rgb(r: u8, g: u8, b: u8) -> Self {
        let (r, g, b) = (r as f32 / 255.0, g as f32 / 255.0, b as f32 / 255.0);
        let luma = 0.2126 * r + 0.7152 * g + 0.0722 * b;
        Self {
            y: (16.5 + 219.0 * luma) as u8,
            u: (128.5 + 224.0 * (b - luma) / 1.8556) as u8,
            v: (128.5 + 224.0 * (r - luma) / 1.5748) as u8,
        }
    }
}

/// One plane of a frame.
pub struct Plane<'a> {
    pub data: &'a mut [u8],
    /// From one line to the next, bytes.
    pub stride: usize,
}

/// A frame to paint on. Shapes are clipped at its edges; positions are rounded to even pixels.
pub struct Canvas<'a> {
    pub width: usize,
    pub height: usize,
    /// Luma, blue and red difference.
    pub planes: [Plane<'a>; 3],
}

impl Canvas<'_> {
    /// Whether the planes are as large as width and height say.
    pub fn is_whole(&self) -> bool {
        self.planes.iter().enumerate().all(|(index, plane)| {
            let (width, height) = plane_size(self.width, self.height, index);
            plane.stride >= width && height > 0 && plane.data.len() >= (height - 1) * plane.stride + width
        })
    }

    /// Paints a rectangle.
    pub fn rectangle(&mut self, x: usize, y: usize, width: usize, height: usize, colour: Colour) {
        let values = [colour.y, colour.u, colour.v];
        for (index, (plane, value)) in self.planes.iter_mut().zip(values).enumerate() {
            let half = usize::from(index > 0);
            let (plane_width, plane_height) = plane_size(self.width, self.height, index);
            let columns = (x >> half).min(plane_width)..((x + width) >> half).min(plane_width);
            for line in (y >> half).min(plane_height)..((y + height) >> half).min(plane_height) {
                plane.data[line * plane.stride..][columns.clone()].fill(value);
            }
        }
    }

    /// Paints `colour` through a mask whose top left corner is at (x, y).
    pub fn stamp(&mut self, mask: &Mask, x: usize, y: usize, colour: Colour) {
        let (x, y) = (x & !1, y & !1);
        let (width, height) =
            (mask.width.min(self.width.saturating_sub(x)), mask.height.min(self.height.saturating_sub(y)));
        let luma = &mut self.planes[0];
        for line in 0..height {
            let alphas = &mask.alpha[line * mask.width..][..width];
            blend_line(&mut luma.data[(y + line) * luma.stride + x..][..width], alphas, colour.y);
        }
        for (plane, value) in self.planes[1..].iter_mut().zip([colour.u, colour.v]) {
            for line in 0..height / 2 {
                let pixels = &mut plane.data[(y / 2 + line) * plane.stride + x / 2..][..width / 2];
                for (column, pixel) in pixels.iter_mut().enumerate() {
                    let alpha =
                        |dx: usize, dy: usize| u16::from(mask.alpha[(2 * line + dy) * mask.width + 2 * column + dx]);
                    let mean = (alpha(0, 0) + alpha(1, 0) + alpha(0, 1) + alpha(1, 1)) / 4;
                    if mean > 0 {
                        *pixel = blend(*pixel, value, mean as u8);
                    }
                }
            }
        }
    }
}

/// The width and height of a plane: the colour planes have half of each, rounded up.
pub fn plane_size(width: usize, height: usize, plane: usize) -> (usize, usize) {
    if plane == 0 { (width, height) } else { (width.div_ceil(2), height.div_ceil(2)) }
}

fn blend_line(pixels: &mut [u8], alphas: &[u8], value: u8) {
    for (pixel, alpha) in pixels.iter_mut().zip(alphas) {
        match alpha {
            0 => {}
            255 => *pixel = value,
            _ => *pixel = blend(*pixel, value, *alpha),
        }
    }
}

fn blend(below: u8, above: u8, alpha: u8) -> u8 {
    let (below, above, alpha) = (u32::from(below), u32::from(above), u32::from(alpha));
    ((below * (255 - alpha) + above * alpha + 127) / 255) as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_corners_of_the_colour_space() {
        assert_eq!(Colour::rgb(0, 0, 0), Colour { y: 16, u: 128, v: 128 });
        assert_eq!(Colour::rgb(255, 255, 255), Colour { y: 235, u: 128, v: 128 });
        assert_eq!(Colour::rgb(255, 0, 0).v, 240);
        assert_eq!(Colour::rgb(0, 0, 255).u, 240);
    }

    #[test]
    fn shapes_are_clipped() {
        let (mut y, mut u, mut v) = (vec![0; 16 * 10], vec![0; 8 * 5], vec![0; 8 * 5]);
        let planes =
            [Plane { data: &mut y, stride: 16 }, Plane { data: &mut u, stride: 8 }, Plane { data: &mut v, stride: 8 }];
        let mut canvas = Canvas { width: 16, height: 10, planes };
        assert!(canvas.is_whole());
        let mask = Mask { width: 5, height: 5, alpha: vec![255; 25] };
        canvas.stamp(&mask, 14, 8, Colour::rgb(255, 255, 255));
        canvas.stamp(&mask, 100, 100, Colour::rgb(255, 255, 255));
        canvas.rectangle(0, 0, 2, 100, Colour::rgb(255, 255, 255));
        canvas.rectangle(90, 90, 2, 100, Colour::rgb(255, 255, 255));
        assert_eq!(y.iter().filter(|pixel| **pixel == 235).count(), 4 + 20);
        assert_eq!(u.iter().filter(|pixel| **pixel == 128).count(), 1 + 5);
    }
}
