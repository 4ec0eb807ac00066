"""Findings of a comparison, one file for each kind: data first, then a sentence that says it."""
