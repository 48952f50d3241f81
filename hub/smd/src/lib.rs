//! Structured merge: field paths, server-side apply, strategic merge, schema tables.
