//! Requests and answers: on a string, or on a collection.

use checker::model::collection::{CollectionInput, CollectionOutput};
use checker::model::kv::{KvInput, KvOutput};

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    Text(KvInput),
    Collection(CollectionInput),
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    Text(KvOutput),
    Collection(CollectionOutput),
}

impl From<KvInput> for Input {
    fn from(input: KvInput) -> Input {
        Input::Text(input)
    }
}

impl From<CollectionInput> for Input {
    fn from(input: CollectionInput) -> Input {
        Input::Collection(input)
    }
}
