"""Figures with names and units, computed from a record."""
