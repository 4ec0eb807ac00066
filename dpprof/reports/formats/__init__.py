"""Formats that other programs open, made from the timeline of a step."""
