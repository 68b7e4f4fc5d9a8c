//! `docs/reference/commands.md` follows from the table.

use std::path::Path;

#[test]
fn the_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
    let shares = path.with_file_name("../../compat/shares.toml");
    let shares = std::fs::read_to_string(&shares).expect("the shares of suites");
    let page = commands::docs::markdown(&shares);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &page).expect("a writable page");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == page,
        "docs/reference/commands.md is old: run `UPDATE=1 cargo test -p commands`"
    );
}
