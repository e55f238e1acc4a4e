//! The tests, by theme.

mod reach;

use crate::Test;

/// All tests.
pub fn all() -> impl Iterator<Item = &'static Test> {
    [reach::TESTS].into_iter().flatten()
}
