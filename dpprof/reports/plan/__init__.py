"""The report of a plan: data first, then page and Markdown."""
