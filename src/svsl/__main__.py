"""`python -m svsl`."""

import sys

from svsl.cli import main

if __name__ == "__main__":  # the processes of a pool import this module
    sys.exit(main())
