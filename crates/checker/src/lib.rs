//! Histories and sequential specifications; knows nothing else.
