"""What each operation of a program records: one row an operation, a family a file. Users register their own by `row`."""
from . import attention, contractions, elementwise, images, losses, movement, norms, randoms, recurrences, reductions
from .build import Builder, CaptureError, Refusal, from_stored, stored_type, to_stored
from .registry import Refused, known, row, row_of

__all__ = ["Builder", "CaptureError", "Refusal", "Refused", "attention", "contractions", "elementwise", "from_stored",
           "images", "known", "losses", "movement", "norms", "randoms", "recurrences", "reductions", "row", "row_of",
           "stored_type", "to_stored"]
