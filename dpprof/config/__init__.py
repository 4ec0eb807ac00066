"""The user's input: settings, experiments, grids."""
