//! `palimpsest group`: the group of a database, and orders once all its full members are lost.

use std::path::PathBuf;

use admin::group::{
    EMPTY_WORD, Group, Image, KEEP_PARTIAL_WORD, KEEP_WORD, Keep, Order, OrderOutcome, is_partial,
    may_be_kept,
};

use super::admin_port;
use crate::{Failure, config};

const PATH: &str = "/api/v1/group";

#[derive(clap::Args)]
#[command(
    after_help = "Without an order it shows the group: its members, and the data that nodes still have.\n\n\
    A group is lost once no node with all acknowledged writes can be reached. It then stands still and waits for \
    one: start those nodes, and no write is lost. Give an order only if none of them ever comes back.\n\n\
    --keep NODE: the data of that node count as complete. Writes that it had not stored are lost, though clients \
    were told that they had succeeded. A partial copy lacks more, whole keys, and wants \
    --confirm lose-missing-keys.\n\
    --empty: the database begins anew on all nodes. Everything in it is lost.\n\n\
    Both are refused while a full member can be reached, or if --epoch is not the one that is shown. Data of other \
    databases stay. A node that comes back after an order loses its data.\n\n\
    The password is taken from PALIMPSEST_PASSWORD or --password-file.\n\n\
    Example:\n  palimpsest group --database 1\n  \
    palimpsest group --database 1 --epoch 7 --keep 3 --confirm lose-later-writes"
)]
pub(crate) struct Args {
    /// Admin address of any node
    #[arg(
        long,
        value_name = "HOST:PORT",
        env = "PALIMPSEST_ADDR",
        default_value = "127.0.0.1:7379"
    )]
    address: String,
    /// The database whose group it is
    #[arg(long, value_name = "N")]
    database: u8,
    /// Give up this epoch: that of the last active configuration
    #[arg(long, value_name = "N")]
    epoch: Option<u32>,
    /// Let the group go on with the data of this node
    #[arg(long, value_name = "NODE", conflicts_with = "empty", requires = "epoch")]
    keep: Option<u16>,
    /// Let the group begin anew, without any data
    #[arg(long, requires = "epoch")]
    empty: bool,
    /// Confirm the loss: lose-later-writes for --keep, erase-everything for --empty
    #[arg(long, value_name = "WORD")]
    confirm: Option<String>,
    /// Show the group as JSON
    #[arg(long)]
    json: bool,
    /// The nodes' password, for those beyond loopback
    #[arg(long, value_name = "FILE", env = "PALIMPSEST_PASSWORD_FILE")]
    password_file: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    config::look_up("--address", &args.address)?;
    let password = config::password(args.password_file.as_deref())?;
    let group = look(args, password.as_deref())?;
    let Some(order) = order(args, &group)? else {
        match args.json {
            true => println!("{:#}", serde_json::json!(group)),
            false => print!("{}", render(&group)),
        }
        return Ok(());
    };
    let outcome: OrderOutcome = admin_port::post(&args.address, PATH, password.as_deref(), &order)
        .map_err(|silence| Failure::fault(silence.text(&args.address)))?;
    match (outcome.epoch, outcome.error) {
        (Some(epoch), None) => {
            println!(
                "database {}: epoch {epoch} begins; 'status' shows its members",
                args.database
            );
            Ok(())
        }
        (_, error) => Err(Failure::fault(format!(
            "database {}: refused: {}",
            args.database,
            error.unwrap_or_else(|| "no reason was given".into())
        ))),
    }
}

fn look(args: &Args, password: Option<&[u8]>) -> Result<Group, Failure> {
    let status: serde_json::Value = admin_port::get(&args.address, "/api/v1/status", password)
        .map_err(|silence| Failure::fault(silence.text(&args.address)))?;
    let databases = status["databases"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_it = |one: &&serde_json::Value| one["index"].as_u64() == Some(u64::from(args.database));
    let Some(database) = databases.iter().find(is_it) else {
        return Err(Failure::usage(format!("there is no database {}", args.database)));
    };
    match serde_json::from_value::<Option<Group>>(database["group"].clone()) {
        Ok(Some(group)) => Ok(group),
        Ok(None) => Err(Failure::usage(format!(
            "database {} has no group: its protocol is {}",
            args.database,
            database["protocol"].as_str().unwrap_or("unknown")
        ))),
        Err(why) => {
            Err(Failure::fault(format!("{} answers as another version: {why}", args.address)))
        }
    }
}

/// The nodes that have a whole copy, as a hint.
fn wholes(group: &Group) -> String {
    let is_whole = |image: &&Image| may_be_kept(&image.content) && !is_partial(&image.content);
    let nodes: Vec<String> =
        group.images.iter().filter(is_whole).map(|image| image.node.to_string()).collect();
    if nodes.is_empty() {
        return String::new();
    }
    format!(" (whole copies: node {})", nodes.join(", "))
}

/// The order that the flags give; `None`: only show the group.
fn order(args: &Args, group: &Group) -> Result<Option<Order>, Failure> {
    let (keep, loss, word) = match args.keep {
        Some(node) => {
            let image = kept(group, node)?;
            let keep = Keep { node, image: image.image.clone() };
            if is_partial(&image.content) {
                let loss = format!("keys that node {node} lacks are lost{}", wholes(group));
                (Some(keep), loss, KEEP_PARTIAL_WORD)
            } else {
                let loss = format!("writes that node {node} had not stored are lost");
                (Some(keep), loss, KEEP_WORD)
            }
        }
        None if args.empty => (None, "everything in it is lost".to_owned(), EMPTY_WORD),
        None if args.confirm.is_some() || args.epoch.is_some() => {
            return Err(Failure::usage(
                "say --keep NODE or --empty, or leave --epoch and --confirm out",
            ));
        }
        None => return Ok(None),
    };
    let epoch = args.epoch.unwrap_or_default();
    if epoch != group.epoch {
        return Err(Failure::usage(format!(
            "--epoch {epoch} is not the last active one of database {}, which is {}",
            group.database, group.epoch
        )));
    }
    match &args.confirm {
        Some(confirm) if confirm == word => {
            Ok(Some(Order { database: args.database, epoch, keep, confirm: confirm.clone() }))
        }
        _ => Err(Failure::usage(format!(
            "database {}: {loss} for good; if that is meant, add --confirm {word}",
            group.database
        ))),
    }
}

fn kept(group: &Group, node: u16) -> Result<&Image, Failure> {
    let image = group.images.iter().find(|image| image.node == node);
    image.filter(|image| may_be_kept(&image.content)).ok_or_else(|| {
        let with_data = group.images.iter().filter(|image| may_be_kept(&image.content));
        let nodes: Vec<String> = with_data.map(|image| image.node.to_string()).collect();
        let database = group.database;
        Failure::usage(match nodes.is_empty() {
            true => format!("no node has data of database {database}: only --empty is left"),
            false => format!(
                "node {node} has no data of database {database}; nodes that have: {}",
                nodes.join(", ")
            ),
        })
    })
}

fn render(group: &Group) -> String {
    let Group { database, protocol, state, epoch, wanted, .. } = group;
    let members = group.members.iter().map(|member| format!("{} ({})", member.node, member.role));
    let members: Vec<String> = members.collect();
    let members = if members.is_empty() { "none".to_owned() } else { members.join(", ") };
    let mut text = format!(
        "database {database} ({protocol}): {state}\nepoch {epoch}, {wanted} members wanted\nmembers: {members}\n"
    );
    for Image { node, image, content, joined } in &group.images {
        text += &format!("node {node}: image {image}, {content}");
        match joined {
            0 => text += "\n",
            joined => text += &format!(", full in epoch {joined}\n"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use admin::group::Member;
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: Args,
    }

    fn args(words: &str) -> Args {
        let words = "group --database 1".split(' ').chain(words.split_whitespace());
        Cli::try_parse_from(words).expect("it is well-formed").args
    }

    fn group() -> Group {
        let image = |node: u16, content: &str, joined| Image {
            node,
            image: format!("{node:016x}"),
            content: content.into(),
            joined,
        };
        Group {
            database: 1,
            protocol: "toy".into(),
            state: "lost".into(),
            epoch: 7,
            wanted: 3,
            members: vec![Member { node: 1, role: "full".into() }],
            role: "none".into(),
            lease: false,
            images: vec![image(1, "blank", 0), image(2, "whole", 5), image(3, "partial", 0)],
        }
    }

    fn refusal(words: &str) -> String {
        match order(&args(words), &group()) {
            Err(Failure::Usage(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn orders_name_epoch_data_and_loss() {
        assert!(matches!(order(&args(""), &group()), Ok(None)));
        let kept = order(&args("--epoch 7 --keep 2 --confirm lose-later-writes"), &group());
        let order_to_keep = kept.expect("it is complete").expect("an order");
        let image = "0000000000000002".to_owned();
        assert_eq!(order_to_keep.keep, Some(Keep { node: 2, image }));
        let empty = order(&args("--epoch 7 --empty --confirm erase-everything"), &group());
        assert_eq!(empty.expect("it is complete").expect("an order").keep, None);
    }

    #[test]
    fn incomplete_orders_are_refused_with_the_remedy() {
        assert!(refusal("--epoch 7 --empty").contains("add --confirm erase-everything"));
        assert!(refusal("--epoch 7 --keep 2").contains("add --confirm lose-later-writes"));
        let partial = refusal("--epoch 7 --keep 3 --confirm lose-later-writes");
        assert!(partial.contains("(whole copies: node 2)"), "{partial}");
        assert!(partial.contains("add --confirm lose-missing-keys"), "{partial}");
        let wrong = refusal("--epoch 7 --empty --confirm lose-later-writes");
        assert!(wrong.contains("erase-everything"), "{wrong}");
        assert!(refusal("--epoch 6 --empty --confirm erase-everything").contains("which is 7"));
        let blank = refusal("--epoch 7 --keep 1 --confirm lose-later-writes");
        assert!(blank.contains("nodes that have: 2"), "{blank}");
        assert!(refusal("--epoch 7").contains("--keep NODE or --empty"));
        for words in ["--keep 2", "--empty", "--epoch 7 --keep 2 --empty"] {
            let words = "group --database 1".split(' ').chain(words.split(' '));
            assert!(Cli::try_parse_from(words).is_err());
        }
    }

    #[test]
    fn group_is_shown_with_its_data() {
        assert_eq!(
            render(&group()),
            "database 1 (toy): lost\nepoch 7, 3 members wanted\nmembers: 1 (full)\n\
             node 1: image 0000000000000001, blank\n\
             node 2: image 0000000000000002, whole, full in epoch 5\n\
             node 3: image 0000000000000003, partial\n"
        );
    }
}
