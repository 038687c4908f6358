//! The ROUTER socket, before it is bound: every queue bounded, and encrypted where there are keys.

use polymeter_proto::key::KeyPair;
use zmq::{Context, Socket};

use crate::limits;

/// Makes the socket. With `keys` it takes encrypted connections, and no others.
pub(crate) fn make(context: &Context, keys: Option<&KeyPair>) -> zmq::Result<Socket> {
    let socket = context.socket(zmq::ROUTER)?;
    socket.set_rcvhwm(limits::SOCKET_MESSAGES_IN)?;
    socket.set_sndhwm(limits::SOCKET_MESSAGES_OUT)?;
    socket.set_backlog(limits::BACKLOG)?;
    socket.set_maxmsgsize(i64::try_from(polymeter_proto::limits::FRAME_BYTES).unwrap_or(i64::MAX))?;
    socket.set_linger(limits::LINGER_MS)?;
    // The kernel's signs of life, not ZeroMQ's: those cost a walk over all connections' timers for each answer.
    let (idle_s, again_s, times) = limits::KEEPALIVE;
    socket.set_tcp_keepalive(1)?;
    socket.set_tcp_keepalive_idle(idle_s)?;
    socket.set_tcp_keepalive_intvl(again_s)?;
    socket.set_tcp_keepalive_cnt(times)?;
    socket.set_ipv6(true)?;
    if let Some(keys) = keys {
        socket.set_curve_server(true)?;
        socket.set_curve_secretkey(keys.secret.as_bytes())?;
    }
    Ok(socket)
}
