//! Configured groups in the answers of the API, and orders of operators about them.

use std::collections::BTreeMap;

use node::group_view::{
    Content, Decree, GroupOrder, GroupState, GroupView, content_name, role_name,
};
use node::status::{Facts, NodeStatus};
use serde::{Deserialize, Serialize};
use types::{Database, Epoch, ImageId, NodeId, Role};

/// The word that confirms an order to keep a node's data: writes that it has not seen are lost.
pub const KEEP_WORD: &str = "lose-later-writes";
/// The word that confirms an order to keep a copy that is not whole: keys that it lacks are lost.
pub const KEEP_PARTIAL_WORD: &str = "lose-missing-keys";
/// The word that confirms an order to begin anew: everything in the database is lost.
pub const EMPTY_WORD: &str = "erase-everything";

/// The group of a database as the asked node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    pub database: u8,
    pub protocol: String,
    /// `forming`, `active`, `wedged` between two epochs, or `lost` without a reachable full member.
    pub state: String,
    /// Of the last configuration that was active; 0 before the first one.
    pub epoch: u32,
    /// Members that it wants.
    pub wanted: usize,
    /// The members of that configuration, in their order.
    pub members: Vec<Member>,
    /// The asked node's own: `full`, `shadow` or `none`.
    pub role: String,
    /// The asked node may read locally.
    pub lease: bool,
    /// The stores of nodes that hold data, or may take part.
    pub images: Vec<Image>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    pub node: u16,
    /// `full`, or `shadow` while it copies.
    pub role: String,
}

/// A node's stores of the group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Image {
    pub node: u16,
    /// Hexadecimal. Other content has another one.
    pub image: String,
    /// `whole`: a full member's. `partial`: an unfinished copy. `blank` and `stale`: no data.
    pub content: String,
    /// The last epoch in which the node was a full member with it.
    pub joined: u32,
}

/// An order about a group that has lost all full members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    pub database: u8,
    /// The epoch that is given up.
    pub epoch: u32,
    /// The data of this node counts as complete. Absent: the group begins anew, without data.
    #[serde(default)]
    pub keep: Option<Keep>,
    /// [`KEEP_WORD`] or [`KEEP_PARTIAL_WORD`] with `keep`, otherwise [`EMPTY_WORD`].
    pub confirm: String,
}

/// The stores that an order keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Keep {
    pub node: u16,
    /// As [`Image::image`] has it.
    pub image: String,
}

/// The outcome of an order: one of both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OrderOutcome {
    /// The epoch that the order begins.
    pub epoch: Option<u32>,
    pub error: Option<String>,
}

/// Why an order did not take place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The order itself is wrong.
    Malformed(String),
    /// The state of the group does not permit it.
    NotNow(String),
}

impl Group {
    pub(crate) fn of(view: &GroupView, protocol: &str) -> Group {
        let member =
            |&(node, role): &(NodeId, Role)| Member { node: node.0, role: role_name(role).into() };
        let image = |image: &node::group_view::ImageView| Image {
            node: image.node.0,
            image: show_image(image.image),
            content: content_name(image.content).into(),
            joined: image.joined.0,
        };
        Group {
            database: view.database.0,
            protocol: protocol.to_owned(),
            state: view.state.name().to_owned(),
            epoch: view.epoch.0,
            wanted: view.wanted,
            members: view.members.iter().map(member).collect(),
            role: view.role_name().to_owned(),
            lease: view.has_lease,
            images: view.images.iter().map(image).collect(),
        }
    }

    /// All groups, in the order of databases.
    pub(crate) fn all(facts: &dyn Facts, status: &NodeStatus) -> Vec<Group> {
        let databases = &facts.config().databases;
        let protocol = |view: &GroupView| {
            let one = databases.iter().find(|one| one.database == view.database);
            one.map_or("", |one| one.protocol)
        };
        status.groups.iter().map(|view| Group::of(view, protocol(view))).collect()
    }

    /// Members with this role.
    pub fn with_role(&self, role: &str) -> impl Iterator<Item = u16> {
        let has = move |member: &&Member| member.role == role;
        self.members.iter().filter(has).map(|member| member.node)
    }

    fn warning(&self) -> Option<String> {
        let full = self.with_role(role_name(Role::Full)).count();
        if self.state == GroupState::Lost.name() {
            return Some(format!(
                "no full member of epoch {} is reachable: start its nodes, or see 'palimpsest group --help'",
                self.epoch
            ));
        }
        let is_short = full < self.wanted && self.state != GroupState::Forming.name();
        is_short.then(|| format!("{full} of {} members are full", self.wanted))
    }
}

/// Lines that a person should read. Databases with the same line share it.
pub(crate) fn warnings(groups: &[Group]) -> Vec<String> {
    let mut by_text: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for group in groups {
        if let Some(text) = group.warning() {
            by_text.entry(text).or_default().push(group.database.to_string());
        }
    }
    let line = |(text, databases): (String, Vec<String>)| {
        let plural = if databases.len() > 1 { "s" } else { "" };
        format!("database{plural} {}: {text}", databases.join(", "))
    };
    by_text.into_iter().map(line).collect()
}

impl Order {
    fn understood(&self, keeps_partial: bool) -> Result<GroupOrder, String> {
        let (decree, word) = match &self.keep {
            Some(Keep { node, image }) => {
                let decree = Decree::Image { node: NodeId(*node), image: read_image(image)? };
                (decree, if keeps_partial { KEEP_PARTIAL_WORD } else { KEEP_WORD })
            }
            None => (Decree::Empty, EMPTY_WORD),
        };
        if self.confirm != word {
            return Err(format!("this order loses data: confirm it by {word:?}"));
        }
        Ok(GroupOrder { database: Database(self.database), epoch: Epoch(self.epoch), decree })
    }

    /// True if the data to be kept lack keys, as far as this node knows.
    fn keeps_partial(&self, facts: &dyn Facts) -> bool {
        let groups = Group::all(facts, &facts.status());
        let group = groups.iter().find(|group| group.database == self.database);
        let images = group.into_iter().flat_map(|group| &group.images);
        let is_it = |image: &&Image| {
            self.keep
                .as_ref()
                .is_some_and(|keep| (keep.node, &keep.image) == (image.node, &image.image))
        };
        images.filter(is_it).any(|image| is_partial(&image.content))
    }

    /// Carries the order out. Blocks until its outcome is known.
    pub(crate) fn give(&self, facts: &dyn Facts) -> Result<Epoch, Refused> {
        let order = self.understood(self.keeps_partial(facts)).map_err(Refused::Malformed)?;
        facts.order_group(order).map_err(Refused::NotNow)
    }
}

fn show_image(image: ImageId) -> String {
    format!("{:016x}", image.0)
}

fn read_image(text: &str) -> Result<ImageId, String> {
    let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let parsed = u64::from_str_radix(text, 16).ok().filter(|_| is_hex);
    parsed.map(ImageId).ok_or_else(|| format!("{text:?} is no image: it has 16 hexadecimal digits"))
}

/// True for the content of an image that an order may keep.
#[must_use]
pub fn may_be_kept(content: &str) -> bool {
    [Content::Partial, Content::Whole].iter().any(|&it| content_name(it) == content)
}

/// True for the content of an image that lacks keys.
#[must_use]
pub fn is_partial(content: &str) -> bool {
    content_name(Content::Partial) == content
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(database: u8, state: &str, roles: &[&str]) -> Group {
        let member = |(node, role): (u16, &&str)| Member { node, role: (*role).into() };
        Group {
            database,
            protocol: "toy".into(),
            state: state.into(),
            epoch: 7,
            wanted: 3,
            members: (1..).zip(roles).map(member).collect(),
            role: "none".into(),
            lease: false,
            images: Vec::new(),
        }
    }

    #[test]
    fn short_and_lost_groups_are_warned_of() {
        let groups = [
            group(1, "active", &["full", "full", "full"]),
            group(2, "active", &["full", "full", "shadow"]),
            group(4, "wedged", &["full", "full"]),
            group(5, "lost", &["full"]),
            group(6, "forming", &[]),
        ];
        assert_eq!(
            warnings(&groups),
            [
                "databases 2, 4: 2 of 3 members are full",
                "database 5: no full member of epoch 7 is reachable: start its nodes, or see 'palimpsest group --help'"
            ]
        );
    }

    #[test]
    fn orders_need_the_word_of_what_they_lose() {
        let keep = Some(Keep { node: 2, image: "00000000000000ff".into() });
        let order = |keep, confirm: &str| {
            Order { database: 1, epoch: 7, keep, confirm: confirm.into() }.understood(false)
        };
        let (database, epoch) = (Database(1), Epoch(7));
        let decree = Decree::Image { node: NodeId(2), image: ImageId(255) };
        let expected = Ok(GroupOrder { database, epoch, decree });
        assert_eq!(order(keep.clone(), KEEP_WORD), expected);
        let partial = |confirm: &str| {
            let keep = keep.clone();
            Order { database: 1, epoch: 7, keep, confirm: confirm.into() }.understood(true)
        };
        assert_eq!(partial(KEEP_PARTIAL_WORD), expected);
        assert!(partial(KEEP_WORD).is_err());
        let expected = Ok(GroupOrder { database, epoch, decree: Decree::Empty });
        assert_eq!(order(None, EMPTY_WORD), expected);
        assert!(order(None, KEEP_WORD).is_err());
        assert!(order(keep, EMPTY_WORD).is_err());
        assert!(order(None, "").is_err());
        for image in ["", "ff", "+0000000000000ff", "00000000000000fg"] {
            assert!(order(Some(Keep { node: 2, image: image.into() }), KEEP_WORD).is_err());
        }
    }
}
