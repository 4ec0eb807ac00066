"""The parts of `verify`: gradients, noise, sensitivity, weights."""
