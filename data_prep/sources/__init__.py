"""Sources: where documents come from, one after the other, and what identifies them.

Nothing is imported here: worker processes load `document` alone.
"""
