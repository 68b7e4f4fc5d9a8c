//! RESP2 and RESP3: parsing requests, encoding replies.
