//! `BITFIELD` and `BITFIELD_RO`: several fields of one string.

use base::decimal::parse_i64;
use types::wire::{Malformed, Reader};
use types::{Command, ExpiryChange, Reply};

use super::field::{Field, Overflow};
use super::{OFFSET_OUT_OF_RANGE, checked_offset, parse_offset, read_offset};
use crate::context::{Context, RunResult, unchanged};
use crate::errors::{self, ErrorReply};
use crate::operation::{self, Examples, Operation, Sink};
use crate::row::*;

pub(super) const MODULE: Module = Module { rows: ROWS, operations: handlers![BitField] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "bitfield",
        arity: AtLeast(2),
        since: "3.2.0",
        summary: "Reads and changes integers of some bits within the string at a key, all at one time.",
        complexity: "O(1) for each integer, O(N) for a change where N is the length of the string.",
        arguments: &[
            Argument::key(),
            Argument::one_of("operation", &[GET, WRITE]).multiple().optional(),
        ],
        flags: &[Write, DenyOom],
        keys: one_key_noted(
            &["RW", "access", "update", "variable_flags"],
            "This command allows both access and modification of the key",
        ),
        access: Some(Access::Update),
        execution: Key(plan),
        ..BITMAP
    },
    CommandSpec {
        name: "bitfield_ro",
        arity: AtLeast(2),
        since: "6.0.0",
        summary: "Reads integers of some bits within the string at a key.",
        complexity: "O(1) for each integer.",
        arguments: &[Argument::key(), GET.optional().multiple_tokens()],
        flags: &[Readonly, Fast],
        keys: one_key(&["RO", "access"]),
        access: Some(Access::Read),
        execution: Key(plan_read),
        ..BITMAP
    },
];

const GET: Argument =
    Argument::block("get-block", &[Argument::string("encoding"), Argument::integer("offset")])
        .after("GET");

const WRITE: Argument = Argument::block(
    "write",
    &[
        Argument::one_of(
            "overflow-block",
            &[
                Argument::word("wrap", "WRAP"),
                Argument::word("sat", "SAT"),
                Argument::word("fail", "FAIL"),
            ],
        )
        .after("OVERFLOW")
        .optional(),
        Argument::one_of(
            "write-operation",
            &[
                Argument::block(
                    "set-block",
                    &[
                        Argument::string("encoding"),
                        Argument::integer("offset"),
                        Argument::integer("value"),
                    ],
                )
                .after("SET"),
                Argument::block(
                    "incrby-block",
                    &[
                        Argument::string("encoding"),
                        Argument::integer("offset"),
                        Argument::integer("increment"),
                    ],
                )
                .after("INCRBY"),
            ],
        ),
    ],
);

const INVALID_OVERFLOW: ErrorReply = errors::fixed(b"ERR Invalid OVERFLOW type specified");
const READS_ONLY: ErrorReply = errors::fixed(b"ERR BITFIELD_RO only supports the GET subcommand");

fn plan(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let operation = BitField { steps: parse(&args.all[2..])? };
    let access = if operation.writes() { Access::Update } else { Access::Read };
    Ok(Command::new(access, operation.body()))
}

fn plan_read(args: &Arguments<'_>) -> Result<Command, ErrorReply> {
    let operation = BitField { steps: parse(&args.all[2..])? };
    if operation.writes() { Err(READS_ONLY) } else { Ok(args.command(&operation)) }
}

/// `OVERFLOW` holds for the steps behind it.
fn parse(mut rest: &[&[u8]]) -> Result<Vec<Step>, ErrorReply> {
    let (mut steps, mut overflow) = (Vec::new(), Overflow::Wrap);
    while let [word, tail @ ..] = rest {
        rest = match (word.to_ascii_uppercase().as_slice(), tail) {
            (b"GET", [kind, offset, tail @ ..]) => {
                let (field, offset) = place(kind, offset)?;
                steps.push(Step { field, offset, action: Action::Get });
                tail
            }
            (b"SET", [kind, offset, value, tail @ ..]) => {
                let ((field, offset), value) = (place(kind, offset)?, integer(value)?);
                steps.push(Step { field, offset, action: Action::Set { value, overflow } });
                tail
            }
            (b"INCRBY", [kind, offset, by, tail @ ..]) => {
                let ((field, offset), by) = (place(kind, offset)?, integer(by)?);
                steps.push(Step { field, offset, action: Action::Add { by, overflow } });
                tail
            }
            (b"OVERFLOW", [kind, tail @ ..]) => {
                overflow = match kind.to_ascii_uppercase().as_slice() {
                    b"WRAP" => Overflow::Wrap,
                    b"SAT" => Overflow::Saturate,
                    b"FAIL" => Overflow::Fail,
                    _ => return Err(INVALID_OVERFLOW),
                };
                tail
            }
            _ => return Err(errors::SYNTAX),
        };
    }
    Ok(steps)
}

/// `#n` is the offset of field `n` in a string of such fields.
fn place(kind: &[u8], offset: &[u8]) -> Result<(Field, u64), ErrorReply> {
    let field = Field::parse(kind)?;
    let offset = match offset {
        [b'#', index @ ..] => {
            let index = parse_i64(index).and_then(|index| index.checked_mul(field.bits.into()));
            index.and_then(checked_offset).ok_or(OFFSET_OUT_OF_RANGE)?
        }
        bits => parse_offset(bits)?,
    };
    Ok((field, offset))
}

fn integer(text: &[u8]) -> Result<i64, ErrorReply> {
    parse_i64(text).ok_or(errors::NOT_AN_INTEGER)
}

/// Steps that run one after the other. A string is as long as the writes need it, even if all of
/// them fail.
struct BitField {
    steps: Vec<Step>,
}

struct Step {
    field: Field,
    offset: u64,
    action: Action,
}

#[derive(Clone, Copy)]
enum Action {
    Get,
    Set { value: i64, overflow: Overflow },
    Add { by: i64, overflow: Overflow },
}

impl BitField {
    fn writes(&self) -> bool {
        self.written_len() > 0
    }

    /// Bytes up to the last one that a step writes.
    fn written_len(&self) -> u64 {
        let writing = self.steps.iter().filter(|step| !matches!(step.action, Action::Get));
        writing.map(|step| step.field.end(step.offset)).max().unwrap_or(0)
    }
}

impl Step {
    /// The reply.
    fn run(&self, string: &mut [u8]) -> Reply {
        let &Step { field, offset, action } = self;
        let old = field.read(string, offset);
        let (new, overflow) = match action {
            Action::Get => return number(old),
            Action::Set { value, overflow } => (field.meant(value), overflow),
            Action::Add { by, overflow } => (old + i128::from(by), overflow),
        };
        let Some(new) = field.fit(new, overflow) else { return Reply::Null };
        field.write(string, offset, new);
        number(if matches!(action, Action::Set { .. }) { old } else { new })
    }

    fn encode(&self, out: &mut impl Sink) {
        let (action, overflow, operand) = match self.action {
            Action::Get => (0, Overflow::Wrap, None),
            Action::Set { value, overflow } => (1, overflow, Some(value)),
            Action::Add { by, overflow } => (2, overflow, Some(by)),
        };
        out.byte(action | (overflow as u8) << 2 | u8::from(self.field.is_signed) << 4);
        out.byte(self.field.bits);
        out.varint(self.offset);
        if let Some(operand) = operand {
            out.integer(operand);
        }
    }

    fn decode(fields: &mut Reader<'_>) -> Result<Step, Malformed> {
        let marks = fields.u8()?;
        let field = Field::new(marks & 0x10 != 0, fields.u8()?).ok_or(Malformed)?;
        let offset = read_offset(fields)?;
        let overflow = operation::variant(&Overflow::ALL, marks >> 2 & 3)?;
        let action = match marks & !0x1c {
            0 if overflow == Overflow::Wrap => Action::Get,
            1 => Action::Set { value: operation::integer(fields)?, overflow },
            2 => Action::Add { by: operation::integer(fields)?, overflow },
            _ => return Err(Malformed),
        };
        Ok(Step { field, offset, action })
    }
}

/// Every value of a field fits.
fn number(value: i128) -> Reply {
    Reply::Integer(value as i64)
}

impl Operation<'_> for BitField {
    const CODE: u8 = 148;
    const EXAMPLES: Examples = &[
        ("BITFIELD k", b"\x94"),
        ("BITFIELD k GET u8 #2", b"\x94\x00\x08\x10"),
        ("BITFIELD_RO k GET i64 300", b"\x94\x10\x40\xac\x02"),
        (
            "BITFIELD k OVERFLOW SAT SET i5 1 -1",
            b"\x94\x15\x05\x01\xff\xff\xff\xff\xff\xff\xff\xff",
        ),
        ("BITFIELD k OVERFLOW FAIL INCRBY u2 0 1", b"\x94\x0a\x02\x00\x01\0\0\0\0\0\0\0"),
    ];

    fn encode(&self, out: &mut impl Sink) {
        self.steps.iter().for_each(|step| step.encode(out));
    }

    fn decode(fields: &mut Reader<'_>) -> Result<BitField, Malformed> {
        let mut steps = Vec::new();
        while !fields.is_empty() {
            steps.push(Step::decode(fields)?);
        }
        Ok(BitField { steps })
    }

    fn run(&self, cx: &Context<'_>) -> RunResult {
        let found = cx.string()?;
        let string = found.unwrap_or_default();
        if !self.writes() {
            let read = |step: &Step| number(step.field.read(string, step.offset));
            return unchanged(Reply::array(self.steps.iter().map(read)));
        }
        let len = self.written_len().max(string.len() as u64);
        // Checks the length before it allocates as many bytes.
        cx.check_string(string, len)?;
        let mut new = vec![0; len as usize];
        new[..string.len()].copy_from_slice(string);
        let reply = Reply::array(self.steps.iter().map(|step| step.run(&mut new)));
        if found == Some(&new) {
            return unchanged(reply);
        }
        cx.change_string(string, &[&new], ExpiryChange::Keep, reply)
    }
}
