"""Nsight Compute: its program, its metric names and its reports, as plain data."""
