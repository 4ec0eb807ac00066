"""Jobs, the launchers that run them, and the machines that they run on."""
