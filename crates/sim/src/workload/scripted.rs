//! The steps of a transaction as one Lua script.
//!
//! The script takes the steps as arguments, so it may touch keys that it does not declare. A long
//! one moves to the thread of scripts.

use base::Prng;

use crate::clients::SimKey;
use crate::workload::transactions::{Step, TransactionInput, words as words_of};

/// Turns of an empty loop that exceed the budget of a worker.
const LONG_TURNS: u32 = 300_000;

/// Runs steps, each as the number of its words and its words.
const SOURCE: &str = "\
    for _ = 1, tonumber(ARGV[1]) do end
    local at, shown = 2, {}
    while at <= #ARGV do
        local words = {}
        for word = 1, tonumber(ARGV[at]) do words[word] = ARGV[at + word] end
        at = at + #words + 1
        shown[#shown + 1] = redis.call(unpack(words))
    end
    return shown";

/// How a script runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ScriptForm {
    /// `KEYS` has at most so many of the keys.
    pub declared_max: usize,
    pub is_long: bool,
    /// `EVAL_RO`: no step writes.
    pub is_quiet: bool,
}

/// Makes most requests scripts, some of them within `EXEC`.
pub fn draw(rng: &mut Prng, input: TransactionInput) -> TransactionInput {
    if rng.chance(0.2) {
        return input;
    }
    let is_quiet = input.steps.iter().all(|step| !writes(step)) && rng.chance(0.5);
    let declared_max = *rng.pick(&[usize::MAX, usize::MAX, 1, 0]);
    let form = ScriptForm { declared_max, is_long: rng.chance(0.1), is_quiet };
    let is_alone = input.watched.is_empty() && rng.chance(0.7);
    TransactionInput { is_alone, script: Some(form), ..input }
}

fn writes(step: &Step) -> bool {
    matches!(step, Step::Push { .. } | Step::ChangeBeside { .. } | Step::Add { .. })
}

/// The command line.
pub(super) fn words(form: ScriptForm, steps: &[Step], keys: &[SimKey]) -> Vec<Vec<u8>> {
    let name: &[u8] = if form.is_quiet { b"EVAL_RO" } else { b"EVAL" };
    let turns = if form.is_long { LONG_TURNS } else { 0 };
    let lines: Vec<Vec<Vec<u8>>> = steps.iter().map(|step| words_of(*step, keys)).collect();
    let mut declared: Vec<Vec<u8>> = lines.iter().map(|line| line[1].clone()).collect();
    declared.sort();
    declared.dedup();
    declared.truncate(form.declared_max);
    let mut all = vec![name.to_vec(), SOURCE.into(), number(declared.len())];
    all.extend(declared);
    all.push(turns.to_string().into_bytes());
    for line in lines {
        all.push(number(line.len()));
        all.extend(line);
    }
    all
}

fn number(number: usize) -> Vec<u8> {
    number.to_string().into_bytes()
}

#[cfg(test)]
mod tests {
    use types::Key;

    use super::*;
    use crate::workload::mix::Mix;

    #[test]
    fn all_forms_are_drawn() {
        let mut rng = Prng::new(1);
        let steps = vec![Step::Range { list: 0 }, Step::Range { list: 1 }];
        let drawn: Vec<TransactionInput> =
            (0..200).map(|_| draw(&mut rng, TransactionInput::exec(steps.clone()))).collect();
        for is_it in [
            (|it| it.script.is_none()) as fn(&TransactionInput) -> bool,
            |it| it.is_alone && it.script.is_some_and(|form| form.declared_max == 0),
            |it| !it.is_alone && it.script.is_some_and(|form| form.declared_max == 1),
            |it| it.script.is_some_and(|form| form.is_long && form.is_quiet),
        ] {
            assert!(drawn.iter().any(is_it));
        }
    }

    #[test]
    fn scripts_declare_keys_up_to_a_number() {
        let of = |mix| SimKey { key: Key::new(b"k"), mix };
        let form = ScriptForm { declared_max: 1, is_long: true, is_quiet: true };
        let said = words(form, &[Step::Range { list: 0 }], &[of(Mix::Scripts)]);
        let said: Vec<&str> = said.iter().map(|it| std::str::from_utf8(it).unwrap_or("")).collect();
        assert_eq!(said[0], "EVAL_RO");
        assert_eq!(said[2..], ["1", "k", "300000", "4", "LRANGE", "k", "0", "-1"]);
    }
}
