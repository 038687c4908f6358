//! Authorised keys, and the user ids of connections that use them.

use std::fmt::Write;
use std::sync::{Arc, PoisonError, RwLock};

use polymeter_proto::key::PublicKey;
use polymeter_proto::series::Identifier;

use super::key_directory::NodesByKey;

#[derive(Debug)]
pub(crate) struct AuthorisedKeys {
    /// Secret prefix of user ids.
    token: String,
    nodes: RwLock<Arc<NodesByKey>>,
    bind_node_to_key: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AuthenticatedAgent {
    /// Only node whose data it may send; none if it may send data of any node.
    pub(crate) node: Option<Arc<Identifier>>,
}

impl AuthorisedKeys {
    pub(super) fn new(bind_node_to_key: bool) -> std::io::Result<Self> {
        let mut secret = [0_u8; 16];
        rustix::rand::getrandom(&mut secret, rustix::rand::GetRandomFlags::empty())?;
        let mut token = String::new();
        for byte in secret {
            // Writing to a string cannot fail.
            write!(token, "{byte:02x}").ok();
        }
        Ok(Self { token, nodes: RwLock::default(), bind_node_to_key })
    }

    /// Agent with this user id in its messages, if its key is currently authorised.
    pub(crate) fn authenticate(&self, user_id: Option<&str>) -> Option<AuthenticatedAgent> {
        let key = user_id?.strip_prefix(&self.token)?.parse().ok()?;
        let node = self.node(&key)?;
        Some(AuthenticatedAgent { node: self.bind_node_to_key.then_some(node) })
    }

    /// Node that `key` is named after, if it is authorised.
    pub(super) fn node(&self, key: &PublicKey) -> Option<Arc<Identifier>> {
        self.nodes.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    pub(super) fn user_id(&self, key: &PublicKey) -> String {
        format!("{}{key}", self.token)
    }

    pub(super) fn replace(&self, nodes: NodesByKey) {
        *self.nodes.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(nodes);
    }
}

#[cfg(test)]
mod tests {
    use zmq::Context;

    use super::super::zap;
    use super::*;

    #[test]
    fn only_user_ids_of_this_handler_count() {
        let (key, other) = (PublicKey::new([1; 32]), PublicKey::new([2; 32]));
        let node = Arc::new(Identifier::try_from("n1").unwrap());
        let keys = AuthorisedKeys::new(true).unwrap();
        keys.replace(NodesByKey::from([(key, Arc::clone(&node))]));
        let user_id = keys.user_id(&key);
        assert_eq!(keys.authenticate(Some(&user_id)), Some(AuthenticatedAgent { node: Some(node) }));
        assert_eq!(keys.authenticate(None), None);
        assert_eq!(keys.authenticate(Some("")), None);
        assert_eq!(keys.authenticate(Some(&key.to_string())), None, "any peer can claim that");
        assert_eq!(keys.authenticate(Some(&keys.user_id(&other))), None);
        let elsewhere = AuthorisedKeys::new(true).unwrap();
        assert_eq!(keys.authenticate(Some(&elsewhere.user_id(&key))), None);
        keys.replace(NodesByKey::new());
        assert_eq!(keys.authenticate(Some(&user_id)), None, "the key was removed");
    }

    #[test]
    fn connections_that_libzmq_accepts_without_a_handler_are_not_authenticated() {
        let (context, server) = (Context::new(), zmq::CurveKeyPair::new().unwrap());
        let router = context.socket(zmq::ROUTER).unwrap();
        router.set_curve_server(true).unwrap();
        router.set_curve_secretkey(&server.secret_key).unwrap();
        router.set_zap_domain(zap::DOMAIN).unwrap();
        router.bind("tcp://127.0.0.1:*").unwrap();
        let stranger = zmq::CurveKeyPair::new().unwrap();
        let dealer = context.socket(zmq::DEALER).unwrap();
        dealer.set_linger(0).unwrap();
        dealer.set_curve_serverkey(&server.public_key).unwrap();
        dealer.set_curve_publickey(&stranger.public_key).unwrap();
        dealer.set_curve_secretkey(&stranger.secret_key).unwrap();
        dealer.connect(&router.get_last_endpoint().unwrap().unwrap()).unwrap();
        dealer.send("anything", 0).unwrap();
        router.set_rcvtimeo(30_000).unwrap();
        router.recv_msg(0).unwrap();
        let mut message = router.recv_msg(0).unwrap();
        assert_eq!(&*message, b"anything");
        let keys = AuthorisedKeys::new(false).unwrap();
        keys.replace(NodesByKey::from([(
            PublicKey::new(stranger.public_key),
            Arc::new(Identifier::try_from("n1").unwrap()),
        )]));
        assert_eq!(keys.authenticate(message.gets("User-Id")), None);
    }
}
