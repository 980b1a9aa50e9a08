"""``python -m octavo`` is the command ``octavo``."""

import sys

from octavo.cli import main

if __name__ == "__main__":
    sys.exit(main())
