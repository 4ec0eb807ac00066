"""Passes that observe an experiment's steps, one by one, since observing disturbs."""
