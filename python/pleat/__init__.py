"""pleat's simulator from Python: see `pleat.sweep`."""
