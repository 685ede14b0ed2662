"""The run ledger for language-model training: records, storage, audit."""

__version__ = "0.1.0"
