"""Bytes on disk: files, the event log, locks, digests, strict and canonical JSON, strict safetensors headers.

Every file operation passes through one seam, `filesystem.FileSystem`. What a record means is left to the layers above.
"""
