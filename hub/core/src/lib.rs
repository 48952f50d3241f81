//! Every decision as a pure function.
