//! Which request may read which page, or give orders.

use std::net::IpAddr;

/// Passwords and exceptions, as configured.
#[derive(Clone, Debug, Default)]
pub(crate) struct Access {
    /// The clients' password.
    pub(crate) password: Option<Vec<u8>>,
    /// Opens `/metrics` only.
    pub(crate) metrics_password: Option<Vec<u8>>,
    /// `/metrics` needs no password from this machine.
    pub(crate) metrics_loopback: bool,
    /// The port can be reached from this machine only.
    pub(crate) listens_on_loopback: bool,
}

/// Kinds of pages by the password that they need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// Health: probes have no password.
    Health,
    Metrics,
    /// Dashboard and API.
    Console,
    /// Orders, which change data.
    Orders,
}

impl Access {
    /// Whether a request from `peer` that brought the password `given` may read `page`.
    ///
    /// Without any configured password everything is open: the node then listens on loopback, or
    /// runs with `--insecure`.
    pub(crate) fn admits(&self, page: Page, peer: IpAddr, given: Option<&[u8]>) -> bool {
        let has = |password: &Option<Vec<u8>>| {
            password.as_deref().zip(given).is_some_and(|(known, given)| is_same(known, given))
        };
        match page {
            Page::Health => true,
            Page::Metrics => {
                let is_open = self.password.is_none() && self.metrics_password.is_none();
                let is_excepted = self.metrics_loopback && peer.to_canonical().is_loopback();
                // Both are compared, so that the time does not tell which one matched.
                let is_known = has(&self.password) | has(&self.metrics_password);
                is_open || is_excepted || is_known
            }
            Page::Orders => self.password.is_none() || has(&self.password),
            Page::Console => {
                self.password.is_none() || self.listens_on_loopback || has(&self.password)
            }
        }
    }
}

/// Compares in time that depends on the lengths only.
fn is_same(known: &[u8], given: &[u8]) -> bool {
    known.len() == given.len()
        && known.iter().zip(given).fold(0, |diff, (a, b)| std::hint::black_box(diff | (a ^ b))) == 0
}

/// The password in a header `Authorization: Basic …`; any user name will do.
pub(crate) fn password_in(header: &str) -> Option<Vec<u8>> {
    let (scheme, credentials) = header.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let mut decoded = decode_base64(credentials.trim())?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    decoded.drain(..=colon);
    Some(decoded)
}

/// RFC 4648, section 4. Short and read once: not worth a dependency.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.trim_end_matches('=').bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOCAL: &str = "127.0.0.1";
    const MAPPED: &str = "::ffff:127.0.0.1";
    const REMOTE: &str = "192.0.2.1";

    fn access(password: Option<&str>, metrics: Option<&str>, metrics_loopback: bool) -> Access {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Access {
            password: password.map(bytes),
            metrics_password: metrics.map(bytes),
            metrics_loopback,
            listens_on_loopback: false,
        }
    }

    #[test]
    fn metrics_follow_the_rule() {
        let (no, some, scraper) = (None, Some("sesame"), Some("scrape"));
        // (clients' password, metrics password, --metrics-loopback, peer, given) -> admitted
        let table = [
            (no, no, false, LOCAL, no, true),
            (no, no, false, REMOTE, no, true),
            (some, no, false, LOCAL, no, false),
            (some, no, false, LOCAL, some, true),
            (some, no, false, REMOTE, some, true),
            (some, no, false, REMOTE, scraper, false),
            (some, no, true, LOCAL, no, true),
            (some, no, true, MAPPED, no, true),
            (some, no, true, "::1", no, true),
            (some, no, true, "127.8.9.1", no, true),
            (some, no, true, REMOTE, no, false),
            (some, no, true, REMOTE, some, true),
            (some, scraper, false, LOCAL, no, false),
            (some, scraper, false, REMOTE, scraper, true),
            (some, scraper, false, REMOTE, some, true),
            (some, scraper, false, REMOTE, Some("scrapE"), false),
            (some, scraper, false, REMOTE, Some("scrap"), false),
            (some, scraper, false, REMOTE, Some(""), false),
            (no, scraper, false, LOCAL, no, false),
            (no, scraper, false, REMOTE, scraper, true),
            (no, scraper, true, LOCAL, no, true),
            (no, scraper, true, REMOTE, no, false),
        ];
        for row in table {
            let (password, metrics, loopback, peer, given, expected) = row;
            let access = access(password, metrics, loopback);
            let peer = peer.parse().expect("it is an address");
            let admitted = access.admits(Page::Metrics, peer, given.map(str::as_bytes));
            assert_eq!(admitted, expected, "{row:?}");
        }
    }

    #[test]
    fn the_metrics_password_opens_metrics_only() {
        let remote = REMOTE.parse().expect("it is an address");
        let access = access(Some("sesame"), Some("scrape"), true);
        assert!(!access.admits(Page::Console, remote, Some(b"scrape")));
        assert!(!access.admits(Page::Console, LOCAL.parse().expect("it is an address"), None));
        assert!(access.admits(Page::Console, remote, Some(b"sesame")));
        assert!(access.admits(Page::Health, remote, None));
        let local = Access { listens_on_loopback: true, ..access };
        let here = LOCAL.parse().expect("it is an address");
        assert!(local.admits(Page::Console, here, None));
        assert!(!local.admits(Page::Orders, here, None), "orders need it on this machine, too");
        assert!(!local.admits(Page::Orders, here, Some(b"scrape")));
        assert!(local.admits(Page::Orders, here, Some(b"sesame")));
        assert!(Access { password: None, ..local }.admits(Page::Orders, here, None));
    }

    #[test]
    fn basic_credentials_are_decoded() {
        assert_eq!(password_in("Basic dXNlcjpwYXNz").as_deref(), Some(b"pass".as_slice()));
        assert_eq!(password_in("basic OmE6Yg==").as_deref(), Some(b"a:b".as_slice()));
        assert_eq!(password_in("Basic dXNlcg=="), None, "there is no colon");
        for bad in ["Basic a*", "Bearer dXNlcjpwYXNz", "Basic", ""] {
            assert_eq!(password_in(bad), None, "{bad}");
        }
    }
}
