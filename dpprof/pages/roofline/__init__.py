"""The roofline in HTML and the terminal."""
