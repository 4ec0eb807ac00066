"""Opacus's algorithms, with all that dpprof knows of Opacus's internals and limits."""
