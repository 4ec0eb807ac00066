"""The measuring process: `python -m dpprof.measure RUN_FOLDER`."""
