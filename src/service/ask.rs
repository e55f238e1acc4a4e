//! What is asked of a running service, over its control socket.

use std::env;
use std::fs;
use std::io::{IsTerminal, Write, stdout};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netbox_launcher::peer;
use netbox_proxy::service::channel::{Receiver, Sender};
use netbox_proxy::service::frames::encode;
use netbox_proxy::service::status::Status;
use netbox_proxy::service::wire::{Hello, LONGEST_ATTACH, Told, VERSION, What};
use tokio::runtime;
use tokio::time::timeout;

use super::table;
use crate::cli::{AskArguments, StatusArguments};
use crate::via::{self, Call, NotCarried};
use crate::{FAILED, USAGE, say};

/// Where a service of the system's listens.
const OF_THE_SYSTEM: &str = "/run/netbox/control.sock";

/// How long an answer may take. A reload may ask tools, which take their time.
const DEADLINE: Duration = Duration::from_secs(60);

/// Clears a terminal, and goes to its top.
const CLEAR: &str = "\x1b[H\x1b[2J\x1b[3J";

/// Tells how the service is. The value is the exit code.
pub fn status(arguments: &StatusArguments) -> u8 {
    let what = if arguments.watch { What::Watch } else { What::Status };
    let is_live = arguments.watch && !arguments.json && stdout().is_terminal();
    ask(&arguments.ask, what, |told| match told {
        Told::Status(status) => {
            let text = if arguments.json { json(&status) } else { table::text(&status) };
            let clear = if is_live { CLEAR } else { "" };
            // Whoever reads no more has seen enough.
            let written = write!(stdout(), "{clear}{text}").and_then(|()| stdout().flush());
            Ok(if written.is_ok() && arguments.watch { Next::More } else { Next::Done })
        }
        _ => Err("it answers something else than it was asked".to_owned()),
    })
}

/// Has the service read its files anew. The value is the exit code.
pub fn reload(arguments: &AskArguments) -> u8 {
    ask(arguments, What::Reload, done)
}

/// Has the service end, when what is open has finished. The value is the exit code.
pub fn drain(arguments: &AskArguments) -> u8 {
    ask(arguments, What::Drain, done)
}

/// What follows on an answer.
enum Next {
    More,
    Done,
}

fn done(told: Told) -> Result<Next, String> {
    match told {
        Told::Done { text } => {
            say::note(netbox_config::escaped(text.as_bytes()));
            Ok(Next::Done)
        }
        _ => Err("it answers something else than it was asked".to_owned()),
    }
}

fn ask(arguments: &AskArguments, what: What, hear: impl FnMut(Told) -> Result<Next, String>) -> u8 {
    let fail = |code, text: &str, hint: Option<&str>| {
        say::error(text, hint);
        code
    };
    let path = match via::path(arguments.via.as_ref()) {
        Ok(path) => path.unwrap_or_else(usual),
        Err(why) => return fail(USAGE, &why, None),
    };
    let runtime = match runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(FAILED, &format!("cannot ask: {error}"), None),
    };
    match runtime.block_on(converse(&path, what, hear)) {
        Ok(()) => 0,
        Err(NotCarried { text, hint, .. }) => fail(FAILED, &text, hint.as_deref()),
    }
}

async fn converse(
    path: &Path,
    what: What,
    mut hear: impl FnMut(Told) -> Result<Next, String>,
) -> Result<(), NotCarried> {
    let (mut receiver, sender): (Receiver, Sender) = Call::place(path)?.open()?;
    let gone = |why: String| NotCarried::new(format!("the service does not answer: {why}"));
    let namespace = peer::own_user_namespace().map_err(|error| NotCarried::new(format!("cannot ask: {error}")))?;
    let hello = encode(&Hello { v: VERSION, what });
    sender.send_with(&hello, &[namespace.as_fd()]).await.map_err(|error| gone(error.to_string()))?;
    loop {
        let frame = timeout(DEADLINE, receiver.receive(LONGEST_ATTACH)).await;
        let frame = frame.map_err(|_| gone("it takes too long".into()))?.map_err(|error| gone(error.to_string()))?;
        let Some(frame) = frame else { return Err(gone("it has ended".into())) };
        match frame.read::<Told>().map_err(|error| gone(error.to_string()))? {
            Told::Refused(refused) => return Err(refused.into()),
            told => match hear(told).map_err(gone)? {
                Next::More => {}
                Next::Done => return Ok(()),
            },
        }
    }
}

/// Where a service listens, if nothing else is said.
fn usual() -> PathBuf {
    let own = env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty());
    let own = own.map(|folder| Path::new(&folder).join("netbox/control.sock"));
    own.filter(|path| fs::symlink_metadata(path).is_ok()).unwrap_or_else(|| PathBuf::from(OF_THE_SYSTEM))
}

/// As one line.
fn json(status: &Status) -> String {
    // Strings and numbers always have a form in JSON.
    serde_json::to_string(status).map(|text| text + "\n").unwrap_or_default()
}
