"""Pages of findings, in HTML, Markdown and the terminal. Each report first computes data, then renders it."""
