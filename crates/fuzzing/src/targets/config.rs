//! What operators write: the configuration file and the command line.

use palimpsest::{understand_arguments, understand_file};

use super::Target;
use crate::input::Input;

pub(super) const TARGET: Target = Target {
    name: "config",
    claim: "any file and any command line is understood, the same each time, or refused in one line",
    run,
    seeds,
    short: 30_000,
};

/// Words of one command line.
const WORDS_MAX: usize = 30;

fn run(data: &[u8]) {
    let mut input = Input::new(data);
    let is_file = input.u8().is_multiple_of(2);
    let text = String::from_utf8_lossy(input.rest());
    let error = if is_file { file(&text) } else { arguments(&text) };
    if let Some(error) = error {
        assert!(!error.is_empty() && !error.contains('\n'), "{error:?}");
    }
}

fn file(text: &str) -> Option<String> {
    let found = understand_file(text);
    assert_eq!(found, understand_file(text));
    match found {
        Err(error) => Some(error),
        Ok(config) => {
            assert_eq!(config.check(), Ok(()));
            assert_eq!(config.databases.len(), types::limits::DATABASES);
            None
        }
    }
}

fn arguments(text: &str) -> Option<String> {
    let words = text.split('\n').take(WORDS_MAX).map(str::to_owned);
    let words: Vec<String> = std::iter::once("palimpsest".to_owned()).chain(words).collect();
    understand_arguments(&words).err()
}

fn seeds() -> Vec<Vec<u8>> {
    let files = [
        "id = 1\nlisten = \"127.0.0.1:7000\"\nworkers = 3\nrequest-timeout = 100\nmax-value-size = 4096\n",
        "id = 2\ncluster = \"1=a:1@2,2=b:1\"\npeer-listen = \"b:10001\"\nadmin-listen = \"[::1]:80\"\n",
        "id = 1\ndurability = \"pmem\"\nprotocol = \"abd\"\ninsecure = true\n\
         [[database]]\nindex = 1\nprotocol = \"hermes\"\nreplicas = 3\n[[database]]\nindex = 15\n",
        "id = 65535\ndata-dir = \"x\"\npassword-file = \"p\"\ncluster-secret-file = \"s\"\n",
    ];
    let lines = [
        "serve --id 1 --listen 127.0.0.1:6379 --cluster 1=127.0.0.1:6379,2=127.0.0.1:6380",
        "serve --config f --durability disk --protocol rmwpaxos --workers 2 --request-timeout 5 --insecure",
        "dev --nodes 3 --port 7000 --data-dir d --durability volatile",
        "sim --protocol abd --nodes 3 --seed 1 --seeds 2 --ops 10 --faults drop,crash --medium disk",
        "verify dir",
        "status --json",
        "reset --yes",
        "version --json",
        "bench resp --help",
    ];
    let file = |text: &&str| [&[0], text.as_bytes()].concat();
    let line = |text: &&str| [&[1], text.replace(' ', "\n").as_bytes()].concat();
    files.iter().map(file).chain(lines.iter().map(line)).collect()
}
