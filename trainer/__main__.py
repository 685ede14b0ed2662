"""`python -P -m trainer`."""

from __future__ import annotations

from trainer.cli import main

main()
