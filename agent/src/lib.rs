//! The agent: pulls Works, applies them, reports status, renews the lease.
