"""Contrastive sets: the smallest sets of groups that can change a decision."""
