"""Advice on an experiment: changes weighed against each other, and words for them."""
