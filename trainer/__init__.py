"""The reference trainer: a decoder-only transformer, trained under the ledger's records."""
