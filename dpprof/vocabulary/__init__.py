"""Names shared by all packages: phases, categories, classes, loops, units. Free of torch."""
