"""Launching through Slurm, whose nodes share the files of this machine."""
