"""Searches of properties: exclude the unsafe cases of boxes by splits of inputs, or of units."""
