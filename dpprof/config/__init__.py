"""What the user asks for: settings, experiments, grids."""
