"""Ground truth: networks and data of which is known what matters, and every method of explanation before them."""
