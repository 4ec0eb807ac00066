"""Words that every room shares: phases, categories, classes, loops, units. No torch."""
