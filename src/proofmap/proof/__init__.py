"""What is proven, for others to check."""
