"""`python -m stalloc`."""

import sys

from stalloc.cli import main

if __name__ == "__main__":
    sys.exit(main())
