"""What changes to an experiment save: costs from estimates, their order, and several together."""
