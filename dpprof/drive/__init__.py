"""The driving process: starts measuring processes, follows them, and handles their results."""
