"""Experiments side by side: what each trainer costs, which one to use, and what got worse."""
