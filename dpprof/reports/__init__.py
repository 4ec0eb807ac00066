"""Records to plain tables, and tables to pages. Each report first computes data, then renders it."""
