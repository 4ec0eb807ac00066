"""A plan for private training: options with noise, memory and time, and the recommended one."""
