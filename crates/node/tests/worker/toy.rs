//! A toy protocol: every member keeps a copy, a write waits for a majority. Its commands exercise
//! one rule each.

use std::collections::BTreeMap;

use base::{Millis, Nanos};
use bytes::Bytes;
use protocols::{
    CachedRegister, Consistency, Context, Effects, Env, Event, Message, Peer, Properties, Protocol,
    RegisterCache, Replicas, Request, Scan, Scanned, ScannedRegister, Stats, TimerId, Touches,
    Violation, Weight,
};
use types::{
    AmnesiaCount, Key, Malformed, NodeId, Outcome, Reader, Reply, Shard, Tag, Ticket, Wire, wire,
};

/// How long the command `timer` waits.
pub const DELAY: Nanos = Nanos::from_millis(10);

#[derive(Debug)]
pub struct Toy {
    waiting: BTreeMap<u64, (Tag, Vec<NodeId>, Bytes)>,
    timers: BTreeMap<u64, Tag>,
    lists: BTreeMap<u64, Tag>,
    op: u64,
    counts: Counts,
}

#[derive(Debug, Default)]
struct Counts {
    turns: u64,
    forgotten: u64,
    views: u64,
    up: u64,
    resets: u64,
    metas: u64,
    metas_lost: u64,
    wide: u64,
    orders: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Say {
    /// Keep this and tell me.
    Put { key: Key, value: Bytes, op: u64 },
    /// Kept.
    Ack { op: u64 },
    /// Concerns a shard as a whole.
    Wide { shard: Shard },
}

impl Wire for Say {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Say::Put { key, value, op } => {
                out.push(0);
                key.encode(out);
                value.encode(out);
                wire::put_varint(out, *op);
            }
            Say::Ack { op } => {
                out.push(1);
                wire::put_varint(out, *op);
            }
            Say::Wide { shard } => out.extend_from_slice(&[2, shard.0]),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Say, Malformed> {
        Ok(match reader.u8()? {
            0 => Say::Put {
                key: Key::decode(reader)?,
                value: Bytes::decode(reader)?,
                op: reader.varint()?,
            },
            1 => Say::Ack { op: reader.varint()? },
            2 => Say::Wide { shard: Shard(reader.u8()?) },
            _ => return Err(Malformed),
        })
    }
}

impl Message for Say {
    fn is_write(&self) -> bool {
        matches!(self, Say::Put { .. })
    }

    fn touches(&self) -> Touches<'_> {
        match self {
            Say::Put { key, .. } => Touches::Key(key),
            Say::Ack { .. } => Touches::Nothing,
            Say::Wide { shard } => Touches::Shard(*shard),
        }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record(pub Bytes);

impl Wire for Record {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Record, Malformed> {
        Bytes::decode(reader).map(Record)
    }
}

/// Writes per shard.
#[derive(Default, Debug)]
pub struct Written(u64);

impl Wire for Written {
    fn encode(&self, out: &mut Vec<u8>) {
        wire::put_varint(out, self.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Written, Malformed> {
        reader.varint().map(Written)
    }
}

type Cx<'a> = Context<'a, Toy>;

fn text(bytes: impl Into<Bytes>) -> Outcome {
    Outcome::Reply(Reply::bulk(bytes))
}

impl Toy {
    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request) {
        let Request { tag, key, command, .. } = request;
        let body = command.body;
        let (verb, rest) = match body.iter().position(|&byte| byte == b' ') {
            Some(at) => (body.slice(..at), body.slice(at + 1..)),
            None => (body.clone(), Bytes::new()),
        };
        match &verb[..] {
            b"set" => self.broadcast(cx, tag, key, rest),
            b"get" => cx.fx.reply_after(cx.cache.ticket(&key), tag, read(cx.cache, &key)),
            b"local" => {
                let ticket = write(cx, &key, rest);
                cx.fx.reply_after(ticket, tag, text("ok"));
            }
            b"count" => {
                cx.uptime.start(Millis(2_000));
                let ticket = write(cx, &key, rest);
                cx.fx.reply_after(ticket, tag, text("ok"));
            }
            b"del" => {
                let ticket = cx.cache.remove(&key);
                cx.fx.reply_after(ticket, tag, text("ok"));
            }
            b"mark" => {
                cx.metas.get_mut(key.shard()).0 += 1;
                let ticket = cx.metas.persist(key.shard());
                cx.fx.reply_after(ticket, tag, text(cx.metas.get(key.shard()).0.to_string()));
            }
            b"poke" => {
                write(cx, &Key::new(&rest), Bytes::from_static(b"poked"));
                cx.fx.reply(tag, text("ok"));
            }
            b"pin" => {
                cx.cache.pin(&key);
                cx.fx.reply(tag, text("ok"));
            }
            b"timer" => {
                self.timers.insert(tag.0, tag);
                cx.fx.timer(TimerId(tag.0), cx.now + DELAY);
            }
            b"recovered" => {
                cx.fx.recovered(key.shard());
                cx.fx.reply(tag, text("ok"));
            }
            b"suspect" => {
                cx.fx.suspect(NodeId(2));
                cx.fx.reply(tag, text("ok"));
            }
            b"twice" => {
                cx.fx.reply(tag, text("ok"));
                cx.fx.reply(tag, text("ok"));
            }
            b"fail" => cx.fx.fail(Violation("the toy broke".to_string())),
            other => panic!("{other:?} is no command of the toy"),
        }
    }

    fn broadcast(&mut self, cx: &mut Cx<'_>, tag: Tag, key: Key, value: Bytes) {
        self.op += 1;
        self.waiting.insert(self.op, (tag, Vec::new(), value.clone()));
        for node in cx.replicas.all() {
            let put = Say::Put { key: key.clone(), value: value.clone(), op: self.op };
            cx.fx.send_now(node, put);
        }
    }

    fn on_peer(&mut self, cx: &mut Cx<'_>, from: Peer, say: Say) {
        match say {
            Say::Put { key, value, op } => {
                if matches!(cx.cache.get(&key), CachedRegister::Lost) {
                    return;
                }
                let ticket = write(cx, &key, value);
                cx.fx.send(from.node, Say::Ack { op }, ticket);
            }
            Say::Ack { op } => {
                let Some((tag, acks, value)) = self.waiting.get_mut(&op) else { return };
                if !acks.contains(&from.node) {
                    acks.push(from.node);
                }
                if acks.len() == cx.replicas.len() / 2 + 1 {
                    cx.fx.reply(*tag, text(value.clone()));
                    self.waiting.remove(&op);
                }
            }
            Say::Wide { .. } => self.counts.wide += 1,
        }
    }

    fn on_scanned(&mut self, fx: &mut Effects<Say>, scanned: Scanned<Record>) {
        let Some(tag) = self.lists.remove(&scanned.id) else { return };
        let keys = scanned
            .records
            .into_iter()
            .filter(|(_, scanned)| matches!(scanned, ScannedRegister::Present(_)))
            .map(|(key, _)| key)
            .collect();
        fx.reply(
            tag,
            Outcome::Listed { keys, undecided: Vec::new(), next_hash: scanned.next_hash },
        );
    }
}

fn read(cache: &RegisterCache<Record>, key: &Key) -> Outcome {
    match cache.get(key) {
        CachedRegister::Present(record) => text(record.0.clone()),
        CachedRegister::Absent => text("-"),
        CachedRegister::Lost => Outcome::Loading,
    }
}

fn write(cx: &mut Cx<'_>, key: &Key, value: Bytes) -> Ticket {
    cx.cache.put(key, Record(value));
    cx.cache.persist(key)
}

impl Protocol for Toy {
    const NAME: &'static str = "toy";
    const PROPERTIES: Properties = Properties {
        consistency: Consistency::SequentialReads,
        read_modify_write: false,
        total_order: false,
        needs_config: false,
        needs_lease: false,
        locks: false,
        keeps_log: false,
        uncommitted_reads: false,
    };

    type Message = Say;
    type Record = Record;
    type Meta = Written;

    fn open(_env: Env) -> Toy {
        Toy {
            waiting: BTreeMap::new(),
            timers: BTreeMap::new(),
            lists: BTreeMap::new(),
            op: 0,
            counts: Counts::default(),
        }
    }

    fn on(&mut self, cx: &mut Cx<'_>, event: Event<Toy>) {
        match event {
            Event::Request(request) => self.on_request(cx, request),
            Event::List { tag, from_hash, limit } => {
                self.lists.insert(tag.0, tag);
                cx.fx.scan(Scan { id: tag.0, from_hash, limit });
            }
            Event::Explain { tag, .. } => cx.fx.reply(tag, Outcome::Unsupported("toy")),
            Event::Peer { from, message } => self.on_peer(cx, from, message),
            Event::PeerReset { .. } => self.counts.resets += 1,
            Event::PeerUp { .. } => self.counts.up += 1,
            Event::PeerSteady { .. } => {}
            Event::ViewChanged => self.counts.views += 1,
            Event::Group(_) => self.counts.orders += 1,
            Event::Timer(id) => {
                if let Some(tag) = self.timers.remove(&id.0) {
                    cx.fx.reply(tag, text("rang"));
                }
            }
            Event::Scanned(scanned) => self.on_scanned(cx.fx, scanned),
            Event::Forgotten { shard } => {
                assert!(cx.cache.is_forgotten(shard), "told before it is so");
                assert!(cx.metas.is_resident(shard), "a named shard is resident");
                self.counts.forgotten += 1;
            }
            Event::Turn => self.counts.turns += 1,
        }
    }

    fn on_meta_loaded(&mut self, _cx: &mut Cx<'_>, _shard: Shard) {
        self.counts.metas += 1;
    }

    fn on_meta_lost(&mut self, _cx: &mut Cx<'_>, _shard: Shard) {
        self.counts.metas_lost += 1;
    }

    fn weight(key: &Key, record: &Record) -> Weight {
        Weight::of_key(key.bytes().len() + record.0.len(), false)
    }

    fn check(
        &self,
        _cache: &RegisterCache<Record>,
        replicas: Replicas<'_>,
    ) -> Result<(), Violation> {
        match replicas.member(replicas.me()).map(|me| me.amnesia) {
            Some(AmnesiaCount(0)) | None => Err(Violation("this node has no loss".to_string())),
            Some(_) => Ok(()),
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.timers.is_empty() && self.lists.is_empty()
    }

    fn stats(&self, stats: &mut Stats) {
        let Counts { turns, forgotten, views, up, resets, metas, metas_lost, wide, orders } =
            self.counts;
        stats.add("toy_turns", turns);
        stats.add("toy_forgotten", forgotten);
        stats.add("toy_views", views);
        stats.add("toy_up", up);
        stats.add("toy_resets", resets);
        stats.add("toy_metas", metas);
        stats.add("toy_metas_lost", metas_lost);
        stats.add("toy_wide", wide);
        stats.add("toy_orders", orders);
    }
}
