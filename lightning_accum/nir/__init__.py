"""Export of networks to NIR, the Neuromorphic Intermediate Representation."""

from lightning_accum.nir.export import to_nir

__all__ = ["to_nir"]
