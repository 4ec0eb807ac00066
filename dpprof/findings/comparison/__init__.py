"""Experiments side by side: the cost of each trainer, which one to use, and what got worse."""
