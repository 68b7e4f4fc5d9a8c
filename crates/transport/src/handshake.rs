//! Identifies the other end: a mutual challenge by the cluster's secret.
//!
//! Both ends send a [`Hello`] with a fresh nonce, then a proof: HMAC-SHA256 under the secret over a
//! tag that names the direction and both hellos, the dialler's first. Fresh nonces on both sides
//! make a recorded conversation worthless; the tag makes a proof worthless when it is sent back to
//! its author. Without a secret the key is empty and the proof only shows that both ends agree on
//! the hellos.
//!
//! It does not encrypt and does not authenticate later frames: an attacker that can change packets
//! between nodes is outside the scope of a cluster secret.

use std::fmt;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use types::features::{Clash, FeatureLevel, Features, Supported};
use types::wire::{Malformed, Reader, Wire};
use types::{AmnesiaCount, Incarnation, NodeId};

use crate::frame::{self, Kind};

/// Protocol versions that this build speaks. They cover the messages of nodes and workers as well.
/// They change with the format of frames and hellos; a feature level tells the rest.
pub const VERSION_MIN: u16 = 11;
pub const VERSION_MAX: u16 = 11;

/// The channel for messages between nodes rather than their workers.
pub const CHANNEL_CONTROL: u16 = u16::MAX;

/// Bytes drawn anew for every connection.
pub type Nonce = [u8; 32];

/// Names a cluster for ever: drawn at random when it forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

/// A node's introduction when a connection opens.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hello {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub amnesia: AmnesiaCount,
    /// `None` while the node belongs to no cluster.
    pub cluster: Option<ClusterId>,
    /// Which of the links between two nodes this is to be, or [`CHANNEL_CONTROL`].
    pub channel: u16,
    /// Worker threads of the node.
    pub workers: u16,
    /// Hash of the settings on which workers must agree. The control channel says in words how they
    /// differ.
    pub settings: u64,
    pub features: Features,
    pub nonce: Nonce,
}

/// Why a connection is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refusal {
    #[error(
        "it speaks protocol versions {min} to {max}, this node {VERSION_MIN} to {VERSION_MAX}: upgrade one"
    )]
    Version { min: u16, max: u16 },
    #[error("it does not know this cluster's secret: compare --cluster-secret-file")]
    Secret,
    #[error("it belongs to another cluster: check --cluster and --data-dir on both nodes")]
    Cluster,
    #[error("it is not in this node's --cluster list")]
    Stranger,
    #[error("another node answers at its address: check --cluster")]
    WrongNode,
    #[error("it is this node itself: check --cluster")]
    Myself,
    #[error("it has been restarted since")]
    Stale,
    #[error("it does not belong to the cluster yet, or has not noted yet that this node restarted")]
    Early,
    #[error("protocols or durabilities of its databases differ from this node's")]
    Settings,
    #[error("{0}")]
    Features(Clash),
    #[error("it sent something other than a handshake")]
    Malformed,
}

/// Which end this is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    Dialler,
    Acceptor,
}

/// The other end has proven itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Proven {
    pub peer: Hello,
    /// Seed of all checksums from here on.
    pub seed: u64,
}

/// One end of a handshake.
pub struct Handshake {
    role: Role,
    me: Hello,
    secret: Vec<u8>,
    members: Vec<NodeId>,
    /// The node that this end dialled.
    dialled: Option<NodeId>,
    peer: Option<Hello>,
}

impl Handshake {
    /// The end that connected to the address of `peer`.
    #[must_use]
    pub fn dial(me: Hello, peer: NodeId, secret: &[u8]) -> Handshake {
        let (members, dialled) = (vec![peer], Some(peer));
        Handshake { role: Role::Dialler, me, secret: secret.to_vec(), members, dialled, peer: None }
    }

    /// The end that was connected to, by one of `members`.
    #[must_use]
    pub fn accept(me: Hello, members: &[NodeId], secret: &[u8]) -> Handshake {
        let members = members.to_vec();
        let (role, dialled) = (Role::Acceptor, None);
        Handshake { role, me, secret: secret.to_vec(), members, dialled, peer: None }
    }

    /// The first thing to say.
    pub fn open(&self, out: &mut Vec<u8>) {
        frame::encode(0, Kind::Hello, &self.me.to_bytes(), out);
    }

    /// A frame of the other end.
    ///
    /// # Errors
    /// Why it is refused; the connection is to be closed once `out` is written.
    pub fn on_frame(
        &mut self,
        kind: Kind,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Proven>, Refusal> {
        match (kind, self.peer.take()) {
            (Kind::Hello, None) => {
                let peer = self.on_hello(payload)?;
                let proof = self.mac(&peer, self.role).finalize().into_bytes();
                frame::encode(0, Kind::Proof, &proof, out);
                self.peer = Some(peer);
                Ok(None)
            }
            (Kind::Proof, Some(peer)) => {
                let theirs = match self.role {
                    Role::Dialler => Role::Acceptor,
                    Role::Acceptor => Role::Dialler,
                };
                // Compares in constant time.
                self.mac(&peer, theirs).verify_slice(payload).map_err(|_| Refusal::Secret)?;
                Ok(Some(Proven { seed: self.seed(&peer), peer }))
            }
            _ => Err(Refusal::Malformed),
        }
    }

    fn on_hello(&self, payload: &[u8]) -> Result<Hello, Refusal> {
        let mut reader = Reader::new(payload);
        let versions = |reader: &mut Reader<'_>| Ok((reader.u16()?, reader.u16()?));
        let (min, max) = versions(&mut reader).map_err(|_: Malformed| Refusal::Malformed)?;
        if max < VERSION_MIN || min > VERSION_MAX {
            return Err(Refusal::Version { min, max });
        }
        let peer = Hello::from_bytes(payload).map_err(|_| Refusal::Malformed)?;
        if peer.nonce == self.me.nonce || peer.node == self.me.node {
            return Err(Refusal::Myself);
        }
        if !self.members.contains(&peer.node) {
            return Err(if self.dialled.is_some() {
                Refusal::WrongNode
            } else {
                Refusal::Stranger
            });
        }
        let control = self.channel(&peer) == CHANNEL_CONTROL;
        match (self.me.cluster, peer.cluster) {
            (Some(mine), Some(theirs)) if mine != theirs => Err(Refusal::Cluster),
            _ if control => Ok(peer),
            _ if peer.settings != self.me.settings => Err(Refusal::Settings),
            (Some(_), Some(_)) => Ok(peer),
            _ => Err(Refusal::Early),
        }
    }

    /// The dialler says which channel it is to be.
    fn channel(&self, peer: &Hello) -> u16 {
        match self.role {
            Role::Dialler => self.me.channel,
            Role::Acceptor => peer.channel,
        }
    }

    fn mac(&self, peer: &Hello, author: Role) -> Hmac<Sha256> {
        self.keyed(
            peer,
            match author {
                Role::Dialler => b"palimpsest dialler",
                Role::Acceptor => b"palimpsest acceptor",
            },
        )
    }

    fn keyed(&self, peer: &Hello, tag: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.secret).expect("HMAC takes any key");
        let (dialler, acceptor) = match self.role {
            Role::Dialler => (&self.me, peer),
            Role::Acceptor => (peer, &self.me),
        };
        // Each part has its length in front, so that no two conversations have the same bytes.
        for part in [tag, &dialler.to_bytes(), &acceptor.to_bytes()] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        mac
    }

    fn seed(&self, peer: &Hello) -> u64 {
        let bytes = self.keyed(peer, b"palimpsest seed").finalize().into_bytes();
        let mut seed = [0; 8];
        seed.copy_from_slice(&bytes[..8]);
        u64::from_le_bytes(seed)
    }
}

impl Wire for Hello {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION_MIN.to_le_bytes());
        out.extend_from_slice(&VERSION_MAX.to_le_bytes());
        out.extend_from_slice(&self.node.0.to_le_bytes());
        out.extend_from_slice(&self.incarnation.0.to_le_bytes());
        out.extend_from_slice(&self.amnesia.0.to_le_bytes());
        out.push(u8::from(self.cluster.is_some()));
        out.extend_from_slice(&self.cluster.map_or([0; 16], |id| id.0));
        out.extend_from_slice(&self.channel.to_le_bytes());
        out.extend_from_slice(&self.workers.to_le_bytes());
        out.extend_from_slice(&self.settings.to_le_bytes());
        self.features.encode(out);
        out.extend_from_slice(&self.nonce);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Hello, Malformed> {
        let (_min, _max) = (reader.u16()?, reader.u16()?);
        let node = NodeId(reader.u16()?);
        let incarnation = Incarnation(reader.u32()?);
        let amnesia = AmnesiaCount(reader.u32()?);
        let has_cluster = reader.u8()?;
        let cluster = ClusterId::decode(reader)?;
        let cluster = match has_cluster {
            0 if cluster.0 == [0; 16] => None,
            1 => Some(cluster),
            _ => return Err(Malformed),
        };
        let (channel, workers, settings) = (reader.u16()?, reader.u16()?, reader.u64()?);
        let features = Features::decode(reader)?;
        let mut nonce = Nonce::default();
        nonce.copy_from_slice(reader.take(32)?);
        if incarnation > Incarnation::MAX || amnesia > AmnesiaCount::MAX || workers == 0 {
            return Err(Malformed);
        }
        let hello = Hello {
            node,
            incarnation,
            amnesia,
            cluster,
            channel,
            workers,
            settings,
            features,
            nonce,
        };
        Ok(hello)
    }
}

impl Wire for ClusterId {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<ClusterId, Malformed> {
        let mut id = [0; 16];
        id.copy_from_slice(reader.take(16)?);
        Ok(ClusterId(id))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{self}")
    }
}

impl Wire for Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        let (code, numbers) = match *self {
            Refusal::Version { .. } => (1_u8, [VERSION_MIN, VERSION_MAX, 0, 0]),
            Refusal::Secret => (2, [0; 4]),
            Refusal::Cluster => (3, [0; 4]),
            Refusal::Stranger => (4, [0; 4]),
            Refusal::WrongNode => (5, [0; 4]),
            Refusal::Myself => (6, [0; 4]),
            Refusal::Stale => (7, [0; 4]),
            Refusal::Early => (8, [0; 4]),
            Refusal::Malformed => (9, [0; 4]),
            Refusal::Settings => (10, [0; 4]),
            Refusal::Features(Clash::Level { node, level, supported }) => {
                (11, [supported.lowest.0, supported.highest.0, node.0, level.0])
            }
            Refusal::Features(Clash::Apart { node, supported }) => {
                (12, [supported.lowest.0, supported.highest.0, node.0, 0])
            }
        };
        out.push(code);
        numbers.iter().for_each(|number| out.extend_from_slice(&number.to_le_bytes()));
    }

    /// A version refusal comes back with the versions of the end that refused.
    fn decode(reader: &mut Reader<'_>) -> Result<Refusal, Malformed> {
        let code = reader.u8()?;
        let (min, max) = (reader.u16()?, reader.u16()?);
        let (node, level) = (NodeId(reader.u16()?), FeatureLevel(reader.u16()?));
        let supported = Supported { lowest: FeatureLevel(min), highest: FeatureLevel(max) };
        Ok(match code {
            1 => Refusal::Version { min, max },
            2 => Refusal::Secret,
            3 => Refusal::Cluster,
            4 => Refusal::Stranger,
            5 => Refusal::WrongNode,
            6 => Refusal::Myself,
            7 => Refusal::Stale,
            8 => Refusal::Early,
            9 => Refusal::Malformed,
            10 => Refusal::Settings,
            11 => Refusal::Features(Clash::Level { node, level, supported }),
            12 => Refusal::Features(Clash::Apart { node, supported }),
            _ => return Err(Malformed),
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hello(node: u16) -> Hello {
        Hello {
            node: NodeId(node),
            incarnation: Incarnation(1),
            amnesia: AmnesiaCount(0),
            cluster: Some(ClusterId([7; 16])),
            channel: 0,
            workers: 2,
            settings: 1,
            features: Features::default(),
            nonce: [node as u8; 32],
        }
    }

    fn frames(bytes: &[u8]) -> Vec<(Kind, Vec<u8>)> {
        let mut decoder = frame::Decoder::new(0, frame::PAYLOAD_LEN_MAX_UNPROVEN);
        decoder.push(bytes);
        std::iter::from_fn(|| decoder.take().unwrap()).map(|(k, b)| (k, b.to_vec())).collect()
    }

    /// Runs both ends; `(dialler's end, acceptor's end)`.
    fn run(
        mut dialler: Handshake,
        mut acceptor: Handshake,
    ) -> (Result<Option<Proven>, Refusal>, Result<Option<Proven>, Refusal>) {
        let (mut to_acceptor, mut to_dialler) = (Vec::new(), Vec::new());
        dialler.open(&mut to_acceptor);
        acceptor.open(&mut to_dialler);
        let mut ends = (Ok(None), Ok(None));
        for _ in 0..2 {
            let (for_acceptor, for_dialler) =
                (std::mem::take(&mut to_acceptor), std::mem::take(&mut to_dialler));
            for (kind, payload) in frames(&for_acceptor) {
                if ends.1.is_ok() {
                    ends.1 = acceptor.on_frame(kind, &payload, &mut to_dialler);
                }
            }
            for (kind, payload) in frames(&for_dialler) {
                if ends.0.is_ok() {
                    ends.0 = dialler.on_frame(kind, &payload, &mut to_acceptor);
                }
            }
        }
        ends
    }

    fn both(
        dialler: Hello,
        acceptor: Hello,
    ) -> (Result<Option<Proven>, Refusal>, Result<Option<Proven>, Refusal>) {
        let to = acceptor.node;
        run(
            Handshake::dial(dialler, to, b"secret"),
            Handshake::accept(acceptor, &[NodeId(1), NodeId(2)], b"secret"),
        )
    }

    #[test]
    fn both_ends_prove_themselves_and_share_a_seed() {
        let (at_dialler, at_acceptor) = both(hello(1), hello(2));
        let (at_dialler, at_acceptor) =
            (at_dialler.unwrap().unwrap(), at_acceptor.unwrap().unwrap());
        assert_eq!(at_dialler.peer, hello(2));
        assert_eq!(at_acceptor.peer, hello(1));
        assert_eq!(at_dialler.seed, at_acceptor.seed);
    }

    #[test]
    fn another_nonce_gives_another_seed() {
        let (first, _) = both(hello(1), hello(2));
        let (second, _) = both(Hello { nonce: [9; 32], ..hello(1) }, hello(2));
        assert_ne!(first.unwrap().unwrap().seed, second.unwrap().unwrap().seed);
    }

    #[test]
    fn a_wrong_secret_is_refused_by_both() {
        let ends = run(
            Handshake::dial(hello(1), NodeId(2), b"secret"),
            Handshake::accept(hello(2), &[NodeId(1)], b""),
        );
        assert_eq!(ends, (Err(Refusal::Secret), Err(Refusal::Secret)));
    }

    #[test]
    fn strangers_wrong_nodes_other_clusters_and_oneself_are_refused() {
        let other = Hello { cluster: Some(ClusterId([8; 16])), ..hello(1) };
        assert_eq!(both(other, hello(2)).1, Err(Refusal::Cluster));
        assert_eq!(both(hello(3), hello(2)).1, Err(Refusal::Stranger));
        assert_eq!(both(hello(2), Hello { nonce: [5; 32], ..hello(2) }).1, Err(Refusal::Myself));
        let ends = run(
            Handshake::dial(hello(1), NodeId(3), b"secret"),
            Handshake::accept(hello(2), &[NodeId(1)], b"secret"),
        );
        assert_eq!(ends.0, Err(Refusal::WrongNode));
    }

    #[test]
    fn nodes_without_a_cluster_meet_on_the_control_channel_only() {
        let fresh = Hello { cluster: None, ..hello(1) };
        assert_eq!(both(fresh.clone(), hello(2)).1, Err(Refusal::Early));
        let control = Hello { channel: CHANNEL_CONTROL, ..fresh };
        assert!(matches!(both(control, hello(2)).1, Ok(Some(_))));
    }

    #[test]
    fn nodes_with_other_settings_meet_on_the_control_channel_only() {
        let other = Hello { settings: 2, ..hello(1) };
        assert_eq!(both(other.clone(), hello(2)).1, Err(Refusal::Settings));
        let control = Hello { channel: CHANNEL_CONTROL, ..other };
        assert!(matches!(both(control, hello(2)).1, Ok(Some(_))));
    }

    #[test]
    fn proof_sent_back_to_its_author_is_refused() {
        let mut dialler = Handshake::dial(hello(1), NodeId(2), b"secret");
        let mut out = Vec::new();
        dialler.on_frame(Kind::Hello, &hello(2).to_bytes(), &mut out).unwrap();
        let own_proof = frames(&out).remove(0).1;
        assert_eq!(dialler.on_frame(Kind::Proof, &own_proof, &mut out), Err(Refusal::Secret));
    }

    #[test]
    fn recorded_conversation_fails_with_a_fresh_nonce() {
        let mut recorded = Vec::new();
        Handshake::accept(hello(2), &[NodeId(1)], b"secret")
            .on_frame(Kind::Hello, &hello(1).to_bytes(), &mut recorded)
            .unwrap();
        let proof = frames(&recorded).remove(0).1;
        let again = Hello { nonce: [9; 32], ..hello(1) };
        let mut dialler = Handshake::dial(again, NodeId(2), b"secret");
        dialler.on_frame(Kind::Hello, &hello(2).to_bytes(), &mut Vec::new()).unwrap();
        let end = dialler.on_frame(Kind::Proof, &proof, &mut Vec::new());
        assert_eq!(end, Err(Refusal::Secret));
    }

    #[test]
    fn another_protocol_version_is_named() {
        let mut bytes = hello(1).to_bytes();
        bytes[..4].copy_from_slice(&[0xf9, 0xff, 0xfc, 0xff]);
        let mut acceptor = Handshake::accept(hello(2), &[NodeId(1)], b"");
        let end = acceptor.on_frame(Kind::Hello, &bytes, &mut Vec::new());
        assert_eq!(end, Err(Refusal::Version { min: 0xfff9, max: 0xfffc }));
    }

    proptest! {
        #[test]
        fn rubbish_is_refused_and_never_panics(
            kind in prop::sample::select(vec![Kind::Hello, Kind::Proof, Kind::Ping, Kind::Payload]),
            bytes in prop::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut acceptor = Handshake::accept(hello(2), &[NodeId(1)], b"secret");
            prop_assert!(!matches!(acceptor.on_frame(kind, &bytes, &mut Vec::new()), Ok(Some(_))));
        }

        #[test]
        fn hellos_and_refusals_come_back(node in 1_u16.., amnesia in 0_u32..1 << 24, channel: u16, min: u16) {
            let one = Hello { amnesia: AmnesiaCount(amnesia), channel, cluster: None, ..hello(node) };
            prop_assert_eq!(Hello::from_bytes(&one.to_bytes()), Ok(one));
            let (node, level) = (NodeId(node), FeatureLevel(min));
            let supported = Supported { lowest: FeatureLevel(channel), highest: FeatureLevel(min) };
            let all = [
                Refusal::Secret,
                Refusal::Early,
                Refusal::Malformed,
                Refusal::Settings,
                Refusal::Features(Clash::Level { node, level, supported }),
                Refusal::Features(Clash::Apart { node, supported }),
            ];
            for refusal in all {
                prop_assert_eq!(Refusal::from_bytes(&refusal.to_bytes()), Ok(refusal));
            }
            let version = Refusal::Version { min, max: min };
            prop_assert_eq!(
                Refusal::from_bytes(&version.to_bytes()),
                Ok(Refusal::Version { min: VERSION_MIN, max: VERSION_MAX })
            );
        }
    }
}
