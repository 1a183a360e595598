"""Figures of sufficient sets."""
