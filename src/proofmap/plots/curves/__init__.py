"""Curves over the radius: the overlap against ε, as data and as a figure."""
