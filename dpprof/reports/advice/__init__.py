"""The report of an advice: data first, then page and Markdown."""
