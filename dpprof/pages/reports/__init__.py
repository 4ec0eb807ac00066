"""The reports of a run: every module has its `REPORTS`, and needs to be named nowhere else."""
