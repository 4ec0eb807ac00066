"""From a record to figures with names and units."""
