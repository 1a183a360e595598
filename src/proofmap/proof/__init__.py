"""Proofs that others can check: certificates, and the checker that trusts none of the code that made them."""
