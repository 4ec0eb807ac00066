"""Privacy accounting and Poisson sampling: from a privacy budget to noise and batches, as plain data."""
