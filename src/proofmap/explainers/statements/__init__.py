"""Sentences about an explanation: the verdict on a sample, and the groups that are proven to matter most."""
