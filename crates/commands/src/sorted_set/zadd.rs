//! `ZADD` and `ZINCRBY`.

use types::wire::{Malformed, Reader};
use types::{Command, Reply};
use values::SortedSet;
use values::double;
use values::sorted_set::{Element, Encoding};

use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{Examples, Operation, Sink};
use crate::row::*;
use crate::sorted_set::members::{Named, Slot};

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![Add] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zadd",
        arity: AtLeast(4),
        since: "1.2.0",
        summary: "Adds members to the sorted set at a key, or changes their scores.",
        complexity: "O(N + M*log(M)) for M members and N elements of the sorted set.",
        arguments: &[
            Argument::key(),
            Argument::one_of(
                "condition",
                &[Argument::word("nx", "NX"), Argument::word("xx", "XX")],
            )
            .optional()
            .since("3.0.2"),
            Argument::one_of(
                "comparison",
                &[Argument::word("gt", "GT"), Argument::word("lt", "LT")],
            )
            .optional()
            .since("6.2.0"),
            Argument::word("change", "CH").optional().since("3.0.2"),
            Argument::word("increment", "INCR").optional().since("3.0.2"),
            Argument::block(
                "data",
                &[Argument::new("score", ArgumentKind::Double), Argument::string("member")],
            )
            .multiple(),
        ],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_add),
        ..SORTED_SET
    },
    CommandSpec {
        name: "zincrby",
        arity: Exactly(4),
        since: "1.2.0",
        summary: "Adds to the score of a member, which begins at 0.",
        complexity: "O(N) where N is the number of elements.",
        arguments: &[Argument::key(), Argument::integer("increment"), Argument::string("member")],
        flags: &[Write, DenyOom, Fast],
        keys: one_key(&["RW", "access", "update"]),
        access: Some(Access::Update),
        execution: Key(plan_increment),
        ..SORTED_SET
    },
];

const NX_AND_XX: ErrorReply =
    errors::fixed(b"ERR XX and NX options at the same time are not compatible");
const GT_LT_NX: ErrorReply =
    errors::fixed(b"ERR GT, LT, and/or NX options at the same time are not compatible");
const INCR_OF_MANY: ErrorReply =
    errors::fixed(b"ERR INCR option supports a single increment-element pair");
const SCORE_IS_NAN: ErrorReply = errors::fixed(b"ERR resulting score is not a number (NaN)");

const NX: u8 = 1;
const XX: u8 = 2;
const GT: u8 = 4;
const LT: u8 = 8;
const CH: u8 = 16;
const INCR: u8 = 32;
const OPTIONS: [(&[u8], u8); 6] =
    [(b"NX", NX), (b"XX", XX), (b"GT", GT), (b"LT", LT), (b"CH", CH), (b"INCR", INCR)];

fn plan_add(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let mut rest = &args.all[2..];
    let mut options = 0;
    while let [word, tail @ ..] = rest {
        let option = OPTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let Some((_, option)) = option else { break };
        options |= option;
        rest = tail;
    }
    plan(args, options, rest)
}

fn plan_increment(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    plan(args, INCR, &args.all[2..])
}

fn plan(args: &Arguments<'_>, options: u8, pairs: &[&[u8]]) -> Result<Command, ErrorReply> {
    if pairs.is_empty() || !pairs.len().is_multiple_of(2) {
        return Err(errors::SYNTAX);
    }
    check(options, pairs.len() / 2)?;
    let parse = |pair: &[_]| {
        let (score, member) = (pair[0], pair[1]);
        Ok(Element { score: double::parse(score).ok_or(errors::NOT_A_FLOAT)?, member })
    };
    let elements = pairs.chunks_exact(2).map(parse).collect::<Result<_, ErrorReply>>()?;
    Ok(args.command(&Add { options, elements }))
}

fn check(options: u8, elements: usize) -> Result<(), ErrorReply> {
    let has = |all: u8| options & all == all;
    if has(NX | XX) {
        return Err(NX_AND_XX);
    }
    if has(GT | NX) || has(LT | NX) || has(GT | LT) {
        return Err(GT_LT_NX);
    }
    if has(INCR) && elements > 1 {
        return Err(INCR_OF_MANY);
    }
    Ok(())
}

struct Add<'a> {
    options: u8,
    elements: Vec<Element<'a>>,
}

impl<'a> Operation<'a> for Add<'a> {
    const CODE: u8 = 104;
    const EXAMPLES: Examples = &[
        ("ZADD k 1.5 m", b"\x68\x00\0\0\0\0\0\0\xf8\x3f\x01m"),
        ("ZADD k NX CH 0 a -0 bc", b"\x68\x11\0\0\0\0\0\0\0\0\x01a\0\0\0\0\0\0\0\x80\x02bc"),
        ("ZINCRBY k -inf m", b"\x68\x20\0\0\0\0\0\0\xf0\xff\x01m"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        out.byte(self.options);
        for element in &self.elements {
            out.bytes(&element.score.to_le_bytes());
            out.blob(element.member);
        }
    }

    fn decode(fields: &mut Reader<'a>) -> Result<Add<'a>, Malformed> {
        let options = fields.u8()?;
        let mut elements = Vec::new();
        while !fields.is_empty() {
            let score = f64::from_bits(fields.u64()?);
            let member = fields.blob(types::limits::RECORD_LEN_MAX)?;
            elements.push(Element { score, member });
        }
        let is_sound = options < INCR << 1
            && check(options, elements.len()).is_ok()
            && !elements.is_empty()
            && !elements.iter().any(|element| element.score.is_nan());
        if is_sound { Ok(Add { options, elements }) } else { Err(Malformed) }
    }

    fn names(&self) -> Option<Vec<&'a [u8]>> {
        Some(self.elements.iter().map(|element| element.member).collect())
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let found = cx.sorted_set()?;
        if found.is_none() && self.has(XX) {
            return unchanged(self.reply(&Outcome::default()));
        }
        let set = found.unwrap_or(SortedSet::EMPTY);
        let named =
            Named::find(&set, self.elements.iter().map(|element| element.member), cx.clock.seed);
        let mut addition = Addition::new(&set, &named, &self.elements);
        for (element, &slot) in self.elements.iter().zip(&named.slot_of) {
            self.add(&mut addition, element, slot)?;
        }
        let reply = self.reply(&addition.outcome);
        let (removed, added) = addition.changes(&named.slots);
        if added.is_empty() && addition.encoding == set.encoding() {
            return unchanged(reply);
        }
        cx.change_sorted_set(&set, set.changed(addition.encoding, removed, &added), reply)
    }
}

/// The effect of the elements so far.
#[derive(Default)]
struct Outcome {
    added: i64,
    updated: i64,
    /// The score of the last element, unless a condition kept it.
    score: Option<f64>,
}

/// The state of a sorted set while elements are added to it.
struct Addition {
    encoding: Encoding,
    len: usize,
    /// Of each slot.
    scores: Vec<Option<f64>>,
    is_changed: Vec<bool>,
    outcome: Outcome,
}

impl Addition {
    fn new(set: &SortedSet<'_>, named: &Named<'_>, elements: &[Element<'_>]) -> Addition {
        // redis-server chooses by the number of arguments, before it looks at them.
        let first_len = if set.is_empty() { elements[0].member.len() } else { 0 };
        Addition {
            encoding: set.encoding().or(Encoding::fitting(elements.len(), first_len)),
            len: set.len(),
            scores: named.slots.iter().map(|slot| slot.found.map(|found| found.score)).collect(),
            is_changed: vec![false; named.slots.len()],
            outcome: Outcome::default(),
        }
    }

    fn put(&mut self, slot: usize, score: f64) {
        self.scores[slot] = Some(self.encoding.keep(score));
        self.is_changed[slot] = true;
    }

    /// Ranks of the elements that go, and the elements that come, in order.
    fn changes<'a>(&self, slots: &[Slot<'a>]) -> (Vec<usize>, Vec<Element<'a>>) {
        let (mut removed, mut added) = (Vec::new(), Vec::new());
        for (at, slot) in slots.iter().enumerate().filter(|&(at, _)| self.is_changed[at]) {
            removed.extend(slot.found.map(|found| found.rank));
            added.extend(self.scores[at].map(|score| Element { score, member: slot.member }));
        }
        removed.sort_unstable();
        added.sort_unstable_by(Element::order);
        (removed, added)
    }
}

impl Add<'_> {
    fn has(&self, option: u8) -> bool {
        self.options & option != 0
    }

    fn add(&self, to: &mut Addition, element: &Element<'_>, slot: usize) -> Result<(), ErrorReply> {
        to.outcome.score = None;
        let Some(old) = to.scores[slot] else {
            if !self.has(XX) {
                to.len += 1;
                to.encoding = to.encoding.or(Encoding::fitting(to.len, element.member.len()));
                to.put(slot, element.score);
                to.outcome.added += 1;
                to.outcome.score = Some(element.score);
            }
            return Ok(());
        };
        if self.has(NX) {
            return Ok(());
        }
        let score = if self.has(INCR) { old + element.score } else { element.score };
        if score.is_nan() {
            return Err(SCORE_IS_NAN);
        }
        if (self.has(LT) && score >= old) || (self.has(GT) && score <= old) {
            return Ok(());
        }
        to.outcome.score = Some(score);
        if score != old {
            to.put(slot, score);
            to.outcome.updated += 1;
        }
        Ok(())
    }

    fn reply(&self, outcome: &Outcome) -> Reply {
        if self.has(INCR) {
            return outcome.score.map_or(Reply::Null, super::double);
        }
        let updated = if self.has(CH) { outcome.updated } else { 0 };
        Reply::Integer(outcome.added + updated)
    }
}
