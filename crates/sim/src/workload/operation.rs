//! Requests and answers: on a string, on a collection, or of a transaction.

use checker::model::collection::{CollectionInput, CollectionOutput};
use checker::model::kv::{KvInput, KvOutput};

use crate::workload::transactions::{TransactionInput, TransactionOutput};

/// A request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Input {
    Text(KvInput),
    Collection(CollectionInput),
    Transaction(TransactionInput),
}

/// An answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Output {
    Text(KvOutput),
    Collection(CollectionOutput),
    Transaction(TransactionOutput),
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

impl From<TransactionInput> for Input {
    fn from(input: TransactionInput) -> Input {
        Input::Transaction(input)
    }
}
