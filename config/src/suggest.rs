//! "Did you mean": the known word that is nearest to an unknown one.

/// Longer words are not compared: nobody mistypes a word like that, and comparing takes time.
const LONGEST: usize = 64;

/// The nearest of the known words, if one is near enough to be what was meant.
pub(crate) fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let word = word.to_lowercase();
    let measured = known.into_iter().map(|known| (strsim::osa_distance(&word, known), known));
    measured.filter(|(distance, known)| *distance <= known.len().div_ceil(3)).min().map(|(_, known)| known)
}

/// The hint that goes with [`nearest`].
pub(crate) fn did_you_mean(word: &str) -> String {
    format!("did you mean `{word}`?")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_suggested_and_what_is_not_is_not() {
        let known = ["allow", "deny", "mode", "ceiling", "profile", "preset"];
        for (word, expected) in [
            ("alow", Some("allow")),
            ("Allow", Some("allow")),
            ("allwo", Some("allow")),
            ("allows", Some("allow")),
            ("presets", Some("preset")),
            ("ceilling", Some("ceiling")),
            ("hosts", None),
            ("", None),
            (&"allow".repeat(20), None),
        ] {
            assert_eq!(nearest(word, known), expected, "{word}");
        }
    }
}
