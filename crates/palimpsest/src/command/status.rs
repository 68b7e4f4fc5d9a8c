//! `palimpsest status`: what the nodes say of themselves over their admin ports.

use std::time::Duration;

use serde_json::Value;

use crate::{Failure, config};

#[derive(clap::Args)]
#[command(
    after_help = "Example:\n  palimpsest status --address 127.0.0.1:7379 --address 127.0.0.1:7380"
)]
pub(crate) struct Args {
    /// Admin address of a node; may be given more than once
    #[arg(long = "address", value_name = "HOST:PORT", env = "PALIMPSEST_ADDR", value_delimiter = ',',
          default_values_t = ["127.0.0.1:7379".to_string(), "127.0.0.1:7380".to_string(), "127.0.0.1:7381".to_string()])]
    addresses: Vec<String>,
    /// As JSON, one object per node
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    for address in &args.addresses {
        config::look_up("--address", address)?;
    }
    let answers: Vec<(&String, Answer)> =
        args.addresses.iter().map(|address| (address, ask(address))).collect();
    if args.json {
        let found: Vec<&Value> =
            answers.iter().filter_map(|(_, answer)| answer.as_ref().ok()).collect();
        println!("{:#}", Value::from(found.into_iter().cloned().collect::<Vec<_>>()));
    } else {
        print_table(&answers);
    }
    let mut found = answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
    if answers.iter().all(|(_, answer)| answer.is_err()) {
        if answers.iter().any(|(_, answer)| *answer == Err(Silence::WantsPassword)) {
            let text = "the nodes want their password: put it into PALIMPSEST_PASSWORD";
            return Err(Failure::fault(text));
        }
        let asked = args.addresses.join(", ");
        return Err(Failure::fault(format!(
            "no node answers at {asked}: give --address of one that runs"
        )));
    }
    match found.any(|status| status["ready"] == true) {
        true => Ok(()),
        false => Err(Failure::fault("no node that answered reaches a quorum")),
    }
}

/// What a node says of itself, or why it does not.
type Answer = Result<Value, Silence>;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Silence {
    NoAnswer,
    WantsPassword,
}

impl From<ureq::Error> for Silence {
    fn from(error: ureq::Error) -> Silence {
        match error {
            ureq::Error::StatusCode(401) => Silence::WantsPassword,
            _ => Silence::NoAnswer,
        }
    }
}

fn ask(address: &str) -> Answer {
    let agent: ureq::Agent =
        ureq::Agent::config_builder().timeout_global(Some(Duration::from_secs(2))).build().into();
    let url = format!("http://{address}/api/v1/status");
    let mut request = agent.get(url);
    if let Ok(password) = std::env::var("PALIMPSEST_PASSWORD") {
        request = request
            .header("Authorization", format!("Basic {}", base64(&format!("default:{password}"))));
    }
    Ok(request.call()?.body_mut().read_json()?)
}

/// RFC 4648, section 4.
fn base64(text: &str) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in text.as_bytes().chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

fn print_table(answers: &[(&String, Answer)]) {
    println!(
        "{:<22} {:>5} {:<7} {:<8} {:>8} {:>6}  phase",
        "admin", "node", "ready", "members", "clients", "up"
    );
    for (address, answer) in answers {
        let status = match answer {
            Ok(status) => status,
            Err(Silence::NoAnswer) => {
                println!("{address:<22} {:>5} no answer", "-");
                continue;
            }
            Err(Silence::WantsPassword) => {
                println!("{address:<22} {:>5} wants a password", "-");
                continue;
            }
        };
        let members = status["members"].as_array().cloned().unwrap_or_default();
        let up = members.iter().filter(|member| member["up"] == true).count();
        println!(
            "{address:<22} {:>5} {:<7} {:<8} {:>8} {:>5}s  {}",
            status["node"],
            if status["ready"] == true { "yes" } else { "no" },
            format!("{up}/{}", members.len()),
            status["clients"],
            status["uptime_ms"].as_u64().unwrap_or(0) / 1_000,
            status["phase"].as_str().unwrap_or("?"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded_as_http_wants_them() {
        assert_eq!(base64("user:pass"), "dXNlcjpwYXNz");
        assert_eq!(base64("a"), "YQ==");
        assert_eq!(base64("ab"), "YWI=");
    }
}
