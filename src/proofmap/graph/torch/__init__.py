"""Torch modules read as graphs."""
