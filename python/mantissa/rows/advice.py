"""What to write instead of operations that have no row."""

_ADVICE = {
    "fft": "There are no complex numbers. Write the transform as a product with a constant matrix of cosines.",
    "view_as_real": "There are no complex numbers. Keep real and imaginary parts in two tensors.",
    "complex": "There are no complex numbers. Keep real and imaginary parts in two tensors.",
    "ctc": "Give log_probs as [T, N, C], targets padded as [N, S], and lengths as tensors.",
    "autograd.grad": "There are no second derivatives. Write the derivative that forward needs by its formula.",
    "item": "A number of the batch decides what runs. Keep it a tensor, and choose by torch.where.",
    "nonzero": "The shape depends on the batch. Multiply by the mask, or choose by torch.where.",
    "unique": "The shape depends on the batch. Count by a one-hot sum.",
    "masked_select": "The shape depends on the batch. Use torch.where, and divide by the mask's sum.",
    "linalg": "There is no linear algebra beyond products.",
    "as_strided": "Write it by unfold, slices or reshape.",
    "histc": "Count by a one-hot sum.",
}


def advice_in(words):
    """What to write instead of an operation that these words name, or nothing."""
    return next((text for part, text in _ADVICE.items() if part in words), "")


def advice_for(op):
    return advice_in(op) or "Register a row of your own: @mantissa.torch.row(\"" + op + "\")."
