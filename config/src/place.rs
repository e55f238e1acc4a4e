//! From byte offsets of a text to lines and columns, in constant time each: a file may be one long line of rules.

/// How many bytes apart the places are whose character count is kept.
const STEP: usize = 128;

/// The lines and characters of a text.
#[derive(Debug)]
pub(crate) struct Places<'a> {
    text: &'a [u8],
    /// Where each line starts.
    lines: Vec<usize>,
    /// How many characters start before each multiple of [`STEP`].
    characters: Vec<usize>,
}

impl<'a> Places<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let text = text.as_bytes();
        let mut lines = vec![0];
        lines.extend(text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1));
        let mut characters = vec![0];
        let mut count = 0;
        for step in text.chunks(STEP) {
            count += starts(step);
            characters.push(count);
        }
        Self { text, lines, characters }
    }

    /// The line and the column, in characters, of a byte offset; both from 1. An offset beyond the text is its end.
    pub(crate) fn of(&self, offset: usize) -> (usize, usize) {
        let offset = offset.min(self.text.len());
        // The first line starts at 0, so there is one that starts no later.
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let start = self.lines[line - 1];
        let before = match offset - start {
            0..STEP => starts(&self.text[start..offset]),
            _ => self.characters_before(offset) - self.characters_before(start),
        };
        (line, before + 1)
    }

    fn characters_before(&self, offset: usize) -> usize {
        let step = offset / STEP;
        self.characters[step] + starts(&self.text[step * STEP..offset])
    }
}

/// How many characters start in these bytes of UTF-8.
fn starts(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_offset_has_the_line_and_column_that_counting_gives() {
        let line = "é".repeat(300);
        for text in ["", "a", "\n", "a\nb", "é\né\r\nx\n", &format!("a\n{line}\n{line}z"), &"x".repeat(STEP * 2)] {
            let places = Places::new(text);
            for (offset, _) in text.char_indices().chain([(text.len(), '\0')]) {
                let before = &text[..offset];
                let start = before.rfind('\n').map_or(0, |at| at + 1);
                let expected = (before.matches('\n').count() + 1, before[start..].chars().count() + 1);
                assert_eq!(places.of(offset), expected, "{offset} of {text:?}");
            }
            assert_eq!(places.of(usize::MAX), places.of(text.len()));
        }
    }
}
