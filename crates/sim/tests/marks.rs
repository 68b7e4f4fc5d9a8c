//! The list of marks equals the marks in the sources.

use std::collections::BTreeSet;
use std::path::Path;

fn marks_in(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            marks_in(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).expect("a source");
            let parts = text.split("sometimes!(\"").skip(1);
            found.extend(parts.filter_map(|part| Some(part.split_once('"')?.0.to_owned())));
        }
    }
}

#[test]
fn every_mark_of_the_product_is_listed() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = BTreeSet::new();
    for name in ["node", "protocols", "storage", "transport", "server", "transactions"] {
        marks_in(&crates.join(name).join("src"), &mut found);
    }
    let listed: BTreeSet<String> = sim::marks::MARKS.iter().map(|(_, it)| (*it).into()).collect();
    assert_eq!(listed, found);
}
