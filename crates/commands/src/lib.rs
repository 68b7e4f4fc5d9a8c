//! What each Redis command does to a state.
