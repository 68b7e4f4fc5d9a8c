//! Orders of operators about configured groups, until the membership service has answered them.

use std::collections::BTreeMap;

use base::Nanos;
use membership::Report;
use types::Database;

use super::Control;
use crate::group_view::GroupOrder;
use crate::shell::mailbox::OrderAnswer;

/// When an order without an outcome makes way for another one. The service answers before: it
/// waits 10 s for the register, and 10 s for the order's own operation.
const FORGOTTEN_AFTER: Nanos = Nanos::from_secs(25);

/// The order under way of each group. The service reports outcomes without naming orders, so there
/// is one at a time.
#[derive(Debug, Default)]
pub(super) struct Orders {
    waiting: BTreeMap<Database, (Nanos, OrderAnswer)>,
}

impl Orders {
    /// False if an order of this group is under way.
    fn add(&mut self, now: Nanos, group: Database, answer: &OrderAnswer) -> bool {
        let is_over = |(since, _): &(Nanos, OrderAnswer)| now.since(*since) > FORGOTTEN_AFTER;
        if !self.waiting.get(&group).is_none_or(is_over) {
            return false;
        }
        self.waiting.insert(group, (now, answer.clone()));
        true
    }

    pub fn on_report(&mut self, report: &Report) {
        let (group, outcome) = match *report {
            Report::Refused { group, reason } => (group, Err(reason.to_owned())),
            Report::Decreed { group, epoch } => (group, Ok(epoch)),
            _ => return,
        };
        if let Some((_, answer)) = self.waiting.remove(&group) {
            // The operator may have gone.
            let _ = answer.try_send(outcome);
        }
    }
}

impl Control {
    pub(super) fn on_order(&mut self, order: GroupOrder, answer: OrderAnswer) {
        let GroupOrder { database, epoch, decree } = order;
        let now = self.node_status.clocks.now();
        let has_group = self.groups.as_ref().is_some_and(|it| it.status(database).is_some());
        if !has_group || !self.orders.add(now, database, &answer) {
            let reason = match has_group {
                true => "another order about this database is under way".to_owned(),
                false => format!("database {database} has no group on this node"),
            };
            let _ = answer.try_send(Err(reason));
            return;
        }
        self.with_groups(|groups, now, out| {
            groups.on_operator(now, (database, epoch), decree, out)
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use types::Epoch;

    use super::*;

    #[test]
    fn one_order_of_a_group_waits_at_a_time() {
        let (first, outcome) = mpsc::sync_channel(1);
        let (second, _) = mpsc::sync_channel(1);
        let (now, group) = (Nanos::from_secs(9), Database(1));
        let mut orders = Orders::default();
        assert!(orders.add(now, group, &first));
        assert!(!orders.add(now, group, &second));
        assert!(orders.add(now, Database(2), &second), "another group");
        orders.on_report(&Report::Found { group });
        orders.on_report(&Report::Decreed { group: Database(3), epoch: Epoch(4) });
        assert!(outcome.try_recv().is_err());
        orders.on_report(&Report::Refused { group, reason: "no" });
        assert_eq!(outcome.try_recv(), Ok(Err("no".to_owned())));
        assert!(orders.add(now, group, &second), "the first has ended");
        let later = now + FORGOTTEN_AFTER + Nanos(1);
        assert!(orders.add(later, group, &first), "the second is forgotten");
        orders.on_report(&Report::Decreed { group, epoch: Epoch(7) });
        assert_eq!(outcome.try_recv(), Ok(Ok(Epoch(7))));
    }
}
