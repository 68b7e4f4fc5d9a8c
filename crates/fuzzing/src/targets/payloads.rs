//! What one frame between two nodes carries.

use node::frame_payload::{decode, header_len, put_message, write_header};
use types::{AmnesiaCount, Database, Epoch, Incarnation, NodeId, Shard};

use super::Target;

pub(super) const TARGET: Target = Target {
    name: "payloads",
    claim: "what is taken out of a payload, put together again, is the payload's beginning",
    run,
    seeds,
    short: 300_000,
};

fn run(data: &[u8]) {
    let Ok((header, head, messages)) = decode(data) else { return };
    let losses: Vec<(NodeId, AmnesiaCount)> = header.crash_vector().collect();
    let mut again = vec![0; header_len(losses.len())];
    let (sender, incarnation) = (header.sender, header.incarnation);
    write_header(&mut again, sender, incarnation, header.amnesia, header.epoch, losses.into_iter());
    assert_eq!(again, head);
    for message in messages.map_while(Result::ok) {
        let before = again.len();
        put_message(&mut again, message.database, message.shard, |out| {
            out.extend_from_slice(message.bytes);
        });
        assert_eq!(&again[before..], message.whole);
    }
    assert!(data.starts_with(&again));
}

fn seeds() -> Vec<Vec<u8>> {
    let seed = |others: u16| {
        let mut frame = vec![0; header_len(usize::from(others))];
        let losses: Vec<(NodeId, AmnesiaCount)> =
            (0..others).map(|n| (NodeId(n + 2), AmnesiaCount(7))).collect();
        let (me, incarnation) = (NodeId(1), Incarnation(5));
        write_header(&mut frame, me, incarnation, AmnesiaCount(2), Epoch(1), losses.into_iter());
        for number in 0..3 {
            put_message(&mut frame, Database(number), Shard(200 + number), |out| {
                out.extend(std::iter::repeat_n(number, 10 * usize::from(number)));
            });
        }
        frame
    };
    vec![seed(0), seed(2), seed(8)]
}
