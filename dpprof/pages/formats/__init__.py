"""Formats of other programs, made from the timeline of a step."""
