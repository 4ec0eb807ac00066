"""The measurements of an experiment as plain data, and the folders that keep them."""
