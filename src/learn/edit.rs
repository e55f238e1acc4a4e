//! Adds rules to the text of a policy file: comments, order and form stay what they are.

use toml_edit::{Array, DocumentMut, Formatted, Item, Table, Value};

/// What a new file begins with. Lines short enough that none is folded where they are shown.
const HEADER: &str = "\
# The hosts that commands in this project may reach, and no others.
# Written by `netbox learn`; yours to change.
# A host alone means its ports 443 and 80.

";

/// How far a new line is indented.
const INDENT: &str = "\n    ";

/// The text with these rules added to the allow list, of this profile if one is named.
///
/// # Errors
/// The text is not TOML, or has something else than a list there, in words.
pub fn add(text: &str, profile: Option<&str>, rules: &[String]) -> Result<String, String> {
    let is_new = text.trim().is_empty();
    let mut document: DocumentMut = text.parse().map_err(|_| "it is not TOML".to_owned())?;
    let table = match profile {
        None => document.as_table_mut(),
        Some(name) => {
            let profiles = table_in(document.as_table_mut(), "profile", true)?;
            table_in(profiles, name, false)?
        }
    };
    let allow = table.entry("allow").or_insert_with(|| Item::Value(Value::Array(Array::new())));
    let allow = allow.as_array_mut().ok_or("its `allow` is no list")?;
    extend(allow, rules);
    let text = document.to_string();
    Ok(if is_new { format!("{HEADER}{}\n", text.trim()) } else { text })
}

/// A table in a table, which is made where it is missing.
fn table_in<'t>(table: &'t mut Table, name: &str, is_implicit: bool) -> Result<&'t mut Table, String> {
    let made = || {
        let mut table = Table::new();
        table.set_implicit(is_implicit);
        Item::Table(table)
    };
    table
        .entry(name)
        .or_insert_with(made)
        .as_table_mut()
        .ok_or(format!("its `{name}` is written in a form that netbox does not add to"))
}

/// Adds the rules behind the others, a line each where the list has lines or they are more than one.
pub fn extend(list: &mut Array, rules: &[String]) {
    let has_lines = |text: Option<&str>| text.is_some_and(|text| text.contains('\n'));
    let indent = list.iter().filter_map(|value| value.decor().prefix()?.as_str()).find(|prefix| prefix.contains('\n'));
    // The white space before an entry, without a comment that may stand there too.
    let indent = indent.and_then(|prefix| Some(format!("\n{}", prefix.rsplit_once('\n')?.1)));
    let is_long = list.is_empty() && rules.len() > 1;
    let by_line = indent.is_some() || has_lines(list.trailing().as_str()) || is_long;
    let indent = indent.unwrap_or_else(|| INDENT.to_owned());
    let mut before = match list.trailing().as_str() {
        // A comment behind the last entry belongs to it, and what comes next begins its line below.
        Some(trailing) if by_line && trailing.contains('#') => trailing.trim_end().to_owned(),
        _ => String::new(),
    };
    // So does one that stands behind an entry without a comma.
    if let Some(last) = list.iter_mut().last() {
        let suffix = last.decor().suffix().and_then(|suffix| suffix.as_str()).unwrap_or_default().to_owned();
        before.insert_str(0, suffix.trim_end());
        last.decor_mut().set_suffix("");
    }
    let is_first = list.is_empty();
    for (number, rule) in rules.iter().enumerate() {
        let mut value = Formatted::new(rule.clone());
        let prefix = match (by_line, is_first && number == 0) {
            (true, _) => std::mem::take(&mut before) + &indent,
            (false, true) => String::new(),
            (false, false) => " ".to_owned(),
        };
        value.decor_mut().set_prefix(prefix);
        list.push_formatted(Value::String(value));
    }
    if by_line {
        list.set_trailing("\n");
        list.set_trailing_comma(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::diff;

    fn added(text: &str, profile: Option<&str>, rules: &[&str]) -> String {
        let rules: Vec<_> = rules.iter().map(|rule| (*rule).to_owned()).collect();
        add(text, profile, &rules).expect("can be added to")
    }

    #[test]
    fn a_new_file_has_a_line_for_each_rule() {
        let text = added("", None, &["a.example.com", "b.example.com:22"]);
        assert_eq!(text, format!("{HEADER}allow = [\n    \"a.example.com\",\n    \"b.example.com:22\",\n]\n"));
        let text = added("\n", None, &["a.example.com"]);
        assert_eq!(text, format!("{HEADER}allow = [\"a.example.com\"]\n"));
        let shown = diff::changes("", &text).to_string();
        assert_eq!(shown.lines().count(), 1 + text.lines().count(), "none is folded: {shown}");
    }

    #[test]
    fn what_is_there_stays_as_it_is() {
        for (before, after) in [
            ("allow = [\"a\"]\n", "allow = [\"a\", \"x\", \"y\"]\n"),
            ("allow = []  # none yet\n", "allow = [\n    \"x\",\n    \"y\",\n]  # none yet\n"),
            (
                "# top\nallow = [\n  # first\n  \"a\", # one\n  \"b\",\n]\nmode = \"allowlist\"\n",
                "# top\nallow = [\n  # first\n  \"a\", # one\n  \"b\",\n  \"x\",\n  \"y\",\n]\nmode = \"allowlist\"\n",
            ),
            (
                "allow = [\n    \"a\", # one\n    \"b\" # two\n    # end\n]\n",
                "allow = [\n    \"a\", # one\n    \"b\", # two\n    # end\n    \"x\",\n    \"y\",\n]\n",
            ),
            ("allow = [\n    \"a\", # one\n]\n", "allow = [\n    \"a\", # one\n    \"x\",\n    \"y\",\n]\n"),
            (
                "deny = [\"z\"] # never\n\n[profile.ci] # c\nmode = \"none\"\n",
                "deny = [\"z\"] # never\nallow = [\n    \"x\",\n    \"y\",\n]\n\n[profile.ci] # c\nmode = \"none\"\n",
            ),
        ] {
            assert_eq!(added(before, None, &["x", "y"]), after, "{before}");
        }
    }

    #[test]
    fn a_profile_has_a_list_of_its_own() {
        assert_eq!(
            added("allow = [\"a\"]\n\n[profile.ci]\nallow = [\"b\"]\n", Some("ci"), &["x"]),
            "allow = [\"a\"]\n\n[profile.ci]\nallow = [\"b\", \"x\"]\n"
        );
        assert_eq!(
            added("allow = [\"a\"]\n", Some("ci"), &["x"]),
            "allow = [\"a\"]\n\n[profile.ci]\nallow = [\"x\"]\n"
        );
        assert!(add("profile = { ci = {} }\n", Some("ci"), &["x".into()]).is_err());
        assert!(add("allow = 1\n", None, &["x".into()]).is_err());
        assert!(add("allow = [", None, &["x".into()]).is_err());
    }
}
