//! The context of a step.

use types::{NodeId, Shard, Ticket};

use super::message::{Message, ToRegister, ToSequencer, ToWorker};
use super::register::{Meta, Register};
use crate::protocol::Scope;
use crate::replicas::Replicas;
use types::Key;

pub type Cx<'a> = Scope<'a, Register, Meta, Message>;

/// The replicas of the order: those of shard 0.
pub fn replicas<'a>(cx: &Cx<'a>) -> Replicas<'a> {
    cx.replicas_of(Shard(0))
}

pub fn tell(cx: &mut Cx<'_>, to: NodeId, body: ToSequencer) {
    cx.fx.send_now(to, body.into());
}

/// To the sequencer of this node, once `after` is durable.
pub fn tell_own(cx: &mut Cx<'_>, body: ToSequencer, after: Ticket) {
    let me = cx.replicas.me();
    cx.fx.send(me, body.into(), after);
}

/// To a worker of this node.
pub fn tell_worker(cx: &mut Cx<'_>, worker: usize, body: ToWorker) {
    let me = cx.replicas.me();
    cx.fx.send_now(me, Message::Worker(Shard(worker as u8), body));
}

/// To the worker of a key at this node.
pub fn tell_register(cx: &mut Cx<'_>, key: Key, body: ToRegister) {
    let me = cx.replicas.me();
    cx.fx.send_now(me, Message::Register(key, body));
}
