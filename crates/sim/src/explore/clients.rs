//! Commands of clients with their answers, and whether some order explains them.

use checker::model::kv::{Kv, KvInput, KvOutput};
use checker::sequential::{self, WriteOrder};
use checker::{ClientId, History, Limit, Outcome, Verdict, linearizable};
use protocols::protocol::Consistency;

/// Histories here have a handful of operations.
const EXPLORED_MAX: u64 = 1_000_000;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum CommandEnd {
    Returned(KvOutput),
    Failed,
    Unknown,
}

/// A command that was issued.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct IssuedCommand {
    /// The set of commands that had ended when it was issued.
    pub after: u32,
    pub ended: Option<CommandEnd>,
}

/// A command of a plan.
#[derive(Clone, Debug)]
pub(super) struct Planned {
    pub client: usize,
    /// Its node's index.
    pub node: usize,
    pub input: KvInput,
}

/// The issued commands, by number.
pub(super) type Outcomes = Vec<Option<IssuedCommand>>;

/// A set of the commands that have ended.
pub(super) fn ended(outcomes: &Outcomes) -> u32 {
    let has_ended =
        |asked: &Option<IssuedCommand>| asked.as_ref().is_some_and(|it| it.ended.is_some());
    (0..outcomes.len()).filter(|&at| has_ended(&outcomes[at])).fold(0, |set, at| set | 1 << at)
}

/// The next command of a client without an outstanding one.
pub(super) fn next_of(planned: &[Planned], outcomes: &Outcomes, client: usize) -> Option<usize> {
    for at in (0..planned.len()).filter(|&at| planned[at].client == client) {
        match &outcomes[at] {
            None => return Some(at),
            Some(IssuedCommand { ended: None, .. }) => return None,
            Some(_) => {}
        }
    }
    None
}

/// Checks that some order explains the outcomes so far, as far as the protocol promises one.
///
/// # Errors
/// Describes the outcomes that no order explains.
pub(super) fn judge(
    planned: &[Planned],
    outcomes: &Outcomes,
    consistency: Consistency,
) -> Result<(), String> {
    let limit = Limit { explored_max: EXPLORED_MAX };
    let verdict = match consistency {
        Consistency::Linearizable => {
            let history = history(planned, outcomes, |at| at);
            linearizable::check(&Kv, &history, limit)
        }
        Consistency::SequentialReads => {
            let history = history(planned, outcomes, |at| planned[at].client);
            sequential::check(&Kv, &history, WriteOrder::RealTime, limit)
        }
    };
    match verdict {
        Verdict::Violation(violation) => Err(violation.to_string()),
        Verdict::Undecided { .. } => Err("a history of a few operations is too hard".into()),
        Verdict::Holds { .. } => Ok(()),
    }
}

/// One order of issues and ends that the sets of precedences allow.
///
/// The set of ended commands grows from one issue to the next.
/// So commands are issued in the order of those sets, and the additional members of a set end just
/// before.
fn history(
    planned: &[Planned],
    outcomes: &Outcomes,
    client_of: impl Fn(usize) -> usize,
) -> History<KvInput, KvOutput> {
    let mut history = History::new();
    let mut order: Vec<(usize, &IssuedCommand)> = Vec::new();
    order.extend(outcomes.iter().enumerate().filter_map(|(at, it)| Some((at, it.as_ref()?))));
    order.sort_by_key(|(at, asked)| (asked.after.count_ones(), *at));
    let mut ids = vec![None; outcomes.len()];
    let (mut at, mut done) = (0, 0_u32);
    let mut end = |history: &mut History<_, _>, ids: &[Option<_>], upto: u32, at: &mut u64| {
        for index in (0..outcomes.len()).filter(|index| (upto & !done) >> index & 1 == 1) {
            let outcome = match outcomes[index].as_ref().and_then(|asked| asked.ended.clone()) {
                Some(CommandEnd::Returned(output)) => Outcome::Returned(output),
                Some(CommandEnd::Failed) => Outcome::Failed,
                Some(CommandEnd::Unknown) | None => Outcome::Unknown,
            };
            *at += 1;
            history.complete(ids[index].expect("it ended after it was asked"), outcome, *at);
        }
        done |= upto;
    };
    for (index, asked) in order {
        end(&mut history, &ids, asked.after, &mut at);
        at += 1;
        let client = ClientId(client_of(index) as u64);
        ids[index] = Some(history.invoke(client, planned[index].input.clone(), at));
    }
    end(&mut history, &ids, ended(outcomes), &mut at);
    history
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(inputs: &[(usize, KvInput)]) -> Vec<Planned> {
        let plan = |(client, input): &(usize, KvInput)| Planned {
            client: *client,
            node: *client,
            input: input.clone(),
        };
        inputs.iter().map(plan).collect()
    }

    fn outcomes(after: u32, ended: Option<CommandEnd>) -> Option<IssuedCommand> {
        Some(IssuedCommand { after, ended })
    }

    #[test]
    fn read_after_write_must_see_it() {
        let planned = planned(&[(0, KvInput::Set("a".into())), (1, KvInput::Get)]);
        let wrote = Some(CommandEnd::Returned(KvOutput::Done));
        let nothing = Some(CommandEnd::Returned(KvOutput::Value(None)));
        let overlapping = vec![outcomes(0, wrote.clone()), outcomes(0, nothing.clone())];
        assert!(judge(&planned, &overlapping, Consistency::Linearizable).is_ok());
        let after = vec![outcomes(0, wrote), outcomes(1, nothing)];
        assert!(judge(&planned, &after, Consistency::Linearizable).is_err());
        assert!(judge(&planned, &after, Consistency::SequentialReads).is_ok());
    }

    #[test]
    fn client_issues_commands_in_order() {
        let planned = planned(&[(0, KvInput::Get), (0, KvInput::Get), (1, KvInput::Get)]);
        assert_eq!(next_of(&planned, &vec![None, None, None], 0), Some(0));
        assert_eq!(next_of(&planned, &vec![outcomes(0, None), None, None], 0), None);
        let answered = vec![outcomes(0, Some(CommandEnd::Failed)), None, None];
        assert_eq!(next_of(&planned, &answered, 0), Some(1));
        assert_eq!(ended(&answered), 1);
    }
}
