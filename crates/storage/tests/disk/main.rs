//! The disk medium: against a plain map, against damage, and with its threads on real files.

mod crash;
mod doubt;
mod faults;
mod groups;
mod history;
mod joins;
mod late_reads;
mod listing;
mod liveness;
mod lost_ring;
mod marks;
mod model;
mod old_superblock;
mod overlap;
mod pace;
mod ring_end;
mod room;
mod rot;
mod rot_tides;
mod scrub;
mod shell;
mod support;
mod surplus;
mod survey;
mod unread;
mod unread_lives;
