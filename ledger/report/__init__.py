"""How results are shown: lines of text for people, schemas for programs. Knows nothing of the command line."""
