"""Starts measuring processes, follows them, and handles their results."""
