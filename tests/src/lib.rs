//! Fleets end to end, a stand-in member, link faults, benches.
