//! A text with its place, so that whatever is read in it can say where it stands.

use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;

use crate::derived::{Fault, Misread};
use crate::source::Source;

/// The text of one file.
#[derive(Debug)]
pub struct Page<'a> {
    path: Arc<Path>,
    text: &'a str,
    /// The last place that was asked for: offset and line. Places come in order, so that the text is counted through once.
    last: Cell<(usize, usize)>,
}

impl<'a> Page<'a> {
    /// The text of the file that is shown as `path`. A byte-order mark at its beginning is dropped.
    pub fn new(path: &Path, text: &'a str) -> Self {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        Self { path: path.into(), text, last: Cell::new((0, 1)) }
    }

    /// The text.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// The place of the line in which this byte is.
    pub(crate) fn source(&self, offset: usize) -> Source {
        let offset = offset.min(self.text.len());
        let (from, line) = match self.last.get() {
            last if last.0 <= offset => last,
            _ => (0, 1),
        };
        let line = line + self.text.as_bytes()[from..offset].iter().filter(|byte| **byte == b'\n').count();
        self.last.set((offset, line));
        Source::Line { path: Arc::clone(&self.path), line }
    }

    /// The error of this place.
    pub(crate) fn misread(&self, offset: usize, fault: Fault) -> Misread {
        Misread { place: self.source(offset), fault }
    }

    /// The lines without their ends (`\n`, `\r\n`), each with the offset of its first byte.
    pub(crate) fn lines(&self) -> impl Iterator<Item = (usize, &'a str)> {
        let mut at = 0;
        self.text.split_inclusive('\n').map(move |line| {
            let start = at;
            at += line.len();
            let line = line.strip_suffix('\n').unwrap_or(line);
            (start, line.strip_suffix('\r').unwrap_or(line))
        })
    }

    /// Where a part of the text begins in it.
    pub(crate) fn offset_of(&self, part: &str) -> usize {
        // Addresses, not contents: every caller hands a slice of the text itself.
        (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize)
    }
}
