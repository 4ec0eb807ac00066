"""Launches through Slurm, whose nodes share this machine's files."""
