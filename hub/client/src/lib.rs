//! How to reach an API: Link, timeouts, watch loop, work queue, backoff, lease.
