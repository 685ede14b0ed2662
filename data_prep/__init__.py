"""Prepares text into tokenized, ordered and verified shards."""
