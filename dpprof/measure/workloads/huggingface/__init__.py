"""Hugging Face models as a workload: `workload=huggingface:NAME`."""
