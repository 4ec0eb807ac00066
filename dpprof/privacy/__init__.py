"""From a privacy budget to noise and batches: accountants, and Poisson sampling. Plain data in and out."""
