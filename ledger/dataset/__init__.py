"""Prepared datasets: strict array files, the manifest that vouches for them, and the order in which they are read.

Preparation writes with this package, training reads with it, the audit verifies with it: numpy only, no torch.
"""
