//! The system's own keep-alive: it ends connections whose other end vanished without a word.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};

/// Seconds of the links between nodes. Pings find a silent peer sooner; this covers handshakes as
/// well.
pub const OF_PEERS: u64 = 10;

/// Unanswered probes that end a connection.
const PROBES: u32 = 3;

/// Probes an idle connection after `seconds` and then every third of that, as Redis does; 0 never
/// probes.
///
/// Bytes that the other end does not acknowledge end the connection in the same time.
///
/// # Errors
/// Of the system, for a socket that is closed already.
pub fn set(socket: &impl AsFd, seconds: u64) -> io::Result<()> {
    let socket = SockRef::from(socket);
    if seconds == 0 {
        socket.set_keepalive(false)?;
        return socket.set_tcp_user_timeout(None);
    }
    // The system takes at most 32767 seconds.
    let idle = seconds.min(32_767);
    let interval = (idle / 3).max(1);
    let keep_alive = TcpKeepalive::new()
        .with_time(Duration::from_secs(idle))
        .with_interval(Duration::from_secs(interval))
        .with_retries(PROBES);
    socket.set_tcp_keepalive(&keep_alive)?;
    let patience = Duration::from_secs(idle + interval * u64::from(PROBES));
    socket.set_tcp_user_timeout(Some(patience))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn options_follow_the_configured_seconds() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let stream = TcpStream::connect(address).expect("it listens");
        let socket = SockRef::from(&stream);
        for (seconds, idle, interval) in [(300, 300, 100), (1, 1, 1), (86_400, 32_767, 10_922)] {
            set(&stream, seconds).expect("it is connected");
            assert!(socket.keepalive().expect("an option"));
            assert_eq!(socket.tcp_keepalive_time().expect("an option").as_secs(), idle);
            assert_eq!(socket.tcp_keepalive_interval().expect("an option").as_secs(), interval);
            assert_eq!(socket.tcp_keepalive_retries().expect("an option"), PROBES);
            let patience = socket.tcp_user_timeout().expect("an option").expect("it is set");
            assert_eq!(patience.as_secs(), idle + 3 * interval);
        }
        set(&stream, 0).expect("it is connected");
        assert!(!socket.keepalive().expect("an option"));
        assert_eq!(socket.tcp_user_timeout().expect("an option"), None);
    }
}
