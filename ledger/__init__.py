"""The run ledger for language-model training: records, storage, audit."""
