"""Dossiers: a certified run as one zip that others can check, with model, inputs, certificates and checker."""

from proofmap.dossier.assemble import dossier

__all__ = ["dossier"]
