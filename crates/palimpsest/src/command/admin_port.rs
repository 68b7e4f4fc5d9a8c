//! Questions to the admin port of a node.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::http::Response;

/// A node that runs answers within this time.
const PATIENCE: Duration = Duration::from_secs(2);
/// An order may wait for the registers of the system database.
const ORDER_PATIENCE: Duration = Duration::from_secs(15);
/// Bytes of an answer at most.
const ANSWER_LEN_MAX: u64 = 1 << 20;

/// Why a node gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Silence {
    NoAnswer(String),
    WantsPassword,
    WrongPassword,
    /// It answers, and not as a node does.
    Stranger(String),
}

impl Silence {
    pub(crate) fn text(&self, address: &str) -> String {
        match self {
            Silence::NoAnswer(why) => format!(
                "no node answers at {address} ({why}): give --address HOST:PORT of the admin port of one that runs"
            ),
            Silence::WantsPassword => format!(
                "the node at {address} wants its password: put it into PALIMPSEST_PASSWORD, or give --password-file"
            ),
            Silence::WrongPassword => format!(
                "the node at {address} refuses the password: correct PALIMPSEST_PASSWORD or --password-file"
            ),
            Silence::Stranger(why) => format!(
                "{address} does not answer as an admin port does ({why}): it is the port of --admin-listen, by default --listen + 1000"
            ),
        }
    }
}

/// The JSON at this path.
pub(crate) fn get<T: DeserializeOwned>(
    address: &str,
    path: &str,
    password: Option<&[u8]>,
) -> Result<T, Silence> {
    let mut request = agent(PATIENCE).get(format!("http://{address}{path}"));
    if let Some(password) = password {
        request = request.header("Authorization", authorization(password));
    }
    let answer = request.call().map_err(|error| silence(error, password))?;
    if answer.status().is_success() {
        return read(answer);
    }
    Err(refusal(answer.status().as_u16(), password))
}

/// Sends an order. The answer is JSON, be it carried out or refused.
pub(crate) fn post<T: DeserializeOwned>(
    address: &str,
    path: &str,
    password: Option<&[u8]>,
    order: &impl Serialize,
) -> Result<T, Silence> {
    let mut request = agent(ORDER_PATIENCE).post(format!("http://{address}{path}"));
    if let Some(password) = password {
        request = request.header("Authorization", authorization(password));
    }
    let answer = request.send_json(order).map_err(|error| silence(error, password))?;
    match answer.status().as_u16() {
        200 | 400 | 409 => read(answer),
        code => Err(refusal(code, password)),
    }
}

fn agent(patience: Duration) -> ureq::Agent {
    let config = ureq::Agent::config_builder().timeout_global(Some(patience));
    config.http_status_as_error(false).build().into()
}

fn read<T: DeserializeOwned>(mut answer: Response<ureq::Body>) -> Result<T, Silence> {
    let body = answer.body_mut().with_config().limit(ANSWER_LEN_MAX);
    body.read_json().map_err(|why| Silence::Stranger(why.to_string()))
}

fn refusal(code: u16, password: Option<&[u8]>) -> Silence {
    match code {
        401 if password.is_some() => Silence::WrongPassword,
        401 => Silence::WantsPassword,
        code => Silence::Stranger(format!("HTTP {code}")),
    }
}

fn silence(error: ureq::Error, password: Option<&[u8]>) -> Silence {
    match error {
        ureq::Error::StatusCode(code) => refusal(code, password),
        ureq::Error::Protocol(why) => Silence::Stranger(why.to_string()),
        why => Silence::NoAnswer(why.to_string()),
    }
}

fn authorization(password: &[u8]) -> String {
    format!("Basic {}", base64(&[b"default:", password].concat()))
}

/// RFC 4648, section 4.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for chunk in bytes.chunks(3) {
        let bits = chunk.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - chunk.len()));
        for at in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * at)) as usize & 63];
            out.push(if at <= chunk.len() { char::from(letter) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_encoded_as_http_wants_them() {
        assert_eq!(base64(b"user:pass"), "dXNlcjpwYXNz");
        assert_eq!(base64(b"a"), "YQ==");
        assert_eq!(base64(b"ab"), "YWI=");
    }
}
