"""Work of the benchmark `reasons`: cases, stored rows, the second check, orders, maps, and other data."""
