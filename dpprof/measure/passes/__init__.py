"""The ways of observing an experiment's steps. Observing disturbs, so each is a pass of its own."""
