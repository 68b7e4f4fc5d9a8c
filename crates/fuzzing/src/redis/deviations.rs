//! Where this store may answer otherwise than redis-server 7.0.15, and why. Everything else is the same to the byte.
//!
//! Commands whose replies are about the server itself are not drawn: `INFO`, `TIME`, `LOLWUT`, `CONFIG`, `COMMAND` but
//! for `GETKEYS`, `CLIENT ID`, `INFO`, `LIST`, `KILL`. Nor those that one of the two does not have: `DELEX`, `DELIFEQ`,
//! `DIGEST`, `ONCE`, `SET` with `IFEQ` and its like, `CLIENT CONSISTENCY`, `NO-TOUCH` and `SETINFO` here; what works on
//! types other than strings, transactions, scripts and channels there. Nor zero bytes in inline requests, at which
//! redis-server stops looking for the line's end and waits for ever; `CLIENT PAUSE`, which takes time; `RANDOMKEY`,
//! `SCAN` in steps or from a cursor that nobody gave, which draw, and `READONLY`, `READWRITE`, which redis-server refuses outside a cluster.

use resp::Reply;

/// One way in which replies may differ.
pub struct Deviation {
    pub name: &'static str,
    pub reason: &'static str,
    /// Of a command, our reply and theirs.
    allows: fn(&[Vec<u8>], &Reply, &Reply) -> bool,
}

/// Milliseconds between the two when they read their clocks, on a machine that is busy.
pub const MILLIS_SLACK: u64 = 5_000;
const SECONDS_SLACK: u64 = MILLIS_SLACK / 1_000;

/// All of them.
pub const DEVIATIONS: &[Deviation] = &[
    Deviation {
        name: "clocks",
        reason: "the two read their clocks at different moments: times to live differ by a little",
        allows: clocks,
    },
    Deviation {
        name: "order",
        reason: "Redis promises no order of keys: the same ones in KEYS and in a whole SCAN",
        allows: order,
    },
    Deviation {
        name: "hello",
        reason: "HELLO names the server, its version and the connection: the same fields, and the same protocol",
        allows: hello,
    },
    Deviation {
        name: "arguments-first",
        reason: "bad arguments are refused before the key is looked at (docs/reference/commands.md)",
        allows: arguments_first,
    },
    Deviation {
        name: "getkeys-of-one-word",
        reason: "COMMAND GETKEYS takes a command without arguments, as since Redis 7.2: another error",
        allows: getkeys_of_one_word,
    },
    Deviation {
        name: "dbsize",
        reason: "DBSIZE counts about (docs/reference/commands.md); redis-server's counts keys that have expired, too",
        allows: dbsize,
    },
    Deviation {
        name: "wait",
        reason: "WAIT counts the replicas that have the writes; the redis-server that is asked has none",
        allows: wait,
    },
    Deviation {
        name: "value-too-large",
        reason: "a value is at most max-value-size long, by default 1 MiB; in Redis 512 MiB",
        allows: value_too_large,
    },
    Deviation {
        name: "order-of-members",
        reason: "a hash table has no order: the same members of large sets and hashes, whose keys have a mark",
        allows: order_of_members,
    },
    Deviation {
        name: "random-members",
        reason: "the two draw other members: as many in SRANDMEMBER, HRANDFIELD and ZRANDMEMBER",
        allows: random_members,
    },
    Deviation {
        name: "encodings-of-strings",
        reason: "a string has the encoding that it has when it is set, whatever made it",
        allows: encodings_of_strings,
    },
    Deviation {
        name: "list-nodes",
        reason: "the nodes of a quicklist are not kept: short rests of two nodes are a listpack, and failed LSET and \
                 LINSERT convert no list",
        allows: list_nodes,
    },
];

/// Marks the keys of large sets and hashes.
pub(super) const UNORDERED: &str = "large:";

/// True where a reply to `args` may be `ours` though redis-server says `theirs`.
#[must_use]
pub fn allows(args: &[Vec<u8>], ours: &[u8], theirs: &[u8]) -> bool {
    let (Ok(ours), Ok(theirs)) = (Reply::from_bytes(ours), Reply::from_bytes(theirs)) else {
        return false;
    };
    DEVIATIONS.iter().any(|deviation| (deviation.allows)(args, &ours, &theirs))
}

fn is(args: &[Vec<u8>], names: &[&str]) -> bool {
    names.iter().any(|name| args[0].eq_ignore_ascii_case(name.as_bytes()))
}

fn clocks(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let slack = match () {
        () if is(args, &["TTL", "EXPIRETIME", "HTTL", "HEXPIRETIME"]) => SECONDS_SLACK,
        () if is(args, &["PTTL", "PEXPIRETIME", "HPTTL", "HPEXPIRETIME"]) => MILLIS_SLACK,
        () => return false,
    };
    let is_near = |(ours, theirs): (&Reply, &Reply)| match (ours, theirs) {
        (Reply::Integer(a), Reply::Integer(b)) => {
            a == b || *a > 0 && *b > 0 && a.abs_diff(*b) <= slack
        }
        _ => false,
    };
    match (ours, theirs) {
        (Reply::Array(a), Reply::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(is_near),
        both => is_near(both),
    }
}

fn order(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    if is(args, &["KEYS"]) {
        return same_elements(ours, theirs);
    }
    match (ours, theirs) {
        (Reply::Array(a), Reply::Array(b))
            if is(args, &["SCAN"]) && a.len() == 2 && b.len() == 2 =>
        {
            a[0] == b[0] && same_elements(&a[1], &b[1])
        }
        _ => false,
    }
}

fn same_elements(ours: &Reply, theirs: &Reply) -> bool {
    let sorted = |reply: &Reply| {
        let Reply::Array(elements) = reply else { return None };
        let mut elements: Vec<String> = elements.iter().map(|one| format!("{one:?}")).collect();
        elements.sort();
        Some(elements)
    };
    sorted(ours).is_some() && sorted(ours) == sorted(theirs)
}

fn hello(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let fields = |reply: &Reply| -> Option<Vec<(Reply, Option<Reply>)>> {
        let pairs: Vec<(Reply, Reply)> = match reply {
            Reply::Map(pairs) => pairs.clone(),
            Reply::Array(all) if all.len().is_multiple_of(2) => {
                all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect()
            }
            _ => return None,
        };
        let names_it = |name: &Reply| matches!(name, Reply::Bulk(name) if [&b"version"[..], b"id"].contains(&name.as_slice()));
        Some(
            pairs
                .into_iter()
                .map(
                    |(name, value)| {
                        if names_it(&name) { (name, None) } else { (name, Some(value)) }
                    },
                )
                .collect(),
        )
    };
    is(args, &["HELLO"]) && fields(ours).is_some() && fields(ours) == fields(theirs)
}

fn arguments_first(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let refused = matches!(ours, Reply::Error(_));
    match theirs {
        Reply::Null => is(args, &["GETEX"]) && refused,
        Reply::Error(_) => {
            let is_on_ends = args.iter().any(|arg| arg.to_ascii_uppercase().starts_with(b"FIELD"));
            (is(args, &["GETEX", "INCRBYFLOAT", "HSCAN"]) || is_on_ends) && refused
        }
        Reply::Array(page) => {
            let is_miss = page.get(1) == Some(&Reply::Array(Vec::new()));
            is(args, &["HSCAN"]) && refused && is_miss
        }
        _ => false,
    }
}

fn getkeys_of_one_word(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let are_errors = matches!((ours, theirs), (Reply::Error(_), Reply::Error(_)));
    is(args, &["COMMAND"]) && args.len() == 3 && are_errors
}

fn dbsize(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    is(args, &["DBSIZE"]) && matches!((ours, theirs), (Reply::Integer(_), Reply::Integer(_)))
}

fn wait(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let counts = matches!(ours, Reply::Integer(count) if *count > 0);
    is(args, &["WAIT"]) && counts && *theirs == Reply::Integer(0)
}

fn value_too_large(_args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let says = |reply: &Reply, text: &[u8]| matches!(reply, Reply::Error(error) if error.starts_with(text));
    says(ours, b"ERR value too large") && says(theirs, b"ERR string exceeds maximum allowed size")
}

fn order_of_members(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let is_marked = |arg: &Vec<u8>| arg.starts_with(UNORDERED.as_bytes());
    let pairs =
        is(args, &["HGETALL"]) || is(args, &["HSCAN"]) && !args.ends_with(&[b"NOVALUES".to_vec()]);
    args.iter().any(is_marked)
        && members(ours, pairs).is_some()
        && members(ours, pairs) == members(theirs, pairs)
}

/// The members of a collection, or of a page of it behind its cursor.
fn members(reply: &Reply, pairs: bool) -> Option<Vec<String>> {
    let elements = match reply {
        Reply::Array(page) if matches!(page.as_slice(), [Reply::Bulk(_), Reply::Array(_)]) => {
            return members(&page[1], pairs);
        }
        Reply::Array(elements) | Reply::Set(elements) => elements,
        Reply::Map(fields) => return Some(sorted(fields.iter())),
        _ => return None,
    };
    Some(sorted(elements.chunks(1 + usize::from(pairs))))
}

fn sorted<T: std::fmt::Debug>(elements: impl Iterator<Item = T>) -> Vec<String> {
    let mut elements: Vec<String> = elements.map(|one| format!("{one:?}")).collect();
    elements.sort();
    elements
}

fn random_members(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let is_alike = match (ours, theirs) {
        (Reply::Bulk(_), Reply::Bulk(_)) => true,
        (Reply::Array(ours), Reply::Array(theirs)) => ours.len() == theirs.len(),
        _ => false,
    };
    is(args, &["SRANDMEMBER", "HRANDFIELD", "ZRANDMEMBER"]) && is_alike
}

fn encodings_of_strings(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let is_of_string = |reply: &Reply| match reply {
        Reply::Bulk(name) => [&b"int"[..], b"embstr", b"raw"].contains(&name.as_slice()),
        Reply::Integer(count) => [1, i64::from(i32::MAX)].contains(count),
        _ => false,
    };
    is(args, &["OBJECT"]) && is_of_string(ours) && is_of_string(theirs)
}

fn list_nodes(args: &[Vec<u8>], ours: &Reply, theirs: &Reply) -> bool {
    let is_it = |reply: &Reply, name: &[u8]| matches!(reply, Reply::Bulk(found) if found == name);
    let asks = args.get(1).is_some_and(|word| word.eq_ignore_ascii_case(b"ENCODING"));
    is(args, &["OBJECT"]) && asks && is_it(ours, b"listpack") && is_it(theirs, b"quicklist")
}
