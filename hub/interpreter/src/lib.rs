//! What a kind's replicas, status, health and dependencies are.
