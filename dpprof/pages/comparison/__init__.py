"""The comparison in HTML, Markdown, images and the terminal."""
