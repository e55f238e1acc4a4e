//! `netbox proxy token new ROLE`: a token for a role's clients, shown once.

use std::io::{Write, stdout};
use std::path::Path;

use netbox_config::service::TokenHash;
use netbox_config::{ServiceSettings, Source};
use netbox_proxy::service::credentials::Token;
use toml_edit::{Array, DocumentMut, Item, TableLike, Value};

use crate::cli::{PolicyArguments, TokenArguments};
use crate::learn::edit;
use crate::policy::{self, Asking, OwnFile, Refused, shown};
use crate::{FAILED, USAGE, say};

/// Makes one. The value is the exit code.
pub fn token_new(arguments: &TokenArguments) -> u8 {
    match make(arguments) {
        Ok(()) => 0,
        Err(refused) => {
            say::error(&refused, refused.hint.as_deref());
            if refused.is_usage { USAGE } else { FAILED }
        }
    }
}

fn make(arguments: &TokenArguments) -> Result<(), Refused> {
    let name = &*arguments.role;
    // What the rules come to is nobody's question here.
    let files = PolicyArguments {
        config: arguments.config.clone(),
        no_config: arguments.no_config,
        without_derived: true,
        ..PolicyArguments::default()
    };
    let effective = policy::load(&files, None, Asking::NoProject)?;
    let Some(settings) = effective.layers.settings() else {
        let refused = Refused::new("no policy file has a `[service]`");
        return Err(refused.hint(format!("write `[service.role.{name}]` in one, or name it with `--config`")));
    };
    let role = settings.role(name).ok_or_else(|| unknown(name, settings))?;
    let Source::File { path, .. } = role.source() else {
        return Err(Refused::new(format!("the role `{name}` stands in no file")));
    };
    let token = Token::random().map_err(|error| Refused::new(format!("cannot draw a token: {error}")))?;
    // The file knows it before anybody has it: a token that was shown works.
    if arguments.write {
        add(path, name, token.hash())?;
    }
    let told = writeln!(stdout(), "{}", token.reveal()).and_then(|()| stdout().flush());
    told.map_err(|error| Refused::new(format!("cannot write to stdout: {error}")))?;
    match arguments.write {
        true => say::note(format_args!(
            "added to `tokens` of `[service.role.{name}]` in {}; a running service reads it with `netbox proxy reload`",
            shown(path)
        )),
        false => say::note(format_args!(
            "this is shown once; add its hash to `tokens` of `[service.role.{name}]` ({}), and have a running service read \
             it with `netbox proxy reload`:\nnetbox: \"{}\"",
            role.source(),
            token.hash(),
        )),
    }
    Ok(())
}

fn unknown(name: &str, settings: &ServiceSettings) -> Refused {
    let known: Vec<_> = settings.roles().map(|(name, _)| format!("`{name}`")).collect();
    let hint = match known.is_empty() {
        true => format!("write its table, `[service.role.{name}]`"),
        false => format!("there are {}", known.join(", ")),
    };
    Refused::usage(format!("there is no role {}", netbox_config::quote(name.as_bytes()))).hint(hint)
}

fn add(path: &Path, role: &str, hash: TokenHash) -> Result<(), Refused> {
    let working = std::env::current_dir().map_err(|error| Refused::new(format!("no working directory: {error}")))?;
    let file = OwnFile::read(&working.join(path))?;
    let text = String::from_utf8_lossy(&file.bytes);
    let text = added(&text, role, hash).map_err(|why| {
        Refused::new(format!("{}: {why}", shown(path))).hint("leave `--write` out, and add it yourself")
    })?;
    file.replace(text.as_bytes())
}

/// The text with one token more; comments, order and form stay what they are.
fn added(text: &str, role: &str, hash: TokenHash) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|_| "it is not TOML".to_owned())?;
    let mut table: &mut dyn TableLike = document.as_table_mut();
    for name in ["service", "role", role] {
        let inner = table.get_mut(name).and_then(Item::as_table_like_mut);
        table = inner.ok_or_else(|| format!("there is no table `{name}` where it should be"))?;
    }
    let tokens = table.entry("tokens").or_insert_with(|| Item::Value(Value::Array(Array::new())));
    let tokens = tokens.as_array_mut().ok_or("its `tokens` is no list")?;
    edit::extend(tokens, &[hash.to_string()]);
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_added_and_the_rest_stays_as_it_is() {
        let hash = TokenHash::of(b"token");
        for (before, after) in [
            (
                "[service.role.ci] # c\nallow = []\n",
                format!("[service.role.ci] # c\nallow = []\ntokens = [\"{hash}\"]\n"),
            ),
            (
                "[service.role.ci]\ntokens = [\"sha256:x\"] # t\n",
                format!("[service.role.ci]\ntokens = [\"sha256:x\", \"{hash}\"] # t\n"),
            ),
            (
                "[service.role.ci]\ntokens = [\n  \"sha256:x\", # mine\n]\n",
                format!("[service.role.ci]\ntokens = [\n  \"sha256:x\", # mine\n  \"{hash}\",\n]\n"),
            ),
            (
                "[service]\nrole.ci.allow = []\nrole.dev = { allow = [] }\n",
                format!("[service]\nrole.ci.allow = []\nrole.ci.tokens = [\"{hash}\"]\nrole.dev = {{ allow = [] }}\n"),
            ),
            (
                "service = { role = { ci = { allow = [] } } }\n",
                format!("service = {{ role = {{ ci = {{ allow = [] , tokens = [\"{hash}\"] }} }} }}\n"),
            ),
        ] {
            let text = added(before, "ci", hash).expect(before);
            assert_eq!(text.replace("[] ,", "[],"), after.replace("[] ,", "[],"), "{before}");
        }
        for wrong in ["", "[service.role.dev]", "service = 1", "[service.role.ci]\ntokens = 1", "["] {
            assert!(added(wrong, "ci", hash).is_err(), "{wrong}");
        }
    }
}
