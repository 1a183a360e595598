"""Lower bounds of the size of all sufficient sets."""
