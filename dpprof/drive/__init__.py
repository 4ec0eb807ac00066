"""The driving process: starts measuring processes, follows them, and sees to what they leave."""
