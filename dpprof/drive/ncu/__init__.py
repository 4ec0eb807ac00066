"""Nsight Compute: its program, metric names and reports, as plain data."""
