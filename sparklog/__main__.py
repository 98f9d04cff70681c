"""``python -m sparklog``: the command line."""

import sys

from sparklog.cli import main

if __name__ == "__main__":
    sys.exit(main())
