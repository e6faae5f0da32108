"""Pictures of activity and weights, drawn with matplotlib, which is imported when you draw."""

from lightning_accum.plot.pictures import membrane, raster, weights

__all__ = ["membrane", "raster", "weights"]
