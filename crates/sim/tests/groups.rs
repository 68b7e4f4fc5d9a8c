//! Groups whose members' media are damaged.

use checker::model::kv::KvInput;
use protocols::Protocol;
use protocols::configured::Configured;
use protocols::craq::Craq;
use protocols::hermes::Hermes;
use sim::clients::Ended;
use sim::scenario::Scenario;
use sim::{Campaign, Durability, Fault, FaultSet, SimConfig, campaign};

const KEY: &str = "x";

fn serves<P: Protocol>(it: &mut Scenario<P>) {
    it.run_until(|it| it.world().groups_serve());
}

/// Three members have taken a write and are down.
fn written_and_down<P: Protocol>() -> Scenario<P> {
    let mut it = Scenario::<P>::new(3, Durability::Disk);
    serves(&mut it);
    let write = it.write(1, KEY, "a");
    assert!(matches!(it.settle(write), Ended::Returned(_)));
    it.run_for_millis(50);
    (1..=3).for_each(|node| it.crash(node));
    it
}

fn member_with_damage_gets_the_value_from_another<P: Protocol>() {
    let mut it = written_and_down::<P>();
    assert!(it.damage(1, KEY) && it.damage(2, KEY));
    (1..=3).for_each(|node| it.start(node));
    serves(&mut it);
    // Reads find the damage, and wait for the copy.
    for node in [1, 2, 3, 1, 2, 3] {
        assert_eq!(it.value(node, KEY).as_deref(), Some("a"));
    }
    serves(&mut it);
    assert!(!it.world().has_lost_its_group());
    it.check();
}

fn group_without_a_whole_copy_serves_no_more<P: Protocol>() {
    let mut it = written_and_down::<P>();
    (1..=3).for_each(|node| assert!(it.damage(node, KEY)));
    (1..=3).for_each(|node| it.start(node));
    serves(&mut it);
    for node in 1..=3 {
        let read = it.read(node, KEY);
        let ended = it.settle(read);
        assert!(!matches!(ended, Ended::Returned(_)), "{ended:?}");
    }
    it.run_until(|it| it.world().is_loss_known());
    assert!(it.world().has_lost_its_group());
    // It waits for an operator, and shows no emptiness.
    it.run_for_millis(2_000);
    assert!(!it.world().groups_serve());
    let read = it.read(2, KEY);
    let ended = it.settle(read);
    assert!(!matches!(ended, Ended::Returned(_)), "{ended:?}");
    it.check();
}

#[test]
fn damaged_member_of_hermes_is_copied_anew() {
    member_with_damage_gets_the_value_from_another::<Configured<Hermes>>();
}

#[test]
fn damaged_member_of_craq_is_copied_anew() {
    member_with_damage_gets_the_value_from_another::<Configured<Craq>>();
}

#[test]
fn hermes_without_a_whole_copy_stands_still() {
    group_without_a_whole_copy_serves_no_more::<Configured<Hermes>>();
}

#[test]
fn craq_without_a_whole_copy_stands_still() {
    group_without_a_whole_copy_serves_no_more::<Configured<Craq>>();
}

#[test]
fn deleted_keys_of_hermes_leave_the_media() {
    let mut it = Scenario::<Configured<Hermes>>::new(3, Durability::Disk);
    serves(&mut it);
    let keys: Vec<String> = (0..30).map(|number| format!("key-{number}")).collect();
    for (node, key) in (1..=3).cycle().zip(&keys) {
        let write = it.write(node, key, "a");
        assert!(matches!(it.settle(write), Ended::Returned(_)));
        let delete = it.ask(node % 3 + 1, key, KvInput::Del);
        assert!(matches!(it.settle(delete), Ended::Returned(_)));
    }
    let write = it.write(1, KEY, "a");
    assert!(matches!(it.settle(write), Ended::Returned(_)));
    it.run_until(|it| it.world().is_idle());
    it.run_for_millis(50);
    for node in 1..=3 {
        assert!(keys.iter().all(|key| !it.damage(node, key)), "a register is left at {node}");
        assert!(it.damage(node, KEY), "a value is gone from {node}");
    }
}

fn damaged(protocol: &str, seeds: u64) -> sim::CampaignReport {
    let faults = [Fault::Rot, Fault::RollBack, Fault::Crash, Fault::RestartAll, Fault::Amnesia];
    let faults: FaultSet = faults.into_iter().collect();
    let config = SimConfig { faults, ops: 100, ..SimConfig::new(protocol, 0) };
    let plan = Campaign { config, seeds, threads: 2, failures_max: 1 };
    let report = campaign(&plan, |_| {});
    if let Some((seed, failure)) = report.failures.first() {
        let config = SimConfig { seed: *seed, ..plan.config };
        panic!("{}", sim::replay(&config, failure.clone()));
    }
    report
}

#[test]
fn damaged_groups_are_linearizable() {
    for protocol in ["hermes", "craq"] {
        let report = damaged(protocol, 25);
        assert!(report.lost * 20 <= report.seeds, "{} groups were lost", report.lost);
    }
}
