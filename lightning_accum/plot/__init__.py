"""Pictures of activity and weights, drawn with matplotlib, which is imported when you draw."""

from lightning_accum.plot.activity import membrane, raster
from lightning_accum.plot.fields import weights

__all__ = ["membrane", "raster", "weights"]
