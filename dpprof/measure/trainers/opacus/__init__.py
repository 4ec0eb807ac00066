"""Opacus's algorithms: all that dpprof knows of Opacus's own names and limits."""
