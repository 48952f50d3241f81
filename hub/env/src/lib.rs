//! Clock, wall clock, randomness and ids as one handed-in value.
