//! A real file, past the page cache where the file system lets it.

use std::path::PathBuf;

use bytes::Bytes;
use storage::log::{FileDevice, Log, OpenError, file_of, verify};
use types::Database;

use crate::support::BINDING;

struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_file_keeps_the_log_and_does_not_grow() {
    let name = format!("palimpsest-log-{}", std::process::id());
    let scratch = Scratch(std::env::temp_dir().join(name));
    std::fs::create_dir_all(&scratch.0).expect("a scratch directory can be made");
    assert_eq!(
        Log::open_at(&file_of(&scratch.0, Database(3)), BINDING).err(),
        Some(OpenError::Missing)
    );
    Log::create_at(&file_of(&scratch.0, Database(3)), BINDING, 2_048).expect("there is room");
    let record = |index: u64| Bytes::from(index.to_le_bytes().repeat(40));
    for round in 0..5 {
        let mut log =
            Log::open_at(&file_of(&scratch.0, Database(3)), BINDING).expect("it is there");
        let next = log.engine.next_index();
        assert!(log.engine.range(0..=u64::MAX).all(|(index, kept)| *kept == record(index)));
        for index in next..next + 1_000 {
            log.engine.append(index, vec![record(index)]).expect("there is room");
            if index % 50 == 0 {
                log.flush().expect("the disk does not fail");
                log.engine.cut_front(index.saturating_sub(500));
            }
        }
        log.flush().expect("the disk does not fail");
        assert_eq!(log.engine.next_index(), (round + 1) * 1_000 + 1);
    }
    let mut device = FileDevice::open(&file_of(&scratch.0, Database(3)))
        .expect("it opens")
        .expect("it is there");
    let report = verify(&mut device).expect("it is a log");
    assert_eq!(report.faults_count, 0, "{report:?}");
    let len = std::fs::metadata(file_of(&scratch.0, Database(3))).expect("it is there").len();
    assert_eq!(len, 8_192 + 2_048 * 512);
}
