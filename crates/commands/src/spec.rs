//! The row of a command: the only source of its arity, keys, access and documentation.

use std::ops::Range;

use base::decimal::parse_i64;
use types::{Access, Clock, Reply};

use crate::errors::{self, ErrorReply};
use crate::plan::{Execution, Plan};

/// One command, or one subcommand.
#[derive(Debug)]
pub struct CommandSpec {
    /// Lower case. A subcommand follows its container and a bar: `client|getname`.
    pub name: &'static str,
    /// Counts the names of command and subcommand.
    pub arity: Arity,
    /// The first version of Redis that had it, or of Valkey where the summary says so.
    pub since: &'static str,
    pub summary: &'static str,
    pub complexity: &'static str,
    pub group: Group,
    pub arguments: &'static [Argument],
    pub flags: &'static [Flag],
    /// Categories beyond those that the flags imply.
    pub categories: &'static [Category],
    /// Hints for clients that route or cache.
    pub tips: &'static [&'static str],
    pub deprecated: Option<Deprecated>,
    /// `None` when it has no keys.
    pub keys: Option<KeyRange>,
    /// Keys beyond those: the sources of a command that stores its result.
    pub more_keys: &'static [KeyRange],
    /// The greatest access of any call: `SET` without conditions is a plain write. `None` when no
    /// register runs it.
    pub access: Option<Access>,
    pub execution: Execution,
    /// The reply for a missing key. `None` for commands that are no lookups: Redis counts hits and
    /// misses of reads only.
    pub miss: Option<Miss>,
    /// A worker may refuse its run, even if it runs alone. See [`crate::Budget`].
    pub is_heavy: bool,
    pub subcommands: &'static [CommandSpec],
}

/// The reply of a read that finds no key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Miss {
    Null,
    /// An empty string or collection.
    Empty,
    Integer(i64),
    Simple(&'static str),
}

impl Miss {
    #[must_use]
    pub fn is(self, reply: &Reply) -> bool {
        match (self, reply) {
            (Miss::Null, Reply::Null) => true,
            (Miss::Empty, Reply::Bulk(bytes)) => bytes.is_empty(),
            (Miss::Empty, Reply::Array(all) | Reply::Set(all)) => all.is_empty(),
            (Miss::Empty, Reply::Map(all) | Reply::Pairs(all)) => all.is_empty(),
            (Miss::Integer(miss), Reply::Integer(value)) => miss == *value,
            (Miss::Simple(miss), Reply::Simple(text)) => miss == text,
            _ => false,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arity {
    Exactly(usize),
    AtLeast(usize),
}

/// Where the keys are: `first`, then every `step` arguments up to `last`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyRange {
    pub first: usize,
    pub last: LastKey,
    pub step: usize,
    /// Their use, in the words of Redis' key specifications: `RW access update`.
    pub flags: &'static [&'static str],
    /// A remark on that use, for people. Mostly empty.
    pub notes: &'static str,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastKey {
    /// The first key is the only one.
    First,
    /// The argument after the first key.
    Next,
    /// The last argument.
    End,
    /// The argument before the first key is the number of keys.
    Counted,
    /// There is one only behind this word, which stands at `first` or later.
    After(&'static str),
    /// No argument names one. Patterns from `first` on do, if they have a star.
    Hidden,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Group {
    String,
    Bitmap,
    HyperLogLog,
    Hash,
    List,
    Set,
    SortedSet,
    Scripting,
    Generic,
    Connection,
    Server,
    Cluster,
    Transactions,
}

/// Redis' command flags, in the order in which `COMMAND INFO` lists them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Flag {
    Write,
    Readonly,
    DenyOom,
    Admin,
    NoScript,
    Loading,
    Stale,
    SkipMonitor,
    SkipSlowlog,
    Fast,
    NoAuth,
    AllowBusy,
    NoMandatoryKeys,
}

/// Redis' access control categories, in the order in which `COMMAND INFO` lists them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Category {
    Keyspace,
    Read,
    Write,
    Set,
    SortedSet,
    List,
    Hash,
    String,
    Bitmap,
    HyperLogLog,
    Admin,
    Fast,
    Slow,
    Dangerous,
    Connection,
    Transaction,
    Scripting,
}

#[derive(Clone, Copy, Debug)]
pub struct Deprecated {
    pub since: &'static str,
    pub replaced_by: &'static str,
}

/// An argument as `COMMAND DOCS` describes it.
#[derive(Debug)]
pub struct Argument {
    pub name: &'static str,
    /// The text that stands for the argument in a syntax: mostly the name.
    pub display: &'static str,
    pub kind: ArgumentKind,
    /// The word that stands before it, or for a pure token, instead of it.
    pub token: Option<&'static str>,
    pub optional: bool,
    pub multiple: bool,
    /// The token stands before each of several.
    pub multiple_token: bool,
    pub since: Option<&'static str>,
}

#[derive(Debug)]
pub enum ArgumentKind {
    Key,
    String,
    Integer,
    Double,
    UnixTime,
    Pattern,
    PureToken,
    /// All of these, in order.
    Block(&'static [Argument]),
    /// One of these.
    OneOf(&'static [Argument]),
}

impl CommandSpec {
    /// Checks the number of arguments, the command's name included.
    ///
    /// # Errors
    /// Redis' "wrong number of arguments", to be sent as it is.
    pub fn check_arity(&self, argc: usize) -> Result<(), ErrorReply> {
        let fits = match self.arity {
            Arity::Exactly(count) => argc == count,
            Arity::AtLeast(count) => argc >= count,
        };
        if fits { Ok(()) } else { Err(errors::wrong_arity(self.name)) }
    }

    /// Parses `args`, the command's name included. No part of the command has run before that, so
    /// an error of syntax leaves no trace. A container has no plan: see
    /// [`resolve`](crate::resolve).
    ///
    /// # Errors
    /// The reply to send, with Redis' text.
    pub fn plan(&'static self, args: &[&[u8]], clock: Clock) -> Result<Plan, ErrorReply> {
        crate::plan::plan(self, args, clock)
    }

    /// The subcommand called `name`, in any case.
    #[must_use]
    pub fn subcommand(&'static self, name: &[u8]) -> Option<&'static CommandSpec> {
        self.subcommands.iter().find(|sub| sub.short_name().as_bytes().eq_ignore_ascii_case(name))
    }

    /// The name without its container's.
    #[must_use]
    pub fn short_name(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(_, short)| short)
    }

    /// The container of a subcommand; the name of any other command.
    #[must_use]
    pub fn container(&self) -> &'static str {
        self.name.split_once('|').map_or(self.name, |(container, _)| container)
    }

    #[must_use]
    pub fn has(&self, flag: Flag) -> bool {
        self.flags.contains(&flag)
    }

    /// A call may change a key.
    #[must_use]
    pub fn may_write(&self) -> bool {
        self.has(Flag::Write) || self.access.is_some_and(|access| access != Access::Read)
    }

    /// The categories of the row, and those that its flags imply, in order.
    #[must_use]
    pub fn categories(&self) -> Vec<Category> {
        let mut all = self.categories.to_vec();
        for flag in self.flags {
            match flag {
                Flag::Write => all.push(Category::Write),
                Flag::Readonly => all.push(Category::Read),
                Flag::Admin => all.extend([Category::Admin, Category::Dangerous]),
                Flag::Fast => all.push(Category::Fast),
                _ => {}
            }
        }
        if !self.has(Flag::Fast) {
            all.push(Category::Slow);
        }
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Indexes of the keys among the arguments, in the order of the row. Empty when a count of keys
    /// does not fit.
    #[must_use]
    pub fn key_indexes(&self, args: &[&[u8]]) -> Vec<usize> {
        self.named_keys(args).into_iter().map(|(index, _)| index).collect()
    }

    /// [`key_indexes`](CommandSpec::key_indexes), each with its range.
    #[must_use]
    pub fn named_keys(&self, args: &[&[u8]]) -> Vec<(usize, &KeyRange)> {
        let mut keys = Vec::new();
        for range in self.keys.iter().chain(self.more_keys) {
            let len = keys.len();
            keys.extend(range.indexes(args).map(|index| (index, range)));
            if range.last == LastKey::Counted && keys.len() == len {
                return Vec::new();
            }
        }
        keys
    }

    /// The command may read keys that no argument names.
    #[must_use]
    pub fn reads_hidden_keys(&self, args: &[&[u8]]) -> bool {
        let has_stars = |keys: &KeyRange| {
            let patterns = args.get(keys.first..).unwrap_or_default();
            keys.last == LastKey::Hidden && patterns.iter().any(|arg| arg.contains(&b'*'))
        };
        self.more_keys.iter().any(has_stars)
    }

    /// Some keys are found only by reading other arguments.
    #[must_use]
    pub fn has_movable_keys(&self) -> bool {
        let is_movable = |keys: &KeyRange| {
            matches!(keys.last, LastKey::Counted | LastKey::After(_) | LastKey::Hidden)
        };
        self.keys.iter().chain(self.more_keys).any(is_movable)
    }

    /// First key, last key and step, for clients without key specifications. Ranges that follow
    /// each other are one; `None` when no key has a fixed place.
    #[must_use]
    pub fn plain_keys(&self) -> Option<(i64, i64, i64)> {
        let plain = |keys: &KeyRange| {
            let (first, step) = (keys.first as i64, keys.step as i64);
            match keys.last {
                LastKey::First => Some((first, first, step)),
                LastKey::Next => Some((first, first + 1, step)),
                LastKey::End => Some((first, -1, step)),
                LastKey::Counted | LastKey::After(_) | LastKey::Hidden => None,
            }
        };
        let mut all = self.keys.iter().chain(self.more_keys).filter_map(plain);
        let first = all.next()?;
        Some(all.fold(first, |(first, last, step), (next, end, _)| {
            if next == last + 1 { (first, end, step) } else { (first, last, step) }
        }))
    }
}

impl KeyRange {
    /// Indexes of the keys among the arguments.
    pub fn indexes(self, args: &[&[u8]]) -> impl Iterator<Item = usize> + use<> {
        let range = match self.last {
            LastKey::First => self.first..self.first + 1,
            LastKey::Next => self.first..self.first + 2,
            LastKey::End => self.first..args.len(),
            LastKey::Counted => self.counted(args),
            LastKey::After(word) => self.after(word, args),
            LastKey::Hidden => 0..0,
        };
        range.step_by(self.step)
    }

    fn counted(self, args: &[&[u8]]) -> Range<usize> {
        let count = args.get(self.first - 1).and_then(|count| parse_i64(count));
        let count = count.and_then(|count| usize::try_from(count).ok()).unwrap_or(0);
        match self.first.checked_add(count) {
            Some(end) if end <= args.len() => self.first..end,
            _ => 0..0,
        }
    }

    fn after(self, word: &str, args: &[&[u8]]) -> Range<usize> {
        let from = self.first.min(args.len());
        let is_word = |pair: &[&[u8]]| pair[0].eq_ignore_ascii_case(word.as_bytes());
        match args[from..].windows(2).rposition(is_word) {
            Some(at) => from + at + 1..from + at + 2,
            None => 0..0,
        }
    }
}

impl Arity {
    /// Redis' notation: a minimum is negative.
    #[must_use]
    pub fn signed(self) -> i64 {
        match self {
            Arity::Exactly(count) => count as i64,
            Arity::AtLeast(count) => -(count as i64),
        }
    }
}

impl Group {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Group::String => "string",
            Group::Bitmap => "bitmap",
            Group::HyperLogLog => "hyperloglog",
            Group::Hash => "hash",
            Group::List => "list",
            Group::Set => "set",
            Group::SortedSet => "sorted-set",
            Group::Scripting => "scripting",
            Group::Generic => "generic",
            Group::Connection => "connection",
            Group::Server => "server",
            Group::Cluster => "cluster",
            Group::Transactions => "transactions",
        }
    }
}

impl Flag {
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Flag::Write => "write",
            Flag::Readonly => "readonly",
            Flag::DenyOom => "denyoom",
            Flag::Admin => "admin",
            Flag::NoScript => "noscript",
            Flag::Loading => "loading",
            Flag::Stale => "stale",
            Flag::SkipMonitor => "skip_monitor",
            Flag::SkipSlowlog => "skip_slowlog",
            Flag::Fast => "fast",
            Flag::NoAuth => "no_auth",
            Flag::AllowBusy => "allow_busy",
            Flag::NoMandatoryKeys => "no_mandatory_keys",
        }
    }
}

impl Category {
    /// With the `@` that access rules write before it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Category::Keyspace => "@keyspace",
            Category::Read => "@read",
            Category::Write => "@write",
            Category::Set => "@set",
            Category::SortedSet => "@sortedset",
            Category::List => "@list",
            Category::Hash => "@hash",
            Category::String => "@string",
            Category::Bitmap => "@bitmap",
            Category::HyperLogLog => "@hyperloglog",
            Category::Admin => "@admin",
            Category::Fast => "@fast",
            Category::Slow => "@slow",
            Category::Dangerous => "@dangerous",
            Category::Connection => "@connection",
            Category::Transaction => "@transaction",
            Category::Scripting => "@scripting",
        }
    }
}

impl ArgumentKind {
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            ArgumentKind::Key => "key",
            ArgumentKind::String => "string",
            ArgumentKind::Integer => "integer",
            ArgumentKind::Double => "double",
            ArgumentKind::UnixTime => "unix-time",
            ArgumentKind::Pattern => "pattern",
            ArgumentKind::PureToken => "pure-token",
            ArgumentKind::Block(_) => "block",
            ArgumentKind::OneOf(_) => "oneof",
        }
    }

    /// The arguments within this one.
    #[must_use]
    pub fn parts(&self) -> &'static [Argument] {
        match self {
            ArgumentKind::Block(parts) | ArgumentKind::OneOf(parts) => parts,
            _ => &[],
        }
    }
}

/// How rows write arguments.
impl Argument {
    pub(crate) const fn new(name: &'static str, kind: ArgumentKind) -> Argument {
        Argument {
            name,
            display: name,
            kind,
            token: None,
            optional: false,
            multiple: false,
            multiple_token: false,
            since: None,
        }
    }

    pub(crate) const fn key() -> Argument {
        Argument::new("key", ArgumentKind::Key)
    }

    pub(crate) const fn string(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::String)
    }

    pub(crate) const fn integer(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::Integer)
    }

    pub(crate) const fn unix_time(name: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::UnixTime)
    }

    pub(crate) const fn word(name: &'static str, token: &'static str) -> Argument {
        Argument::new(name, ArgumentKind::PureToken).after(token)
    }

    pub(crate) const fn one_of(name: &'static str, parts: &'static [Argument]) -> Argument {
        Argument::new(name, ArgumentKind::OneOf(parts))
    }

    pub(crate) const fn block(name: &'static str, parts: &'static [Argument]) -> Argument {
        Argument::new(name, ArgumentKind::Block(parts))
    }

    pub(crate) const fn shown(mut self, display: &'static str) -> Argument {
        self.display = display;
        self
    }

    pub(crate) const fn after(mut self, token: &'static str) -> Argument {
        self.token = Some(token);
        self
    }

    pub(crate) const fn optional(mut self) -> Argument {
        self.optional = true;
        self
    }

    pub(crate) const fn multiple(mut self) -> Argument {
        self.multiple = true;
        self
    }

    /// [`Argument::multiple`], each after the token.
    pub(crate) const fn multiple_tokens(mut self) -> Argument {
        self.multiple_token = true;
        self.multiple()
    }

    pub(crate) const fn since(mut self, version: &'static str) -> Argument {
        self.since = Some(version);
        self
    }
}
