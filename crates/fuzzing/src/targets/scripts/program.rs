//! Lua programs out of a fuzzer's bytes. They are well-formed, and use every library wrongly.

use crate::input::Input;

/// Bytes of a program, about.
const LEN_MAX: usize = 3_000;
const DEPTH_MAX: usize = 4;

/// Builds one program.
pub(super) struct Builder<'a> {
    input: Input<'a>,
    text: String,
}

const VARIABLES: &[&str] = &["a", "b", "c", "d", "KEYS", "ARGV", "_G", "redis", "g", "string"];

const NUMBERS: &[&str] = &[
    "0", "1", "-1", "2", "3", "7", "0.5", "-0", "1e15", "1e16", "1e308", "-1e308", "1/0", "0/0",
    "255", "256", "65536", "2^31", "-2^31", "2^32", "2^53", "2^63", "100000",
];

const STRINGS: &[&str] = &[
    "''",
    "'x'",
    "'k'",
    "'other'",
    "'12'",
    "'0x10'",
    "'1e3'",
    "'\\0\\255'",
    "'%a*(.-)%1'",
    "'%f[%w]%b()[^%s]+$'",
    "'(()'",
    "'%5.3f %q %s %c %d %x'",
    "'>I4s0hB!4'",
    "'<d c0 c3 i16'",
    "'[1,{\"a\":null,\"b\":[[]]},-0,1e999]'",
    "'\\147\\1\\130\\161a\\192\\203'",
    "'return redis'",
    "'g = 1 return ...'",
    "'#!lua flags=no-writes\\n'",
    "string.rep('ab', 300)",
    "string.rep('(', 200)",
];

const FUNCTIONS: &[&str] = &[
    "assert",
    "collectgarbage",
    "error",
    "getfenv",
    "getmetatable",
    "ipairs",
    "load",
    "loadstring",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setfenv",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "xpcall",
    "coroutine.create",
    "coroutine.resume",
    "coroutine.running",
    "coroutine.status",
    "coroutine.wrap",
    "coroutine.yield",
    "math.abs",
    "math.floor",
    "math.fmod",
    "math.frexp",
    "math.ldexp",
    "math.max",
    "math.modf",
    "math.random",
    "math.randomseed",
    "os.clock",
    "string.byte",
    "string.char",
    "string.dump",
    "string.find",
    "string.format",
    "string.gmatch",
    "string.gsub",
    "string.len",
    "string.lower",
    "string.match",
    "string.rep",
    "string.reverse",
    "string.sub",
    "table.concat",
    "table.foreach",
    "table.foreachi",
    "table.getn",
    "table.insert",
    "table.maxn",
    "table.remove",
    "table.setn",
    "table.sort",
    "bit.arshift",
    "bit.band",
    "bit.bnot",
    "bit.bor",
    "bit.bswap",
    "bit.lshift",
    "bit.rol",
    "bit.tobit",
    "bit.tohex",
    "cjson.decode",
    "cjson.decode_array_with_array_mt",
    "cjson.decode_invalid_numbers",
    "cjson.decode_max_depth",
    "cjson.encode",
    "cjson.encode_invalid_numbers",
    "cjson.encode_keep_buffer",
    "cjson.encode_max_depth",
    "cjson.encode_number_precision",
    "cjson.encode_sparse_array",
    "cjson.new",
    "cmsgpack.pack",
    "cmsgpack.unpack",
    "cmsgpack.unpack_limit",
    "cmsgpack.unpack_one",
    "struct.pack",
    "struct.size",
    "struct.unpack",
    "redis.acl_check_cmd",
    "redis.breakpoint",
    "redis.call",
    "redis.debug",
    "redis.error_reply",
    "redis.log",
    "redis.pcall",
    "redis.replicate_commands",
    "redis.set_repl",
    "redis.setresp",
    "redis.sha1hex",
    "redis.status_reply",
];

const METHODS: &[&str] =
    &["byte", "find", "format", "gmatch", "gsub", "len", "match", "rep", "reverse", "sub", "upper"];

const COMMANDS: &[&str] = &[
    "'get',KEYS[1]",
    "'set',KEYS[1]",
    "'append',KEYS[1]",
    "'incrby',KEYS[1]",
    "'del',KEYS[1]",
    "'rpush',KEYS[1]",
    "'lrange',KEYS[1],0",
    "'hset',KEYS[1],'f'",
    "'hgetall',KEYS[1]",
    "'zadd',KEYS[1],1",
    "'zrange',KEYS[1],0,-1",
    "'sadd',KEYS[1]",
    "'setrange',KEYS[1]",
    "'bitfield',KEYS[1],'set','u8',0",
    "'dump',KEYS[1]",
    "'restore',KEYS[1],0",
    "'get'",
    "'mget',KEYS[1]",
    "'sort',KEYS[1],'by'",
    "'eval'",
    "'time'",
    "'config','get'",
    "'ping'",
];

const BINARY: &[&str] =
    &["+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or"];

const EVENTS: &[&str] = &[
    "__index",
    "__newindex",
    "__call",
    "__concat",
    "__eq",
    "__lt",
    "__le",
    "__unm",
    "__len",
    "__add",
    "__mode",
    "__gc",
    "__metatable",
    "__tostring",
];

impl<'a> Builder<'a> {
    pub(super) fn new(input: Input<'a>) -> Builder<'a> {
        Builder { input, text: String::from("local a, b, c, d = {}, 'x', 0, KEYS ") }
    }

    /// The program that the rest of the bytes is.
    pub(super) fn build(mut self) -> String {
        while !self.input.is_empty() && self.text.len() < LEN_MAX {
            self.statement(0);
        }
        self.put("return ");
        self.expression(0);
        self.text
    }

    fn put(&mut self, text: &str) {
        self.text.push_str(text);
    }

    fn pick(&mut self, all: &[&str]) {
        let at = usize::from(self.input.u8()) % all.len();
        self.text.push_str(all[at]);
    }

    /// Deep parts and parts of programs that are long enough are simple.
    fn may_nest(&self, depth: usize) -> bool {
        depth < DEPTH_MAX && self.text.len() < LEN_MAX
    }

    fn block(&mut self, depth: usize) {
        for _ in 0..=self.input.u8() % 3 {
            self.statement(depth + 1);
        }
    }

    fn statement(&mut self, depth: usize) {
        let kind = self.input.u8();
        match kind % 16 {
            0..4 => {
                self.pick(&["a", "b", "c", "d", "local a", "local e"]);
                self.put(" = ");
                self.expression(depth);
            }
            4 => {
                self.pick(VARIABLES);
                self.put("[");
                self.expression(depth);
                self.put("] = ");
                self.expression(depth);
            }
            5 => self.metatable(depth),
            6 if self.may_nest(depth) => {
                self.pick(&["while ", "if "]);
                let is_loop = self.text.ends_with("while ");
                self.expression(depth);
                self.put(if is_loop { " do " } else { " then " });
                self.block(depth);
                self.put("end");
            }
            7 if self.may_nest(depth) => {
                self.put("for i = 1, ");
                self.expression(depth);
                self.put(" do ");
                self.block(depth);
                self.put("end");
            }
            8 if self.may_nest(depth) => {
                self.put("for k, v in ");
                self.pick(&["pairs(a)", "ipairs(d)", "string.gmatch(b, '.')", "a", "next, a"]);
                self.put(" do ");
                self.block(depth);
                self.put("end");
            }
            9 if self.may_nest(depth) => {
                self.put("repeat ");
                self.block(depth);
                self.put("until ");
                self.expression(depth);
            }
            10 => self.put("pcall(rawset, _G, 'g', 1)"),
            11 => {
                self.put("g = ");
                self.expression(depth);
            }
            12 => {
                self.put("pcall(setfenv, ");
                self.expression(depth);
                self.put(", a)");
            }
            _ => {
                self.put("pcall(");
                self.pick(FUNCTIONS);
                self.arguments(depth, true);
                self.put(")");
            }
        }
        self.put("; ");
    }

    fn metatable(&mut self, depth: usize) {
        self.put("a = setmetatable({}, {");
        self.pick(EVENTS);
        self.put(" = ");
        self.expression(depth);
        self.put("})");
    }

    fn arguments(&mut self, depth: usize, are_further: bool) {
        for number in 0..self.input.u8() % 4 {
            if are_further || number > 0 {
                self.put(", ");
            }
            self.expression(depth + 1);
        }
    }

    fn expression(&mut self, depth: usize) {
        let kind = self.input.u8();
        let is_simple = !self.may_nest(depth);
        match kind % 16 {
            0 => self.pick(&["nil", "true", "false", "{}", "...", "ARGV[1]", "KEYS[1]"]),
            1 | 2 => self.pick(NUMBERS),
            3 | 4 => self.pick(STRINGS),
            5 => self.pick(FUNCTIONS),
            kind if is_simple || kind == 6 => self.pick(VARIABLES),
            7 => {
                self.put("(");
                self.expression(depth + 1);
                self.put(" ");
                self.pick(BINARY);
                self.put(" ");
                self.expression(depth + 1);
                self.put(")");
            }
            8 => {
                self.pick(&["-", "not ", "#"]);
                self.put("(");
                self.expression(depth + 1);
                self.put(")");
            }
            9 => {
                self.put("{");
                self.arguments(depth, false);
                self.put("}");
            }
            10 => {
                self.put("function(...) ");
                self.block(depth);
                self.put("return ");
                self.expression(depth + 1);
                self.put(" end");
            }
            11 => {
                self.pick(&["redis.call(", "redis.pcall("]);
                self.pick(COMMANDS);
                self.arguments(depth, true);
                self.put(")");
            }
            12 => {
                self.put("(");
                self.expression(depth + 1);
                self.put("):");
                self.pick(METHODS);
                self.put("(");
                self.arguments(depth, false);
                self.put(")");
            }
            13 => {
                self.put("a[");
                self.expression(depth + 1);
                self.put("]");
            }
            _ => {
                self.pick(FUNCTIONS);
                self.put("(");
                self.arguments(depth, false);
                self.put(")");
            }
        }
    }
}
