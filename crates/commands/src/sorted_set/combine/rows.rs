//! The rows of the commands that combine sorted sets.

use types::Reply;

use super::{Operator, Use, run};
use crate::row::*;
use crate::sorted_set::zrange::WITH_SCORES;
use crate::space::{Halt, Space};

pub(in crate::sorted_set) const MODULE: Module = Module { rows: ROWS, operations: &[] };

const ROWS: &[CommandSpec] = &[
    CommandSpec {
        name: "zdiff",
        since: "6.2.0",
        summary: "Answers the elements of the first sorted set that no other one has.",
        complexity: OF_ALL,
        arguments: &[NUMKEYS, Argument::key().multiple(), WITH_SCORES],
        execution: Keys(diff),
        ..ANSWER
    },
    CommandSpec {
        name: "zdiffstore",
        since: "6.2.0",
        summary: "Stores the elements of the first sorted set that no other one has.",
        complexity: OF_ALL,
        arguments: &[DESTINATION, NUMKEYS, Argument::key().multiple()],
        execution: Keys(diff_store),
        ..STORE
    },
    CommandSpec {
        name: "zinter",
        since: "6.2.0",
        summary: "Answers the members that all sorted sets have.",
        complexity: OF_ALL,
        arguments: &[NUMKEYS, Argument::key().multiple(), WEIGHTS, AGGREGATE, WITH_SCORES],
        execution: Keys(inter),
        ..ANSWER
    },
    CommandSpec {
        name: "zintercard",
        since: "7.0.0",
        summary: "Answers the number of members that all sorted sets have.",
        complexity: OF_ALL,
        arguments: &[
            NUMKEYS,
            Argument::key().multiple(),
            Argument::integer("limit").after("LIMIT").optional(),
        ],
        execution: Keys(inter_card),
        ..ANSWER
    },
    CommandSpec {
        name: "zinterstore",
        since: "2.0.0",
        summary: "Stores the members that all sorted sets have.",
        complexity: OF_ALL,
        arguments: &[DESTINATION, NUMKEYS, Argument::key().multiple(), WEIGHTS, AGGREGATE],
        execution: Keys(inter_store),
        ..STORE
    },
    CommandSpec {
        name: "zunion",
        since: "6.2.0",
        summary: "Answers the members of all sorted sets.",
        complexity: OF_ALL,
        arguments: &[NUMKEYS, Argument::key().multiple(), WEIGHTS, AGGREGATE, WITH_SCORES],
        execution: Keys(union),
        ..ANSWER
    },
    CommandSpec {
        name: "zunionstore",
        since: "2.0.0",
        summary: "Stores the members of all sorted sets.",
        complexity: OF_ALL,
        arguments: &[DESTINATION, NUMKEYS, Argument::key().multiple(), WEIGHTS, AGGREGATE],
        execution: Keys(union_store),
        ..STORE
    },
];

const OF_ALL: &str = "O(N*log(N)) where N is the number of elements of all keys.";

const NUMKEYS: Argument = Argument::integer("numkeys");
const DESTINATION: Argument = Argument::new("destination", ArgumentKind::Key);
const WEIGHTS: Argument = Argument::integer("weight").after("WEIGHTS").optional().multiple();
const AGGREGATE: Argument = Argument::one_of(
    "aggregate",
    &[Argument::word("sum", "SUM"), Argument::word("min", "MIN"), Argument::word("max", "MAX")],
)
.after("AGGREGATE")
.optional();

const ANSWER: CommandSpec = CommandSpec {
    arity: AtLeast(3),
    flags: &[Readonly],
    keys: counted_keys(2, &["RO", "access"]),
    access: Some(Access::Read),
    is_heavy: true,
    ..SORTED_SET
};

const STORE: CommandSpec = CommandSpec {
    arity: AtLeast(4),
    flags: &[Write, DenyOom],
    keys: one_key(&["OW", "update"]),
    more_keys: &[counted(3, &["RO", "access"])],
    access: Some(Access::Update),
    is_heavy: true,
    ..SORTED_SET
};

fn diff(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    run(args, space, Operator::Difference, Use::Answer)
}

fn diff_store(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    run(args, space, Operator::Difference, Use::Store)
}

fn inter(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    run(args, space, Operator::Intersection, Use::Answer)
}

fn inter_card(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    run(args, space, Operator::Intersection, Use::Count)
}

fn inter_store(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    run(args, space, Operator::Intersection, Use::Store)
}

fn union(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    run(args, space, Operator::Union, Use::Answer)
}

fn union_store(args: &Arguments<'_>, space: &mut Space) -> Result<Reply, Halt> {
    run(args, space, Operator::Union, Use::Store)
}
