"""The command `python -m holdfast`."""

import sys

from holdfast.cli.command import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
