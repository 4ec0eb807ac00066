"""Workloads: a model, batches for it, and a loss per sample."""
