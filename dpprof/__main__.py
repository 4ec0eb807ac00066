"""`python -m dpprof` does what the installed `dpprof` command does."""

import sys

try:
    from dpprof.cli.main import main
except KeyboardInterrupt:  # Ctrl-C before anything could handle it
    sys.exit(130)

if __name__ == "__main__":
    main()
