//! The capture time of a frame, written into the frame so that a program can read it.
//!
//! The bottom of the picture is one row of [`CELLS`] cells, white for 1 and black for 0, from left to right, the most
//! significant bit of each field first:
//!
//! | cells | meaning |
//! |---|---|
//! | 0, 1 | white, black: marks the start |
//! | 2 … 53 | capture time on the shared clock in whole µs (rounded down) since the NTP epoch, 52 bits |
//! | 54 … 61 | CRC-8 (polynomial x⁸+x²+x+1, start value 0, not reflected) of the seven bytes of `time << 4` |
//! | 62, 63 | black, white: marks the end |
//!
//! Cell `i` of a picture `w` wide reaches from column `i·w/64` to before `(i+1)·w/64`; the row is `h/30` high, at
//! least [`HEIGHT_MIN`]. A cell that any codec has smeared at its border still reads well in its middle.

/// How many cells the row has.
pub const CELLS: usize = 64;
/// The row is never lower than this, in pixels.
pub const HEIGHT_MIN: usize = 8;
/// The width of the time, bits: enough until 2042.
const TIME_BITS: usize = 52;
/// Luma above this is white: half way between black (16) and white (235).
const THRESHOLD: u32 = 126;

/// The height of the row in a picture `height` high, pixels; even, so that the chroma planes can follow.
pub fn row_height(height: usize) -> usize {
    (height / 30).max(HEIGHT_MIN).next_multiple_of(2).min(height)
}

/// The columns of a cell in a picture `width` wide.
pub fn columns(cell: usize, width: usize) -> std::ops::Range<usize> {
    cell * width / CELLS..(cell + 1) * width / CELLS
}

/// The cells for a capture time in µs since the NTP epoch.
pub fn encode(time_us: u64) -> [bool; CELLS] {
    let time = time_us & ((1 << TIME_BITS) - 1);
    let word = (1 << 63) | (time << 10) | (u64::from(crc8(time)) << 2) | 1;
    std::array::from_fn(|cell| word >> (CELLS - 1 - cell) & 1 == 1)
}

/// The capture time in µs since the NTP epoch, if the cells hold one.
pub fn decode(cells: &[bool; CELLS]) -> Option<u64> {
    let word = cells.iter().fold(0u64, |word, cell| word << 1 | u64::from(*cell));
    let time = word >> 10 & ((1 << TIME_BITS) - 1);
    let whole = word >> 62 == 0b10 && word & 0b11 == 0b01 && (word >> 2 & 0xff) as u8 == crc8(time);
    whole.then_some(time)
}

/// Reads the capture time from the luma plane (8 bits) of a decoded frame: µs since the NTP epoch. `None` when the
/// picture does not hold one, e.g. because it was scaled or damaged.
pub fn read(luma: &[u8], stride: usize, width: usize, height: usize) -> Option<u64> {
    let row = row_height(height);
    if width < 3 * CELLS || stride < width || luma.len() < (height.checked_sub(1)?) * stride + width {
        return None;
    }
    // The middle third of each cell, both ways.
    let lines = height - row + row / 3..height - row + (2 * row / 3).max(row / 3 + 1);
    let cells = std::array::from_fn(|cell| {
        let columns = columns(cell, width);
        let third = columns.len() / 3;
        let columns = columns.start + third..columns.end - third;
        let (mut sum, mut count) = (0u32, 0u32);
        for line in lines.clone() {
            for pixel in &luma[line * stride..][columns.clone()] {
                sum += u32::from(*pixel);
                count += 1;
            }
        }
        sum > THRESHOLD * count
    });
    decode(&cells)
}

fn crc8(time: u64) -> u8 {
    let bytes = (time << 4).to_be_bytes();
    bytes[1..].iter().fold(0u8, |crc, byte| {
        (0..8).fold(crc ^ byte, |crc, _| if crc & 0x80 != 0 { crc << 1 ^ 0x07 } else { crc << 1 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn reads_what_was_written(time in 0u64..1 << TIME_BITS) {
            prop_assert_eq!(decode(&encode(time)), Some(time));
        }

        #[test]
        fn a_cell_read_wrong_is_noticed(time in 0u64..1 << TIME_BITS, cell in 0..CELLS) {
            let mut cells = encode(time);
            cells[cell] = !cells[cell];
            prop_assert_eq!(decode(&cells), None);
        }

        #[test]
        fn any_plane_is_safe_to_read(luma in prop::collection::vec(any::<u8>(), 0..4000), stride in 0usize..300, width in 0usize..300, height in 0usize..30) {
            let _ = read(&luma, stride, width, height);
        }
    }

    #[test]
    fn the_check_is_the_usual_crc_8() {
        // The check value of CRC-8/SMBUS for "123456789" is 0xF4; seven bytes of it by the same rule, computed bit by
        // bit in another way: the remainder of the polynomial division.
        let time = 0x3_1323_3343_5363; // "123456" and half a byte
        let mut remainder = u128::from(time) << 12;
        for bit in (8..72).rev() {
            if remainder >> bit & 1 == 1 {
                remainder ^= 0x107u128 << (bit - 8);
            }
        }
        assert_eq!(u128::from(crc8(time)), remainder);
    }
}
