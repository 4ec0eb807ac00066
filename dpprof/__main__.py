"""`python -m dpprof` does what the installed `dpprof` command does."""

from dpprof.cli.main import main

if __name__ == "__main__":
    main()
