"""Dossiers: a certified run as one zip that others can check, with model, inputs, certificates and checker."""

from __future__ import annotations

from proofmap.dossier.assemble import dossier

__all__ = ["dossier"]
