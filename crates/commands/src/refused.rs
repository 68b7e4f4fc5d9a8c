//! Commands of Redis that this store refuses, each with the reason. They are no rows of the table.

use crate::errors::ErrorReply;

/// Names in lower case.
const REFUSED: &[(&str, &str)] = &[
    ("migrate", "send the reply of DUMP to RESTORE of the other server"),
    ("move", "a key stays in its database"),
    ("swapdb", "a database keeps its number"),
    ("waitaof", "there is no append-only file, see WAIT"),
];

/// The reply to a refused command.
pub(crate) fn error(name: &[u8]) -> Option<ErrorReply> {
    let is_named = |(refused, _): &&(&str, &str)| refused.as_bytes().eq_ignore_ascii_case(name);
    let (name, reason) = REFUSED.iter().find(is_named)?;
    Some(ErrorReply::new(format!("ERR '{name}' is not supported: {reason}").as_bytes()))
}

#[cfg(test)]
mod tests {
    use crate::table;

    #[test]
    fn refused_commands_are_no_rows() {
        for (name, _) in super::REFUSED {
            assert!(table::lookup(name.as_bytes()).is_none(), "{name}");
            assert_eq!(*name, name.to_ascii_lowercase());
        }
    }

    #[test]
    fn refused_commands_answer_their_reason() {
        let error = table::find(&[b"Move", b"k", b"1"]).expect_err("refused");
        assert_eq!(
            error.text().as_ref(),
            b"ERR 'move' is not supported: a key stays in its database"
        );
    }
}
