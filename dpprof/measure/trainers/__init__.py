"""Optimisation algorithms. `vocabulary.trainers` lists them; `build` finds a class by its name."""
