"""Lowering: what lies between a schedule and machine code, as small rewrites of the same IR."""

from .pipeline import lower

__all__ = ["lower"]
