//! `HOST:PORT` as it is typed.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

use crate::Failure;

/// The addresses that the `HOST:PORT` given to `flag` stands for, at least one.
pub(crate) fn look_up(flag: &str, address: &str) -> Result<Vec<SocketAddr>, Failure> {
    let (host, _) = split(flag, address)?;
    let found: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(found) => found.collect(),
        Err(error) => return Err(unknown(flag, address, host, &error.to_string())),
    };
    match found.is_empty() {
        true => Err(unknown(flag, address, host, "the name has no address")),
        false => Ok(found),
    }
}

fn unknown(flag: &str, address: &str, host: &str, why: &str) -> Failure {
    Failure::usage(format!(
        "{flag} {address}: the host {host:?} cannot be looked up ({why}): correct the name, or give an IP address"
    ))
}

/// Host and port of the `address` given to `flag`.
pub(crate) fn split<'a>(flag: &str, address: &'a str) -> Result<(&'a str, u16), Failure> {
    let bad = || {
        Failure::usage(format!(
            "{flag} {address:?} is no address: write HOST:PORT, for example 127.0.0.1:6379"
        ))
    };
    let (host, port) = address.rsplit_once(':').ok_or_else(bad)?;
    let is_bare_v6 = host.contains(':') && !(host.starts_with('[') && host.ends_with(']'));
    if host.is_empty() || is_bare_v6 {
        return Err(bad());
    }
    Ok((host, port.parse().map_err(|_| bad())?))
}

/// The address `offset` ports above the one of `--listen`. Without such a port, the error asks for
/// `flag`.
pub(crate) fn port_above(listen: &str, offset: u16, flag: &str) -> Result<String, Failure> {
    let (host, port) = split("--listen", listen)?;
    if port == 0 {
        return Ok(format!("{host}:0"));
    }
    let above = port.checked_add(offset).ok_or_else(|| {
        Failure::usage(format!("port {port} + {offset} is no port: give {flag} HOST:PORT"))
    })?;
    Ok(format!("{host}:{above}"))
}

/// True when every address that the name stands for is one of this machine alone; an unknown name
/// has none.
pub(crate) fn is_loopback(address: &str) -> bool {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    if let Ok(ip) = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        return ip.is_loopback();
    }
    let found: Vec<SocketAddr> = address.to_socket_addrs().into_iter().flatten().collect();
    !found.is_empty() && found.iter().all(|one| one.ip().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(failure: Failure) -> String {
        match failure {
            Failure::Usage(text) | Failure::Fault(text) => text,
            Failure::Logged => String::new(),
        }
    }

    #[test]
    fn a_host_without_an_address_is_named() {
        let text =
            why(look_up("--listen", "no-such-host.invalid:6379").expect_err("it is unknown"));
        assert!(text.starts_with("--listen no-such-host.invalid:6379: the host"), "{text}");
        assert!(text.contains("\"no-such-host.invalid\" cannot be looked up ("), "{text}");
    }

    #[test]
    fn addresses_need_host_and_port() {
        for bad in ["6379", "", ":6379", "localhost", "localhost:x", "localhost:65536", "::1:6379"]
        {
            let text = why(look_up("--listen", bad).expect_err(bad));
            assert!(
                text.contains(&format!("{bad:?}")) && text.contains("127.0.0.1:6379"),
                "{text}"
            );
        }
        assert_eq!(look_up("--listen", "[::1]:1").expect("it is one").len(), 1);
    }

    #[test]
    fn ports_above_keep_the_host() {
        assert_eq!(port_above("a:6379", 1_000, "--admin-listen").expect("a port"), "a:7379");
        assert_eq!(port_above("[::1]:0", 1_000, "--admin-listen").expect("a port"), "[::1]:0");
        let text = why(port_above("a:65000", 1_000, "--admin-listen").expect_err("it is none"));
        assert!(text.contains("--admin-listen"), "{text}");
    }
}
