"""The decoder-only transformer: attention, feed-forward, decoder. Knows nothing of data, optimizers or records."""
