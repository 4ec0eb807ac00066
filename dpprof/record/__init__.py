"""What was measured, as plain data, and the folder that keeps it."""
