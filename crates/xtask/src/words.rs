//! Plain words: comments, pages and commit subjects, as far as a machine can check them.
//!
//! Each file has a budget of lines and sentences that break a rule. A file without a row has none. Budgets only sink:
//! `cargo xtask words` lowers them to the present counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::source;

/// Where the budgets are.
const BUDGETS: &str = "crates/xtask/words.toml";

/// Words that stand for an actor without a name.
const ACTORS: &[&str] =
    &["what", "who", "whoever", "whom", "nobody", "somebody", "nothing", "somewhere"];

/// A sentence with more words holds more than one claim.
const SENTENCE_WORDS_MAX: usize = 25;
const COMMENT_COLUMNS_MAX: usize = 100;
const SUBJECT_LEN_MAX: usize = 60;

/// A page beyond this has a table of contents. Three screens.
const PAGE_LINES_MAX: usize = 150;

/// First words of a subject that are no verb in the imperative.
const NOT_VERBS: &[&str] = &[
    "a", "all", "an", "each", "every", "for", "from", "how", "in", "it", "its", "no", "nobody",
    "nothing", "of", "on", "one", "some", "somebody", "that", "the", "there", "this", "those",
    "to", "until", "what", "when", "where", "which", "who", "whoever", "whose", "with",
];

/// Counts of one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Lines with a word of [`ACTORS`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub actors: usize,
    /// Sentences of more than [`SENTENCE_WORDS_MAX`] words.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub long: usize,
    /// Comment lines of more than [`COMMENT_COLUMNS_MAX`] columns.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub wide: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands out references")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl Counts {
    /// Each count with its name.
    fn named(self) -> [(&'static str, usize); 3] {
        [("actors", self.actors), ("long", self.long), ("wide", self.wide)]
    }

    fn min(self, other: Counts) -> Counts {
        Counts {
            actors: self.actors.min(other.actors),
            long: self.long.min(other.long),
            wide: self.wide.min(other.wide),
        }
    }

    fn add(self, other: Counts) -> Counts {
        Counts {
            actors: self.actors + other.actors,
            long: self.long + other.long,
            wide: self.wide + other.wide,
        }
    }
}

/// `words.toml`.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Budgets {
    /// Subjects of commits after this time follow the rules. RFC 3339.
    commits_after: String,
    files: BTreeMap<String, Counts>,
}

impl Budgets {
    fn parse(text: &str) -> Result<Budgets> {
        toml::from_str(text).with_context(|| format!("{BUDGETS} is not well formed"))
    }

    fn total(&self) -> Counts {
        self.files.values().fold(Counts::default(), |sum, counts| sum.add(*counts))
    }
}

/// Checks comments, pages and subjects against the budgets.
///
/// # Errors
/// When git or a file cannot be read.
pub fn violations(root: &Path, files: &[String]) -> Result<Vec<String>> {
    let budgets = Budgets::parse(&std::fs::read_to_string(root.join(BUDGETS)).context(BUDGETS)?)?;
    let mut wrong = Vec::new();
    for (path, counts) in count_files(root, files) {
        let budget = budgets.files.get(&path).copied().unwrap_or_default();
        wrong.extend(over_budget(&path, counts, budget));
    }
    wrong.extend(risen(root, &budgets)?);
    for subject in subjects(root, &budgets.commits_after)? {
        wrong.extend(check_subject(&subject));
    }
    wrong.extend(pages_without_contents(root, files));
    Ok(wrong)
}

/// Lowers each row to the present count, and drops rows of files that have none.
///
/// # Errors
/// When git or a file cannot be read, or the budgets cannot be written.
pub fn lower(root: &Path, files: &[String]) -> Result<()> {
    let text = std::fs::read_to_string(root.join(BUDGETS)).context(BUDGETS)?;
    let mut budgets = Budgets::parse(&text)?;
    let counts: BTreeMap<String, Counts> = count_files(root, files).collect();
    budgets.files.retain(|path, budget| {
        *budget = budget.min(counts.get(path).copied().unwrap_or_default());
        *budget != Counts::default()
    });
    let total = budgets.total();
    println!("{} lines, {} sentences, {} columns", total.actors, total.long, total.wide);
    std::fs::write(root.join(BUDGETS), render(&budgets)).context(BUDGETS)
}

fn render(budgets: &Budgets) -> String {
    let mut text = format!("commits_after = \"{}\"\n\n[files]\n", budgets.commits_after);
    for (path, counts) in &budgets.files {
        let fields: Vec<String> = counts
            .named()
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} = {count}"))
            .collect();
        text.push_str(&format!("\"{path}\" = {{ {} }}\n", fields.join(", ")));
    }
    text
}

fn count_files<'a>(
    root: &'a Path,
    files: &'a [String],
) -> impl Iterator<Item = (String, Counts)> + 'a {
    files.iter().filter_map(move |path| {
        let is_rust = path.ends_with(".rs");
        if !is_rust && !path.ends_with(".md") {
            return None;
        }
        let text = std::fs::read_to_string(root.join(path)).ok()?;
        let counts = if is_rust { count_rust(&text) } else { count_page(&text) };
        Some((path.clone(), counts))
    })
}

fn over_budget(path: &str, counts: Counts, budget: Counts) -> Vec<String> {
    let remedy = |kind: &str| match kind {
        "actors" => "name the actor: no what, who, nobody, somebody or nothing",
        "long" => "split the sentence: at most 25 words",
        _ => "break the comment line: at most 100 columns",
    };
    counts
        .named()
        .into_iter()
        .zip(budget.named())
        .filter(|((_, count), (_, most))| count > most)
        .map(|((kind, count), (_, most))| {
            format!("{path}: {count} lines break a rule, {most} may: {}", remedy(kind))
        })
        .collect()
}

/// Compares the budgets with those before their last change.
fn risen(root: &Path, budgets: &Budgets) -> Result<Option<String>> {
    let log = git(root, &["log", "-n", "2", "--format=%H", "--", BUDGETS])?;
    let Some(before) = log.lines().nth(1) else { return Ok(None) };
    let text = git(root, &["show", &format!("{before}:{BUDGETS}")])?;
    let (before, now) = (Budgets::parse(&text)?.total(), budgets.total());
    let rises = now.named().iter().zip(before.named()).any(|((_, now), (_, then))| *now > then);
    Ok(rises.then(|| format!("{BUDGETS}: budgets only sink; before {before:?}, now {now:?}")))
}

fn subjects(root: &Path, after: &str) -> Result<Vec<String>> {
    let after = format!("--since={after}");
    let log = git(root, &["log", "--no-merges", "--format=%s", &after])?;
    Ok(log.lines().map(str::to_string).collect())
}

fn git(root: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .context("git did not start")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn check_subject(subject: &str) -> Option<String> {
    let wrong = |why: &str| Some(format!("commit `{subject}`: {why}"));
    if subject.starts_with("Revert \"") {
        return None;
    }
    if subject.chars().count() > SUBJECT_LEN_MAX {
        return wrong("at most 60 characters");
    }
    if subject.contains(';') {
        return wrong("one idea, no semicolon");
    }
    let Some((_, rest)) = subject.split_once(": ") else {
        return wrong("`area: verb object`");
    };
    let verb = rest.split(' ').next().unwrap_or_default().to_lowercase();
    let is_other_form = verb.ends_with("ing") && verb.len() > 5
        || verb.ends_with("ed") && !["embed", "feed", "need", "seed", "speed"].contains(&&*verb);
    if NOT_VERBS.contains(&&*verb) || is_other_form {
        return wrong("begin with a verb in the imperative");
    }
    None
}

fn pages_without_contents(root: &Path, files: &[String]) -> Vec<String> {
    let is_page = |path: &&String| path.starts_with("docs/") && path.ends_with(".md");
    let lacks_contents = |path: &&String| {
        let Ok(text) = std::fs::read_to_string(root.join(path)) else { return false };
        text.lines().count() > PAGE_LINES_MAX && !text.contains("\n## Contents\n")
    };
    files
        .iter()
        .filter(is_page)
        .filter(lacks_contents)
        .map(|path| format!("{path}: over three screens: open with `## Contents`, or split it"))
        .collect()
}

fn count_rust(text: &str) -> Counts {
    let mut counts = Counts::default();
    let mut paragraph = String::new();
    for (line, source) in text.lines().zip(source::scan(text)) {
        let comment = source.comment.trim_start_matches(['/', '!']).trim();
        if comment.is_empty() {
            counts.long += long_sentences(&std::mem::take(&mut paragraph));
            continue;
        }
        counts.actors += usize::from(has_actor(comment));
        counts.wide += usize::from(line.chars().count() > COMMENT_COLUMNS_MAX);
        if comment.starts_with(['#', '|']) {
            counts.long += long_sentences(&std::mem::take(&mut paragraph));
            continue;
        }
        append(&mut paragraph, comment, &mut counts);
    }
    counts.long += long_sentences(&paragraph);
    counts
}

fn count_page(text: &str) -> Counts {
    let mut counts = Counts::default();
    let mut paragraph = String::new();
    let mut in_code = false;
    for line in text.lines().map(str::trim) {
        let is_fence = line.starts_with("```");
        in_code ^= is_fence;
        if is_fence || in_code || line.is_empty() || line.starts_with(['#', '|', '<']) {
            counts.long += long_sentences(&std::mem::take(&mut paragraph));
            continue;
        }
        counts.actors += usize::from(has_actor(line));
        append(&mut paragraph, line, &mut counts);
    }
    counts.long += long_sentences(&paragraph);
    counts
}

/// A list item is a paragraph of its own.
fn append(paragraph: &mut String, line: &str, counts: &mut Counts) {
    let is_item = line.starts_with("- ")
        || line.starts_with("* ")
        || line.split_once(". ").is_some_and(|(number, _)| number.parse::<u32>().is_ok());
    if is_item {
        counts.long += long_sentences(&std::mem::take(paragraph));
    }
    paragraph.push_str(line);
    paragraph.push(' ');
}

/// Words of code spans and addresses do not count.
fn long_sentences(paragraph: &str) -> usize {
    let prose = without_code(paragraph);
    prose
        .split_inclusive(". ")
        .flat_map(|part| part.split_inclusive("? "))
        .filter(|sentence| sentence.split_whitespace().count() > SENTENCE_WORDS_MAX)
        .count()
}

fn has_actor(line: &str) -> bool {
    let prose = without_code(line).to_lowercase();
    prose.split(|c: char| !c.is_alphanumeric()).any(|word| ACTORS.contains(&word))
}

/// Puts one word in place of each code span.
fn without_code(text: &str) -> String {
    text.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "code" }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subjects_are_short_and_imperative() {
        for good in ["disk: skip the lock when the queue is empty", "Revert \"disk: x\""] {
            assert_eq!(check_subject(good), None);
        }
        for bad in [
            "disk: what is queued waits",
            "disk: skipping the lock",
            "disk: skipped the lock",
            "skip the lock",
            "disk: skip the lock; wake the driver",
            "disk: skip the lock when the queue is empty and no driver sleeps",
        ] {
            assert!(check_subject(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn comments_are_counted_but_code_is_not() {
        let text = "// Who leaves wakes a driver.\nlet what = \"nobody\"; // `what` stays\n";
        assert_eq!(count_rust(text), Counts { actors: 1, long: 0, wide: 0 });
        let long = format!("//! {}.\n", "word ".repeat(26).trim_end());
        assert_eq!(count_rust(&long), Counts { actors: 0, long: 1, wide: 1 });
    }

    #[test]
    fn tables_and_fences_are_no_prose() {
        let words = "word ".repeat(30);
        let page =
            format!("# What\n\n| {words} |\n\n```\n{words}\n```\n\nNobody reads.\n{words}\n");
        assert_eq!(count_page(&page), Counts { actors: 1, long: 1, wide: 0 });
        let items = format!("- {}\n- {}\n", "word ".repeat(20), "word ".repeat(20));
        let table = "//! | word word word word |\n".repeat(10);
        assert_eq!(count_rust(&table), Counts::default());
        assert_eq!(count_page(&items), Counts::default());
    }

    #[test]
    fn a_count_above_its_budget_is_named() {
        let counts = Counts { actors: 2, long: 1, wide: 0 };
        let budget = Counts { actors: 1, long: 1, wide: 5 };
        assert_eq!(over_budget("a.rs", counts, budget).len(), 1);
        assert_eq!(over_budget("a.rs", counts, counts), Vec::<String>::new());
    }

    #[test]
    fn rendered_budgets_are_read_back() {
        let mut budgets =
            Budgets { commits_after: "2026-01-01T00:00:00Z".into(), ..Default::default() };
        budgets.files.insert("a.rs".into(), Counts { actors: 1, long: 0, wide: 2 });
        let again = Budgets::parse(&render(&budgets)).expect("it was rendered above");
        assert_eq!((again.files, again.commits_after), (budgets.files, budgets.commits_after));
    }
}
