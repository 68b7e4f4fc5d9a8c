//! The first line of a script: `#!lua flags=no-writes,allow-oom`.

/// The flags of a script.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Flags {
    /// There is a first line. Without one, all is allowed.
    pub(crate) is_declared: bool,
    pub(crate) no_writes: bool,
    pub(crate) allow_oom: bool,
}

/// The script says that it does not write.
#[must_use]
pub fn is_read_only(source: &[u8]) -> bool {
    source.starts_with(b"#!") && parse(source).is_ok_and(|(flags, _)| flags.no_writes)
}

/// Flags, and the length of the line without its end.
pub(crate) fn parse(source: &[u8]) -> Result<(Flags, usize), String> {
    let mut flags = Flags::default();
    if !source.starts_with(b"#!") {
        return Ok((flags, 0));
    }
    let Some(len) = source.iter().position(|&byte| byte == b'\n') else {
        return Err("Invalid script shebang".to_owned());
    };
    flags.is_declared = true;
    let line = String::from_utf8_lossy(&source[..len]);
    let mut words = line.split_ascii_whitespace();
    let engine = words.next().unwrap_or_default();
    if engine != "#!lua" {
        return Err(format!("Unexpected engine in script shebang: {engine}"));
    }
    for word in words {
        let Some(list) = word.strip_prefix("flags=") else {
            return Err(format!("Unknown lua shebang option: {word}"));
        };
        for flag in list.split(',').filter(|_| !list.is_empty()) {
            match flag {
                "no-writes" => flags.no_writes = true,
                "allow-oom" => flags.allow_oom = true,
                "allow-stale" | "no-cluster" | "allow-cross-slot-keys" => {}
                other => return Err(format!("Unexpected flag in script shebang: {other}")),
            }
        }
    }
    Ok((flags, len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_line_is_checked_word_by_word() {
        let declared = Flags { is_declared: true, ..Flags::default() };
        assert_eq!(parse(b"return 1"), Ok((Flags::default(), 0)));
        assert_eq!(parse(b"#!lua\nreturn 1"), Ok((declared, 5)));
        let flags = Flags { no_writes: true, allow_oom: true, ..declared };
        assert_eq!(parse(b"#!lua flags=no-writes,allow-oom\nx"), Ok((flags, 31)));
        for (line, text) in [
            ("#!lua", "Invalid script shebang"),
            ("#!python\nx", "Unexpected engine in script shebang: #!python"),
            ("#!lua name=x\nx", "Unknown lua shebang option: name=x"),
            ("#!lua flags=fly\nx", "Unexpected flag in script shebang: fly"),
        ] {
            assert_eq!(parse(line.as_bytes()), Err(text.to_owned()), "{line}");
        }
        assert!(is_read_only(b"#!lua flags=no-writes\nreturn 1"));
        assert!(!is_read_only(b"return 1"));
    }
}
