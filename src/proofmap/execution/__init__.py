"""Running a network at many points that differ little: what a change reaches is computed, the rest is kept."""
