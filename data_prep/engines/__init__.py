"""Engines: what runs the tokenization of a plan. The bytes are the same, whichever it is.

Nothing is imported here: a worker process loads `embedded` and little else, so that many of them start fast.
"""
