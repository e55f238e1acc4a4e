//! The proof that one policy allows nothing that another refuses.

use crate::compiled::Compiled;

impl Compiled {
    /// Whether it is proved that this policy allows nothing which `outer` refuses. Where that is not plain to see, it is
    /// not proved.
    pub fn narrows(&self, _outer: &Compiled) -> bool {
        false
    }
}
