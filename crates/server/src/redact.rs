//! Passwords are not shown to monitors, nor kept in the slow log.

use std::borrow::Cow;

use commands::{CommandSpec, Execution, SessionVerb};

const HIDDEN: &[u8] = b"(redacted)";

/// The arguments of a request without passwords.
pub(crate) fn redacted<'a, 'b>(spec: &CommandSpec, args: &'b [&'a [u8]]) -> Cow<'b, [&'a [u8]]> {
    let Execution::Session(verb) = spec.execution else { return Cow::Borrowed(args) };
    let is = |at: usize, word: &str| {
        args.get(at).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    let hides = |at: usize| match verb {
        SessionVerb::Auth => at > 0,
        // Also where no password is expected: it may be one.
        SessionVerb::Hello => at > 1 && (is(at - 1, "auth") || (at > 2 && is(at - 2, "auth"))),
        SessionVerb::ConfigSet => at > 2 && at % 2 == 1 && is(at - 1, "requirepass"),
        _ => false,
    };
    match verb {
        SessionVerb::Auth | SessionVerb::Hello | SessionVerb::ConfigSet => {
            let shown = args.iter().enumerate();
            shown.map(|(at, arg)| if hides(at) { HIDDEN } else { arg }).collect()
        }
        _ => Cow::Borrowed(args),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(line: &str) -> String {
        let args: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let spec = commands::find(&args).expect("it is a command");
        String::from_utf8_lossy(&redacted(spec, &args).join(&b' ')).into_owned()
    }

    #[test]
    fn passwords_are_hidden() {
        let hidden = "(redacted)";
        for (line, expected) in [
            ("AUTH pw", format!("AUTH {hidden}")),
            ("auth user pw", format!("auth {hidden} {hidden}")),
            ("HELLO 3 AUTH u pw SETNAME me", format!("HELLO 3 AUTH {hidden} {hidden} SETNAME me")),
            ("HELLO 9 auth u", format!("HELLO 9 auth {hidden}")),
            ("HELLO 2 SETNAME auth", "HELLO 2 SETNAME auth".into()),
            (
                "CONFIG SET timeout 3 RequirePass pw",
                format!("CONFIG SET timeout 3 RequirePass {hidden}"),
            ),
            ("CONFIG GET requirepass x", "CONFIG GET requirepass x".into()),
            ("SET auth pw", "SET auth pw".into()),
        ] {
            assert_eq!(shown(line), expected);
        }
    }
}
