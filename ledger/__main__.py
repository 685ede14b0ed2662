"""`python -m ledger` is the command `ledger`."""

import sys

from ledger.cli import main

if __name__ == "__main__":
    sys.exit(main())
