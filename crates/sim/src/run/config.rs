//! The configuration of a run, and its validation.

use super::*;

/// The configuration of a run.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// A name from the table of protocols.
    pub protocol: String,
    pub nodes: usize,
    /// Number of nodes that keep a shard; `None`: all, or drawn from the seed in large clusters.
    pub replicas: Option<usize>,
    pub seed: u64,
    /// Operations of clients.
    pub ops: u64,
    pub faults: FaultSet,
    /// A deliberate mistake, by name; needs the feature `mutations`.
    pub mutation: Option<String>,
    /// `None`: drawn from the seed.
    pub durability: Option<Durability>,
    /// `None`: drawn from the seed, one of those that promise the durability.
    pub medium: Option<MediumKind>,
    /// `None`: drawn from the seed.
    pub speech: Option<Speech>,
    /// Reductions of the drawn run.
    pub cuts: Cuts,
    /// The clients' mix for every key; `None`: drawn from the seed.
    pub mix: Option<Mix>,
    /// Number of media faults once all is quiet: a part of a medium is damaged or reverted. Zero:
    /// none.
    pub media_faults: u64,
    /// Milliseconds of constant latency of every frame, as between regions; `None`: zero, as in one
    /// place.
    pub distance: Option<u64>,
}

impl SimConfig {
    #[must_use]
    pub fn new(protocol: &str, seed: u64) -> SimConfig {
        SimConfig {
            protocol: protocol.to_string(),
            nodes: 3,
            replicas: None,
            seed,
            ops: 200,
            faults: FaultSet::all(),
            mutation: None,
            durability: None,
            medium: None,
            speech: None,
            cuts: Cuts::default(),
            mix: None,
            media_faults: 0,
            distance: None,
        }
    }

    /// The line that repeats this run. The product has no deliberate mistakes; an example of this
    /// crate has.
    #[must_use]
    pub fn replay_line(&self) -> String {
        let SimConfig { protocol, nodes, seed, ops, faults, .. } = self;
        let choices = self.choices();
        let given = |(name, value): &(&str, String)| format!("{name}={value} ");
        match &self.mutation {
            Some(mutation) => {
                let given: String = choices.iter().map(given).collect();
                format!(
                    "{given}cargo run --release -p sim --features mutations --example campaign -- \
                     {protocol} 1 {seed} {ops} {faults} {nodes} {mutation}"
                )
            }
            None => {
                let flag = |(name, value): &(&str, String)| {
                    format!(" --{} {value}", name.to_ascii_lowercase().replace('_', "-"))
                };
                let flags: String = choices.iter().map(flag).collect();
                format!(
                    "palimpsest sim --protocol {protocol} --nodes {nodes} --seed {seed} --ops {ops} \
                     --faults {faults}{flags}"
                )
            }
        }
    }

    /// Choices that replace draws.
    fn choices(&self) -> Vec<(&'static str, String)> {
        let cuts = Some(&self.cuts).filter(|cuts| **cuts != Cuts::default());
        let media_faults = Some(self.media_faults).filter(|&it| it > 0);
        let choices = [
            ("REPLICAS", self.replicas.map(|it| it.to_string())),
            ("MEDIUM", self.medium.map(|it| it.name().to_string())),
            ("CLIENTS", self.speech.map(|it| it.name().to_string())),
            ("WORKLOAD", self.mix.map(|it| it.name().to_string())),
            ("MEDIA_STRIKES", media_faults.map(|it| it.to_string())),
            ("DISTANCE", self.distance.map(|it| it.to_string())),
            ("CUT", cuts.map(ToString::to_string)),
        ];
        choices.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

/// Why a run could not even begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misuse(pub String);

/// Checks that all names of a configuration exist.
///
/// # Errors
/// One line that says how to correct it.
pub fn validate(config: &SimConfig) -> Result<(), Misuse> {
    if registry::find(&config.protocol).is_none() {
        let all = registry::PROTOCOLS.iter().chain(registry::VARIANTS);
        let known = all.map(|it| it.name).collect::<Vec<&str>>().join(", ");
        return Err(Misuse(format!("no protocol is called '{}'; use {known}", config.protocol)));
    }
    if !(2..=types::limits::MEMBERS_MAX).contains(&config.nodes) {
        return Err(Misuse(format!(
            "{} nodes; use 2 to {}",
            config.nodes,
            types::limits::MEMBERS_MAX
        )));
    }
    validate_replicas(config)?;
    validate_medium(config)?;
    validate_workload(config)?;
    let registration = registry::find(&config.protocol);
    if config.speech == Some(Speech::Resp)
        && registration.is_some_and(|it| !it.properties.read_modify_write)
    {
        let protocol = &config.protocol;
        return Err(Misuse(format!("{protocol} cannot run the commands of sessions")));
    }
    if let Some(name) = &config.mutation {
        let is_known = Mutation::by_name(name).is_some()
            || storage::mutation::Mutation::by_name(name).is_some()
            || transactions::mutation::Mutation::by_name(name).is_some();
        if !is_known {
            return Err(Misuse(format!("no mutation is called '{name}'")));
        }
        if !cfg!(feature = "mutations") {
            return Err(Misuse(
                "mutations are not compiled in: build with --features mutations".into(),
            ));
        }
    }
    Ok(())
}

/// A configured group passes requests on itself. Of the others, those of plain writes recover only
/// shards whose replica a node is, and need every node to be one.
pub(super) fn knows_outsiders(registration: &registry::Registration) -> bool {
    let properties = registration.properties;
    !properties.needs_config && !properties.total_order && properties.read_modify_write
}

fn validate_replicas(config: &SimConfig) -> Result<(), Misuse> {
    let Some(replicas) = config.replicas else { return Ok(()) };
    if !(2..=config.nodes).contains(&replicas) {
        return Err(Misuse(format!("{replicas} replicas; use 2 to {}", config.nodes)));
    }
    let knows_outsiders = registry::find(&config.protocol)
        .is_some_and(|it| it.properties.needs_config || knows_outsiders(it));
    if replicas < config.nodes && !knows_outsiders {
        return Err(Misuse(format!("every node of {} is a replica", config.protocol)));
    }
    if replicas < config.nodes && config.media_faults > 0 {
        return Err(Misuse("media faults require that every node is a replica".into()));
    }
    Ok(())
}

/// A protocol must support the clients' commands.
fn validate_workload(config: &SimConfig) -> Result<(), Misuse> {
    let Some(mix) = config.mix else { return Ok(()) };
    let is_default = config.protocol == RmwPaxos::NAME;
    let writes_only = registry::find(&config.protocol)
        .is_some_and(|registration| !registration.properties.read_modify_write);
    let is_expiry = matches!(mix, Mix::Expiry | Mix::PlainExpiry);
    let is_plain = Mix::PLAIN.contains(&mix) || is_expiry;
    let is_expiry_without = is_expiry && registry::find(&config.protocol).is_none();
    let is_of_default =
        mix.is_collection() || mix.is_of_several_keys() || mix == Mix::Retries || is_expiry_without;
    if is_default || (!is_of_default && (is_plain || !writes_only)) {
        return Ok(());
    }
    Err(Misuse(format!("{} does not support the workload {}", config.protocol, mix.name())))
}

/// A medium must offer the requested durability, and the protocol's kind of storage.
fn validate_medium(config: &SimConfig) -> Result<(), Misuse> {
    if config.media_faults > 0 && config.protocol != RmwPaxos::NAME {
        return Err(Misuse(format!("{} does not compare replicas", config.protocol)));
    }
    if config.media_faults > 0 && config.medium == Some(MediumKind::Model) {
        return Err(Misuse("the model has no media faults: use disk or pmem".into()));
    }
    let Some(promised) = config.medium.and_then(MediumKind::durability) else { return Ok(()) };
    let has_log = registry::find(&config.protocol)
        .is_some_and(|registration| registration.properties.total_order);
    if has_log {
        return Err(Misuse(format!(
            "{} needs a log, which only the model medium has",
            config.protocol
        )));
    }
    match config.durability {
        Some(durability) if durability != promised => {
            Err(Misuse(format!("the medium promises {promised:?}, not {durability:?}")))
        }
        _ => Ok(()),
    }
}
