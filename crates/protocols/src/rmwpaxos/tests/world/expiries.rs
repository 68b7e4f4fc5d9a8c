//! Times to live in histories.

use base::Nanos;
use checker::history::ClientId;
use checker::model::kv::{ExpiryTag, KvInput};
use types::{Key, Tag};

use super::World;

impl World {
    /// The value may vanish once its time after the request is over. The invocation is placed when
    /// that moment comes.
    pub(super) fn watch_expiry(&mut self, key: Key, tag: Tag, millis: u8) {
        let at = self.now + Nanos::from_millis(u64::from(millis));
        self.expiries.push((at, key, tag));
    }

    pub(in super::super) fn place_expiries(&mut self) {
        let due: Vec<_> = self.expiries.extract_if(.., |(at, _, _)| *at <= self.now).collect();
        for (_, key, tag) in due {
            self.clock += 1;
            let history = self.histories.get_mut(&key).expect("it was asked");
            let input = KvInput::Expire(Some(ExpiryTag(tag.0)));
            history.invoke(ClientId(u64::MAX - tag.0), input, self.clock);
        }
    }
}
