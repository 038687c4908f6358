//! The options of the ROUTER socket: bounded queues, keep-alive, and encryption if there are keys.

use polymeter_proto::key::KeyPair;
use zmq::{Context, Socket};

use crate::limits;

/// Creates the socket. With `keys` it accepts encrypted connections only.
pub(crate) fn make(context: &Context, keys: Option<&KeyPair>) -> zmq::Result<Socket> {
    let socket = context.socket(zmq::ROUTER)?;
    socket.set_rcvhwm(limits::SOCKET_MESSAGES_IN)?;
    socket.set_sndhwm(limits::SOCKET_MESSAGES_OUT)?;
    socket.set_backlog(limits::BACKLOG)?;
    socket.set_maxmsgsize(i64::try_from(polymeter_proto::limits::FRAME_BYTES).unwrap_or(i64::MAX))?;
    socket.set_linger(limits::LINGER_MS)?;
    let (idle_s, interval_s, probes) = polymeter_proto::limits::KEEPALIVE;
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_idle(idle_s)?;
    socket.set_tcp_keepalive_intvl(interval_s)?;
    socket.set_tcp_keepalive_cnt(probes)?;
    socket.set_ipv6(true)?;
    if let Some(keys) = keys {
        socket.set_curve_server(true)?;
        socket.set_curve_secretkey(keys.secret.as_bytes())?;
    }
    Ok(socket)
}
