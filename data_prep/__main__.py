"""`python -P -m data_prep`."""

from __future__ import annotations

from data_prep.cli import main

if __name__ == "__main__":
    main()
