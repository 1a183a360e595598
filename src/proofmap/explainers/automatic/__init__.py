"""The parts of `pm.explain`: the ranges of the inputs, the choice of a map, the choice of a proof, and the answer."""
