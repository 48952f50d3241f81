//! The Karmada types, labels and conditions.
