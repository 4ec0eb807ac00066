"""Measures a training loop that is not dpprof's: its steps as they come, its phases by hooks."""
