"""Write runs to MLflow and read them back."""
