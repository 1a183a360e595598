"""Tests of sufficient and contrastive sets."""
