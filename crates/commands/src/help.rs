//! The reply to `HELP` of a container, from the table.

use types::Reply;

use crate::docs;
use crate::errors::ErrorReply;
use crate::plan::Arguments;
use crate::table;

/// Subcommands with their summaries, in Redis' layout.
pub(crate) fn reply(args: &Arguments<'_>) -> Result<Reply, ErrorReply> {
    let container = args.spec.container();
    let upper = container.to_ascii_uppercase();
    let mut lines =
        vec![format!("{upper} <subcommand> [<arg> [value] [opt] ...]. Subcommands are:")];
    let spec = table::lookup(container.as_bytes());
    let (helps, others): (Vec<_>, Vec<_>) = spec
        .into_iter()
        .flat_map(|spec| spec.subcommands)
        .partition(|sub| sub.short_name() == "help");
    for sub in others.into_iter().chain(helps) {
        let syntax = docs::syntax(sub);
        lines.push(syntax.strip_prefix(&format!("{upper} ")).unwrap_or(&syntax).to_string());
        lines.push(format!("    {}", sub.summary));
    }
    Ok(Reply::array(lines.into_iter().map(Reply::simple)))
}
