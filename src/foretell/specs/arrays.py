"""Arrays by what is in them."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
"""Numbers."""
Index = NDArray[np.intp]
"""Places in other arrays."""
Ints = NDArray[np.int64]
"""Whole numbers."""
Mask = NDArray[np.bool_]
"""Which of some things."""
