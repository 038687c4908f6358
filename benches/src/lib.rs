//! Benches and whole-system experiments.
