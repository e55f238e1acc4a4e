//! What a program has done to the screen and would undo at its end, if it came to that.
//!
//! A full-screen program switches to the alternate screen, hides the cursor, asks for the mouse. One that is killed leaves
//! all that on. What it has switched on passes through here, so that exactly that can be switched off, and nothing is
//! written where nothing was left.
//!
//! Read are the control sequences of ECMA-48 that begin with `ESC [`, for the modes of DEC's terminals and xterm
//! (DECSET, "CSI ? Pm h", and its like), and the keypad's `ESC =`.

use std::collections::BTreeSet;

/// Modes that are off on a terminal nobody has changed, and disturb what comes after.
const OFF: [u16; 18] =
    [1, 9, 47, 66, 1000, 1001, 1002, 1003, 1004, 1005, 1006, 1015, 1016, 1047, 1049, 2004, 2026, 2031];
/// Modes that are on: line wrapping and the cursor.
const ON: [u16; 2] = [7, 25];
/// Longer sequences are none that matter here.
const MAX_PARAMETERS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Screen {
    state: State,
    parameters: Vec<u8>,
    /// Private modes that are not what they usually are.
    changed: BTreeSet<u16>,
    keypad: bool,
    margins: bool,
    style: bool,
    /// xterm's modifyOtherKeys.
    keys: bool,
    /// Levels of the keyboard protocol that have been pushed (`CSI > flags u`).
    keyboard: usize,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    Escape,
    Sequence,
}

impl Screen {
    /// Takes notice of what a program writes.
    pub(super) fn see(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.state = match (&self.state, byte) {
                (_, 0x1b) => State::Escape,
                (State::Text, _) => State::Text,
                (State::Escape, b'[') => {
                    self.parameters.clear();
                    State::Sequence
                }
                (State::Escape, b'=' | b'>') => {
                    self.keypad = byte == b'=';
                    State::Text
                }
                (State::Escape, b'c') => {
                    *self = Self::default();
                    State::Text
                }
                (State::Escape, _) => State::Text,
                (State::Sequence, b' '..=b'?') if self.parameters.len() < MAX_PARAMETERS => {
                    self.parameters.push(byte);
                    State::Sequence
                }
                (State::Sequence, b'@'..=b'~') => {
                    self.end_sequence(byte);
                    State::Text
                }
                // Control characters act in the middle of a sequence, without ending it, but for CAN and SUB.
                (State::Sequence, 0x18 | 0x1a) => State::Text,
                (State::Sequence, 0..b' ') => State::Sequence,
                (State::Sequence, _) => State::Text,
            }
        }
    }

    fn end_sequence(&mut self, last: u8) {
        let parameters = std::mem::take(&mut self.parameters);
        let numbers = |text: &[u8]| -> Vec<u16> {
            let text = String::from_utf8_lossy(text).into_owned();
            text.split(';').map(|number| number.parse().unwrap_or(0)).collect()
        };
        match (parameters.as_slice(), last) {
            ([b'?', modes @ ..], b'h' | b'l') => {
                for mode in numbers(modes) {
                    let is_unusual = (OFF.contains(&mode) && last == b'h') || (ON.contains(&mode) && last == b'l');
                    if is_unusual {
                        self.changed.insert(mode);
                    } else {
                        self.changed.remove(&mode);
                    }
                }
            }
            ([b'>', keys @ ..], b'm') if keys.starts_with(b"4") => {
                self.keys = numbers(keys).get(1).is_some_and(|level| *level > 0);
            }
            ([b'>', ..], b'u') => self.keyboard = self.keyboard.saturating_add(1),
            ([b'<', count @ ..], b'u') => {
                let count = numbers(count).first().map_or(1, |count| usize::from(*count).max(1));
                self.keyboard = self.keyboard.saturating_sub(count);
            }
            ([] | [b'0'..=b'9' | b';', ..], b'm') => {
                self.style = numbers(&parameters).last().is_some_and(|style| *style != 0);
            }
            ([] | [b'0'..=b'9' | b';', ..], b'r') => {
                self.margins = numbers(&parameters).iter().any(|line| *line > 1);
            }
            // A soft reset.
            ([b'!'], b'p') => *self = Self { changed: std::mem::take(&mut self.changed), ..Self::default() },
            _ => {}
        }
    }

    /// What makes the screen usual again. Empty where it is.
    pub(super) fn restoration(&self) -> Vec<u8> {
        let mut text = String::new();
        // The alternate screen has levels of its own, so before it is left.
        for _ in 0..self.keyboard.min(9) {
            text.push_str("\x1b[<u");
        }
        for mode in &self.changed {
            let end = if ON.contains(mode) { 'h' } else { 'l' };
            text.push_str(&format!("\x1b[?{mode}{end}"));
        }
        let others = [
            (self.keys, "\x1b[>4m"),
            (self.keypad, "\x1b>"),
            (self.style, "\x1b[0m"),
            // It moves the cursor as well.
            (self.margins, "\x1b7\x1b[r\x1b8"),
        ];
        text.extend(others.into_iter().filter(|(is_set, _)| *is_set).map(|(_, sequence)| sequence));
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left(written: &str) -> String {
        let mut screen = Screen::default();
        screen.see(written.as_bytes());
        let whole = screen.restoration();
        // However the bytes come.
        let mut screen = Screen::default();
        written.bytes().for_each(|byte| screen.see(&[byte]));
        assert_eq!(screen.restoration(), whole);
        String::from_utf8(whole).unwrap()
    }

    #[test]
    fn what_was_switched_on_is_switched_off() {
        assert_eq!(left("\x1b[?1049h\x1b[?25l\x1b[?2004h"), "\x1b[?25h\x1b[?1049l\x1b[?2004l");
        assert_eq!(left("\x1b[?1000;1006h"), "\x1b[?1000l\x1b[?1006l");
        assert_eq!(left("\x1b[1;20r"), "\x1b7\x1b[r\x1b8");
        assert_eq!(left("\x1b[31mred"), "\x1b[0m");
        assert_eq!(left("\x1b[>1u\x1b[>5u\x1b[<u"), "\x1b[<u");
        assert_eq!(left("\x1b[>4;2m\x1b="), "\x1b[>4m\x1b>");
    }

    #[test]
    fn what_a_program_has_undone_itself_is_left_alone() {
        for tidy in [
            "",
            "hello\r\n",
            "\x1b[?1049h\x1b[?25lscreen\x1b[?25h\x1b[?1049l",
            "\x1b[1;31mred\x1b[0m",
            "\x1b[31mred\x1b[m",
            "\x1b[1;20r\x1b[r",
            "\x1b[?2004h\x1bc",
            "\x1b[>4;2m\x1b[>4;0m",
            "\x1b[2J\x1b[H\x1b[10;20H\x1b]0;title\x07\x1b(B",
        ] {
            assert_eq!(left(tidy), "", "{tidy:?}");
        }
    }

    #[test]
    fn bytes_that_mean_nothing_are_harmless() {
        assert_eq!(left("\x1b[?99999999999h\x1b[?h\x1b[;;;m\x1b[?25;l\x1b[\x1b[\u{fffd}"), "\x1b[?25h");
        assert_eq!(left(&format!("\x1b[{}h", "?1049;".repeat(100))), "");
    }
}
