//! `EVAL`, `EVALSHA`, `EVAL_RO` and `EVALSHA_RO`.

use crate::plan::Execution;
use crate::row::*;
use crate::spec::Flag::{NoMandatoryKeys, SkipMonitor};
use crate::spec::{KeyRange, LastKey};

pub(super) const MODULE: Module =
    Module { rows: &[EVAL, EVALSHA, EVAL_RO, EVALSHA_RO], operations: &[] };

const EVAL: CommandSpec = CommandSpec {
    name: "eval",
    arity: AtLeast(3),
    since: "2.6.0",
    summary: "Runs a Lua script as one transaction.",
    complexity: "Depends on the script that is executed.",
    arguments: &[Argument::string("script"), NUMKEYS, KEY, ARG],
    flags: &[NoScript, Stale, SkipMonitor, NoMandatoryKeys],
    keys: Some(KeyRange {
        first: 3,
        last: LastKey::Counted,
        step: 1,
        flags: &["RW", "access", "update"],
        notes: "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",
    }),
    access: Some(Access::Update),
    execution: Execution::Script,
    ..SCRIPTING
};

const EVALSHA: CommandSpec = CommandSpec {
    name: "evalsha",
    summary: "Runs the Lua script with this SHA1 digest as one transaction.",
    arguments: &[Argument::string("sha1"), NUMKEYS, KEY, ARG],
    keys: Some(KeyRange { first: 3, last: LastKey::Counted, step: 1, flags: RW, notes: "" }),
    ..EVAL
};

const EVAL_RO: CommandSpec = CommandSpec {
    name: "eval_ro",
    since: "7.0.0",
    summary: "Runs a Lua script that does not write.",
    flags: &[Readonly, NoScript, Stale, SkipMonitor, NoMandatoryKeys],
    keys: Some(KeyRange {
        first: 3,
        last: LastKey::Counted,
        step: 1,
        flags: RO,
        notes: "We cannot tell how the keys will be used so we assume the worst, RO and ACCESS",
    }),
    access: Some(Access::Read),
    ..EVAL
};

const EVALSHA_RO: CommandSpec = CommandSpec {
    name: "evalsha_ro",
    summary: "Runs the Lua script with this SHA1 digest, which does not write.",
    arguments: EVALSHA.arguments,
    keys: Some(KeyRange { first: 3, last: LastKey::Counted, step: 1, flags: RO, notes: "" }),
    ..EVAL_RO
};

const RW: &[&str] = &["RW", "access", "update"];
const RO: &[&str] = &["RO", "access"];
const NUMKEYS: Argument = Argument::integer("numkeys");
const KEY: Argument = Argument::key().optional().multiple();
const ARG: Argument = Argument::string("arg").optional().multiple();
