"""Pictures of activity and weights, drawn with matplotlib, which is imported when you draw."""

from lightning_accum.plot._membrane import membrane
from lightning_accum.plot._raster import raster
from lightning_accum.plot._weights import weights

__all__ = ["membrane", "raster", "weights"]
