"""`python -m svsl`."""

import sys

from svsl.cli import main

sys.exit(main())
