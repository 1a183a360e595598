"""Sufficient and contrastive sets of runs: their arrays, conditions and totals."""
