"""MLflow in and out."""
