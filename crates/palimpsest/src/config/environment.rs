//! Variables of the environment: all that begin with our name must be known.

use std::collections::BTreeSet;

use crate::Failure;

const PREFIX: &str = "PALIMPSEST_";

/// Variables that no flag reads: the password, and those of tests and builds.
const BESIDE_FLAGS: [&str; 3] = [PASSWORD, "PALIMPSEST_BIN", "PALIMPSEST_COMMIT"];
const OF_TESTS: [&str; 2] = ["PALIMPSEST_TEST_", "PALIMPSEST_CHAOS_"];

pub(crate) const PASSWORD: &str = "PALIMPSEST_PASSWORD";

/// How alike a name must be to be offered, 1 being the same.
const LIKENESS_MIN: f64 = 0.8;

/// Refuses variables that begin with our name and that `cli` does not know.
pub(crate) fn check(cli: &clap::Command) -> Result<(), Failure> {
    let set = std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
    });
    refuse_unknown(set, &known(cli)).map_err(Failure::usage)
}

/// Every variable that a flag of `cli` or of its subcommands reads.
fn known(cli: &clap::Command) -> BTreeSet<String> {
    let of_flags = cli.get_arguments().filter_map(|flag| flag.get_env()?.to_str());
    let mut names: BTreeSet<String> = of_flags.chain(BESIDE_FLAGS).map(str::to_owned).collect();
    cli.get_subcommands().for_each(|command| names.append(&mut known(command)));
    names
}

fn refuse_unknown(
    set: impl Iterator<Item = (String, String)>,
    known: &BTreeSet<String>,
) -> Result<(), String> {
    for (name, value) in set {
        let is_ours = name.starts_with(PREFIX) && !OF_TESTS.iter().any(|of| name.starts_with(of));
        if !is_ours || known.contains(&name) || is_service_link(&name, &value) {
            continue;
        }
        let nearest = known
            .iter()
            .map(|one| (strsim::jaro_winkler(rest(&name), rest(one)), one))
            .max_by(|(one, _), (other, _)| one.total_cmp(other))
            .filter(|(likeness, _)| *likeness >= LIKENESS_MIN);
        return Err(match nearest {
            Some((_, nearest)) => format!("{name} is no known variable: did you mean {nearest}?"),
            None => format!("{name} is no known variable: unset it; --help names those there are"),
        });
    }
    Ok(())
}

fn rest(name: &str) -> &str {
    name.strip_prefix(PREFIX).unwrap_or(name)
}

/// Kubernetes and Docker links set these for a service of our name; they configure no node.
fn is_service_link(name: &str, value: &str) -> bool {
    let is_port = |rest: &str| {
        let (port, rest) = rest.split_once('_').unwrap_or((rest, ""));
        let kind = rest.split('_').next().unwrap_or_default();
        !port.is_empty()
            && port.bytes().all(|digit| digit.is_ascii_digit())
            && ["TCP", "UDP", "SCTP"].contains(&kind)
    };
    name.ends_with("_SERVICE_HOST")
        || name.contains("_SERVICE_PORT")
        || (name.ends_with("_PORT") && value.contains("://"))
        || name.split_once("_PORT_").is_some_and(|(_, rest)| is_port(rest))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn refusal(name: &str, value: &str) -> Option<String> {
        let known = known(&crate::Cli::command());
        refuse_unknown([(name.to_owned(), value.to_owned())].into_iter(), &known).err()
    }

    #[test]
    fn every_flag_of_serve_has_a_variable_of_its_name() {
        let cli = crate::Cli::command();
        let serve = cli.find_subcommand("serve").expect("it is there");
        for flag in serve.get_arguments() {
            let Some(long) = flag.get_long().filter(|long| *long != "help") else { continue };
            let expected = format!("{PREFIX}{}", long.replace('-', "_").to_uppercase());
            let env = flag.get_env().and_then(|name| name.to_str());
            assert_eq!(env, Some(expected.as_str()), "--{long}");
            assert_eq!(refusal(&expected, "x"), None);
        }
    }

    #[test]
    fn reference_page_lists_every_flag_of_serve() {
        let page = include_str!("../../../../docs/reference/configuration.md");
        let cli = crate::Cli::command();
        let serve = cli.find_subcommand("serve").expect("it is there");
        for flag in serve.get_arguments() {
            let Some(long) = flag.get_long().filter(|long| *long != "help") else { continue };
            assert!(page.contains(&format!("| `--{long}` |")), "--{long} has no row");
        }
    }

    #[test]
    fn unknown_variables_are_refused_with_the_nearest_name() {
        let why = refusal("PALIMPSEST_LISTN", "x").expect("it is unknown");
        assert!(why.ends_with("did you mean PALIMPSEST_LISTEN?"), "{why}");
        let why = refusal("PALIMPSEST_DATADIR", "x").expect("it is unknown");
        assert!(why.ends_with("did you mean PALIMPSEST_DATA_DIR?"), "{why}");
        let why = refusal("PALIMPSEST_QQQ", "").expect("it is unknown");
        assert!(!why.contains("did you mean"), "{why}");
    }

    #[test]
    fn variables_of_others_are_left_alone() {
        for (name, value) in [
            ("HOME", "/"),
            ("PALIMPSEST", "x"),
            ("PALIMPSEST_PASSWORD", "x"),
            ("PALIMPSEST_TEST_PYTHON", "x"),
            ("PALIMPSEST_SERVICE_HOST", "10.0.0.1"),
            ("PALIMPSEST_SERVICE_PORT_CLIENTS", "6379"),
            ("PALIMPSEST_CLIENTS_SERVICE_PORT", "6379"),
            ("PALIMPSEST_PORT", "tcp://10.0.0.1:6379"),
            ("PALIMPSEST_PORT_6379_TCP", "tcp://10.0.0.1:6379"),
            ("PALIMPSEST_PORT_6379_TCP_ADDR", "10.0.0.1"),
        ] {
            assert_eq!(refusal(name, value), None, "{name}");
        }
        assert!(refusal("PALIMPSEST_PORT", "6379").is_some());
    }
}
