//! `--publish`: the listeners on this machine, opened before anything runs.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;

use netbox_config::Port;
use netbox_launcher::SocketMaker;
use netbox_proxy::Published;

use crate::cli::PublishArgument;
use crate::say::{self, Voice};

/// A port of the sandbox's, and where it is found here: on 127.0.0.1, and on ::1 where that is free.
#[derive(Debug)]
pub struct Door {
    pub listeners: Vec<TcpListener>,
    pub port: u16,
    pub sandbox_port: Port,
}

/// Opens them, and says which port the system chose where it was asked to.
///
/// # Errors
/// One line that names the port, and what to do.
pub fn open(published: &[PublishArgument], voice: Voice) -> Result<Vec<Door>, (String, Option<String>)> {
    published.iter().map(|argument| open_one(argument, voice)).collect()
}

fn open_one(argument: &PublishArgument, voice: Voice) -> Result<Door, (String, Option<String>)> {
    let wanted = argument.port.map_or(0, Port::get);
    let failed = |error: io::Error| {
        (format!("`--publish {}`: cannot listen on 127.0.0.1:{wanted}: {error}", argument.text), hint(&error, argument))
    };
    let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, wanted)).map_err(failed)?;
    let port = v4.local_addr().map_err(failed)?.port();
    let mut listeners = vec![v4];
    match TcpListener::bind((Ipv6Addr::LOCALHOST, port)) {
        Ok(v6) => listeners.push(v6),
        Err(error) => voice.detail(format_args!("`--publish {}`: not on [::1]:{port}: {error}", argument.text)),
    }
    if argument.port.is_none() {
        say::note(format_args!("published 127.0.0.1:{port}, which is port {} inside", argument.sandbox_port));
    }
    Ok(Door { listeners, port, sandbox_port: argument.sandbox_port })
}

fn hint(error: &io::Error, argument: &PublishArgument) -> Option<String> {
    let inside = argument.sandbox_port;
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).ok();
            let free = free.map(|free| format!("port {} is free: `--publish {0}:{inside}`; or ", free.port()));
            Some(format!("{}let the system choose one: `--publish 0:{inside}`", free.unwrap_or_default()))
        }
        io::ErrorKind::PermissionDenied => {
            Some(format!("ports below 1024 are root's here: take another, as in `--publish 8080:{inside}`"))
        }
        _ => None,
    }
}

/// The addresses here. They are netbox's own, and no connection of the sandbox's may lead to them.
pub fn addresses(doors: &[Door]) -> Vec<SocketAddr> {
    let listeners = doors.iter().flat_map(|door| &door.listeners);
    listeners.filter_map(|listener| listener.local_addr().ok()).collect()
}

/// What the proxy accepts on.
pub fn listeners(doors: Vec<Door>, sockets: SocketMaker) -> Vec<(TcpListener, Published)> {
    let make_socket: Arc<netbox_proxy::MakeSocket> = Arc::new(move |ipv6| sockets.tcp(ipv6));
    let listeners = doors.into_iter().flat_map(|door| {
        let published = Published { port: door.sandbox_port, make_socket: Arc::clone(&make_socket) };
        door.listeners.into_iter().map(move |listener| (listener, published.clone()))
    });
    listeners.collect()
}
