"""Findings: statistics and decisions as typed data, each with its sentence."""
