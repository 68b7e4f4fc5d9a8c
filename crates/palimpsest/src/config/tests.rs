//! Flags, environment and file taken together.

use node::REGISTER_OVERHEAD;

use super::*;

fn raw(id: u16) -> Flags {
    Flags { id: Some(id), ..Flags::default() }
}

#[test]
fn flags_win_over_the_file() {
    let file: Flags =
        toml::from_str("id = 2\nlisten = \"127.0.0.1:7000\"\nworkers = 3").expect("it is TOML");
    let config = raw(1).over(file).resolve().expect("it is complete");
    assert_eq!(config.node.id, NodeId(1));
    assert_eq!(config.node.listen, "127.0.0.1:7000");
    assert_eq!(config.node.peer_listen, "127.0.0.1:17000");
    assert_eq!(config.admin_listen, "127.0.0.1:8000");
    assert_eq!(config.node.workers, 3);
}

#[test]
fn the_flag_for_the_password_wins_over_the_environment_and_that_over_the_file() {
    let scratch = std::env::temp_dir().join(format!("palimpsest-config-{}", std::process::id()));
    std::fs::write(&scratch, "of a file\n").expect("a file can be written");
    let named = |id| Flags { password_file: Some(scratch.clone()), ..raw(id) };
    let password = |typed: Flags, file: Flags| {
        let typed = typed.with_password(Some(b"of the environment".to_vec()));
        typed.over(file).resolve().expect("it is complete").password
    };
    assert_eq!(password(named(1), raw(1)).as_deref(), Some(b"of a file".as_slice()));
    assert_eq!(password(raw(1), named(1)).as_deref(), Some(b"of the environment".as_slice()));
    let plain = raw(1).over(named(1)).resolve().expect("it is complete");
    assert_eq!(plain.password.as_deref(), Some(b"of a file".as_slice()));
    std::fs::remove_file(&scratch).expect("it was written above");
}

#[test]
fn a_request_has_some_time_but_not_for_ever() {
    for millis in [0, REQUEST_TIMEOUT_MAX + 1, u64::MAX] {
        let flags = Flags { request_timeout: Some(millis), ..raw(1) };
        assert!(matches!(flags.resolve(), Err(Failure::Usage(_))), "{millis} ms");
    }
}

#[test]
fn lines_are_remembered_for_longer_than_requests_take() {
    let window = |request_timeout, once_window| {
        let flags = Flags { request_timeout, once_window, ..raw(1) };
        flags.resolve().ok().map(|config| config.node.once_window.0)
    };
    assert_eq!(window(None, None), Some(600_000));
    assert_eq!(window(None, Some(ONCE_WINDOW_MIN)), Some(ONCE_WINDOW_MIN));
    for bad in [0, ONCE_WINDOW_MIN - 1, ONCE_WINDOW_MAX + 1] {
        assert_eq!(window(None, Some(bad)), None, "{bad} ms");
    }
    assert_eq!(window(Some(5_000), Some(19_999)), None, "below four request timeouts");
    assert_eq!(window(Some(REQUEST_TIMEOUT_MAX), None), Some(4 * REQUEST_TIMEOUT_MAX));
}

#[test]
fn sizes_of_cache_and_ring_have_bounds() {
    let sized = |cache_size, ring_size| Flags { cache_size, ring_size, ..raw(1) }.resolve();
    let usual = sized(None, None).expect("it is complete").node;
    assert_eq!(usual.disk, DiskConfig::default());
    assert!(usual.cache_memory / REGISTER_OVERHEAD >= 1_000_000, "a working set of a million fits");
    let small = sized(Some(CACHE_SIZE_MIN), Some(64 << 20)).expect("both are allowed").node;
    assert_eq!((small.disk.cache_bytes, small.disk.ring_bytes), (1 << 20, 64 << 20));
    assert!(small.cache_memory + small.disk.cache_bytes <= CACHE_SIZE_MIN);
    for (cache, ring) in [
        (Some(CACHE_SIZE_MIN - 1), None),
        (None, Some(RING_SIZE_MIN - 4096)),
        (None, Some(RING_SIZE_MAX + 4096)),
    ] {
        assert!(matches!(sized(cache, ring), Err(Failure::Usage(_))), "{cache:?} {ring:?}");
    }
}

#[test]
fn unknown_keys_are_errors() {
    assert!(toml::from_str::<Flags>("id = 1\nlisten-on = \"x\"").is_err());
}

#[test]
fn databases_may_have_a_durability_of_their_own() {
    let file: Flags =
        toml::from_str("[[database]]\nindex = 1\nprotocol = \"abd\"\ndurability = \"volatile\"")
            .expect("it is TOML");
    let config = raw(1).over(file).resolve().expect("it is complete");
    let one = &config.node.databases[1];
    assert_eq!((one.protocol, one.durability), ("abd", Durability::Volatile));
    assert_eq!(config.node.databases[0].protocol, "rmwpaxos");
    assert_eq!(config.node.databases.len(), 16);
}

#[test]
fn replicas_are_for_databases_with_a_group() {
    let resolve = |flags: Flags, file: &str| {
        let file: Flags = toml::from_str(file).expect("it is TOML");
        flags.over(file).resolve().map(|config| config.node)
    };
    let replicas = |node: &NodeConfig| [0, 1, 2].map(|at: usize| node.databases[at].replicas);
    let three = || Flags { replicas: Some(3), ..raw(1) };
    let file = "[[database]]\nindex = 1\nprotocol = \"hermes\"\n\
                [[database]]\nindex = 2\nprotocol = \"craq\"\nreplicas = 5";
    let node = resolve(three(), file).expect("it is complete");
    assert_eq!(replicas(&node), [None, Some(3), Some(5)]);
    assert_eq!(node.check().and_then(|()| node.check_groups(5)), Ok(()));
    let few = node.check_groups(3).expect_err("five replicas on three nodes");
    assert_eq!(few.0, "database 2: 5 replicas need as many nodes, and the cluster has 3");
    let Err(Failure::Usage(text)) = resolve(three(), "") else { panic!("no group is there") };
    assert!(text.contains("hermes, craq"), "{text}");
    for (file, part) in [
        ("[[database]]\nindex = 1\nprotocol = \"hermes\"\nreplicas = 4", "3, 5 or 7, not 4"),
        ("[[database]]\nindex = 1\nreplicas = 3", "rmwpaxos keeps every key on all nodes"),
    ] {
        let node = resolve(raw(1), file).expect("the node checks it");
        let error = node.check().expect_err("it is refused").0;
        assert!(error.starts_with("database 1: ") && error.contains(part), "{error}");
    }
}

#[test]
fn beyond_loopback_a_password_and_a_secret_are_needed() {
    let mut open = raw(1);
    open.listen = Some("0.0.0.0:6379".into());
    let mut config = open.resolve().expect("it is complete");
    assert!(
        matches!(refuse_open_doors(&config), Err(Failure::Usage(text)) if text.contains("--insecure"))
    );
    config.password = Some(b"p".to_vec());
    assert!(refuse_open_doors(&config).is_err());
    config.node.secret = Some(b"s".to_vec());
    assert!(refuse_open_doors(&config).is_ok());
}

#[test]
fn rings_are_rounded_up_to_whole_pages() {
    let ring = |ring_size| Flags { ring_size: Some(ring_size), ..raw(1) }.resolve();
    let bytes = ring(units::bytes("100M").expect("a size")).expect("it is allowed");
    assert_eq!(bytes.node.disk.ring_bytes, 100_003_840);
}

#[test]
fn files_take_numbers_and_texts_with_units() {
    let numbers = "id = 1\nrequest-timeout = 2000\nonce-window = 3600000\nmax-value-size = 2097152\n\
         cache-size = 67108864\nring-size = 33554432\nscrub-rate = 0\ncompare-every = 7200000";
    let texts = "id = 1\nrequest-timeout = \"2s\"\nonce-window = \"1h\"\nmax-value-size = \"2MB\"\n\
         cache-size = \"64MiB\"\nring-size = \"32mb\"\nscrub-rate = \"0\"\ncompare-every = \"2h\"";
    let of = |text| understand(text).unwrap_or_else(|why| panic!("{text}: {why:?}"));
    assert_eq!(of(numbers).node, of(texts).node);
    let (numbers, texts) = (of(numbers), of(texts));
    assert_eq!(
        (numbers.node.max_value_size, numbers.node.once_window),
        (2 << 20, Millis(3_600_000))
    );
    assert_eq!((texts.node.max_value_size, texts.node.once_window), (2 << 20, Millis(3_600_000)));
}

#[test]
fn bad_units_in_a_file_are_named_with_line_and_example() {
    for (text, expected) in [
        ("id = 1\nring-size = \"64XB\"", "line 2: \"64XB\" is no size"),
        ("id = 1\nrequest-timeout = \"2 parsecs\"", "line 2: \"2 parsecs\" is no time"),
        ("id = 1\nscrub-rate = -1", "line 2: \"-1\" is no size"),
        ("id = 1\ncache-size = true", "a number or a size such as \"64MB\""),
    ] {
        let Err(Failure::Usage(why)) = understand(text) else { panic!("{text} is understood") };
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn advertised_addresses_need_a_port() {
    let flags = |advertise: &str| Flags { advertise: Some(advertise.into()), ..raw(1) };
    let config = flags("store.example:7000").resolve().expect("it is complete");
    assert_eq!(config.node.announced.advertise.as_deref(), Some("store.example:7000"));
    assert!(
        matches!(flags("store").resolve(), Err(Failure::Usage(why)) if why.contains("HOST:PORT"))
    );
}
