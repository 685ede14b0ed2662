"""The arithmetic of training as pure functions: the trainer runs on them and the audit checks with them."""
