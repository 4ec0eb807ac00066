"""How the measuring process marks the lines of its log that are meant for whoever follows it."""

SAID = "[dpprof] "
