//! A durable, revisioned key-value store with watch.
