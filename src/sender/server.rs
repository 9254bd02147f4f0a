//! The RTSP server: where it listens and what it serves.

use super::SendError;
use super::factory::{Factory, Setup};
use gst::glib;
use gst_rtsp_server::prelude::*;
use gstreamer_rtsp_server as gst_rtsp_server;
use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// All requests are served by the main context (packets have threads of their own). With threads for requests, a room
/// that asks for a media in the moment in which another takes it down, as its last room left, is refused by
/// gst-rtsp-server; even one thread is not one, as it ends with its last client and a new one begins.
const CLIENT_THREADS: i32 = 0;
/// How often sessions and connections are looked through for those whose receiver has vanished.
const CLEANUP: Duration = Duration::from_secs(2);
/// Ports for multicast, two for each stream.
const MULTICAST_PORTS: std::ops::RangeInclusive<u16> = 15_000..=15_063;
/// Multicast stays in the local network.
const MULTICAST_TTL: u8 = 1;

/// A server that listens, on the main context of the calling thread.
pub struct Server {
    server: gst_rtsp_server::RTSPServer,
    source: Option<glib::SourceId>,
    cleanup: Option<glib::SourceId>,
    address: SocketAddr,
}

impl Server {
    /// Listens on `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// [`SendError::CannotListen`] says why and what to do.
    pub fn listen(address: SocketAddr, mounts: Vec<(String, Setup)>) -> Result<Self, SendError> {
        // Tried by hand first, as the server's own error does not say what is wrong.
        TcpListener::bind(address).map_err(|error| cannot_listen(address, &error))?;
        let server = gst_rtsp_server::RTSPServer::new();
        server.set_address(&address.ip().to_string());
        server.set_service(&address.port().to_string());
        if let Some(pool) = server.thread_pool() {
            pool.set_max_threads(CLIENT_THREADS);
        }
        let points = gst_rtsp_server::RTSPMountPoints::new();
        for (index, (path, setup)) in mounts.into_iter().enumerate() {
            let factory = Factory::new(setup);
            factory.set_address_pool(Some(&multicast_pool(index)));
            points.add_factory(&path, factory);
        }
        server.set_mount_points(Some(&points));
        let source =
            server.attach(None).map_err(|error| SendError::CannotListen { address, reason: error.to_string() })?;
        let clients = Arc::new(Clients::default());
        let (pool, kept) = (server.session_pool(), clients.clone());
        let cleanup = glib::timeout_add(CLEANUP, move || {
            if let Some(pool) = &pool {
                pool.cleanup();
            }
            kept.drop_finished();
            glib::ControlFlow::Continue
        });
        server.connect_client_connected(move |_, client| {
            tracing::info!("a receiver connects");
            client.connect_closed(|_| tracing::info!("a receiver is gone"));
            clients.keep(client);
        });
        let port = u16::try_from(server.bound_port()).unwrap_or(address.port());
        Ok(Self {
            server,
            source: Some(source),
            cleanup: Some(cleanup),
            address: SocketAddr::new(reachable(address.ip()), port),
        })
    }

    /// Where receivers find it: the bound address, or one of this host's if it listens on all.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Closes all connections and stops to listen. The media stop as the main context goes on.
    pub fn close(&mut self) {
        if let Some(source) = self.source.take() {
            source.remove();
        }
        if let Some(cleanup) = self.cleanup.take() {
            cleanup.remove();
        }
        self.server.client_filter(Some(&mut |_, _| gst_rtsp_server::RTSPFilterResult::Remove));
    }
}

/// Keeps clients a little longer than the library does: when sending over TCP fails, gst-rtsp-server closes the client
/// later in the main context (an idle source that holds no reference), and the client may have been freed
/// by then.
#[derive(Default)]
struct Clients(Mutex<Vec<Kept>>);

struct Kept {
    client: gst_rtsp_server::RTSPClient,
    /// Whether nobody else wanted it at the last look.
    finished: bool,
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, client: &gst_rtsp_server::RTSPClient) {
        self.lock().push(Kept { client: client.clone(), finished: false });
    }

    /// Drops those that nobody else has wanted for a whole interval.
    fn drop_finished(&self) {
        let mut finished = Vec::new();
        self.lock().retain_mut(|kept| {
            let unwanted = kept.client.ref_count() == 1;
            if kept.finished && unwanted {
                finished.push(kept.client.clone());
            }
            !std::mem::replace(&mut kept.finished, unwanted) || !unwanted
        });
        // Not under the lock: a media may be taken down with its last client.
        drop(finished);
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> SendError {
    let reason = match error.kind() {
        ErrorKind::AddrInUse => "the port is taken: choose another with --port, or 0 for a free one".to_owned(),
        ErrorKind::AddrNotAvailable => "this host does not have that address: check --address".to_owned(),
        ErrorKind::PermissionDenied => "ports below 1024 need privileges: choose another with --port".to_owned(),
        _ => error.to_string(),
    };
    SendError::CannotListen { address, reason }
}

/// An address that others can use for one that we listen on.
fn reachable(address: IpAddr) -> IpAddr {
    if !address.is_unspecified() {
        return address;
    }
    // No packet is sent: connecting a UDP socket only chooses a route (192.0.2.0/24 and 2001:db8::/32 are for
    // documentation, RFC 5737 and RFC 3849).
    let probe = if address.is_ipv4() { "192.0.2.1:9" } else { "[2001:db8::1]:9" };
    UdpSocket::bind((address, 0)).and_then(|socket| socket.connect(probe).and_then(|()| socket.local_addr())).map_or(
        if address.is_ipv4() { IpAddr::from([127, 0, 0, 1]) } else { IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1]) },
        |local| local.ip(),
    )
}

/// Addresses of the organisation's own range (RFC 2365) for a mount; the last byte but one depends on the process, so
/// that two senders in one network rarely meet.
fn multicast_pool(mount: usize) -> gst_rtsp_server::RTSPAddressPool {
    let pool = gst_rtsp_server::RTSPAddressPool::new();
    let (process, mount) = (std::process::id() % 254 + 1, mount % 63 * 4);
    let address = |last: usize| format!("239.255.{process}.{last}");
    let ports = (*MULTICAST_PORTS.start(), *MULTICAST_PORTS.end());
    if pool.add_range(&address(mount + 1), &address(mount + 3), ports.0, ports.1, MULTICAST_TTL).is_err() {
        tracing::warn!("there is no multicast");
    }
    pool
}
