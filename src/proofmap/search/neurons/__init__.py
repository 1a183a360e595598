"""Branch and bound on the inputs of any nonlinear operation."""
