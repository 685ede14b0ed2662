"""`python -P -m data_prep`."""

from __future__ import annotations

if __name__ == "__main__":
    # Inside, because worker processes load this module too and need none of it.
    from data_prep.cli import main

    main()
