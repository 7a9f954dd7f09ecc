"""Functions of elements. Operands broadcast, each in the type of the result; comparisons in the common type."""
import math

from .. import _native, layout
from .. import nn
from .._native import operations as native
from ..layout import Placed
from .registry import Refused, row

_RANK = {"bool": 0, "u8": 1, "i32": 2, "f32": 3}


def common_dtype(*values):
    """The type in which values and numbers are compared: a number counts for no more than its kind."""
    tensors = [x.dtype for x in values if isinstance(x, Placed)]
    best = max(tensors, key=_RANK.__getitem__)
    for x in values:
        if isinstance(x, float) and _RANK[best] < 3:
            best = "f32"
        if isinstance(x, int) and not isinstance(x, bool) and best == "bool":
            best = "i32"
    return "i32" if best == "u8" else best


def _unary(ops, function):
    @row(*ops)
    def record(at, self, **_):
        return at.each(function, self)


for _name, _function in {
        "exp": nn.exp, "log": nn.log, "tanh": nn.tanh, "erf": nn.erf, "sin": nn.sin, "cos": nn.cos, "sqrt": nn.sqrt,
        "rsqrt": native.rsqrt, "relu": nn.relu, "sigmoid": nn.sigmoid, "silu": nn.swish, "log1p": native.log1p,
        "expm1": native.expm1, "neg": lambda x: -x, "reciprocal": lambda x: 1.0 / x,
        "square": lambda x: x * x,
        "log2": lambda x: nn.log(x) * (1 / math.log(2)), "log10": lambda x: nn.log(x) * (1 / math.log(10)),
        "erfc": native.erfc, "tan": lambda x: nn.sin(x) / nn.cos(x),
        "log_sigmoid": lambda x: -nn.softplus(-x), "selu": lambda x: native.elu(x, 1.6732632423543772) * 1.0507009873554805,
        "mish": lambda x: x * nn.tanh(nn.softplus(x)), "softsign": lambda x: x / (nn.abs(x) + 1.0),
        "sinh": lambda x: (native.expm1(x) - native.expm1(-x)) * 0.5, "cosh": lambda x: (nn.exp(x) + nn.exp(-x)) * 0.5,
        "atan": native.atan, "asin": lambda x: native.atan(x * native.rsqrt((1.0 - x) * (x + 1.0))),
        "acos": lambda x: native.atan(nn.sqrt((1.0 - x) / (x + 1.0))) * 2.0}.items():
    _unary((f"aten.{_name}", f"aten.special_{_name}"), _function)


def _whole(op, function):
    """Whole numbers stay as they are."""
    @row(op)
    def record(at, self, decimals=0, **_):
        if decimals:
            raise Refused("decimals", "Multiply, round and divide.")
        return self if at.dtype == "i32" else at.each(function, self)


for _name, _function in {"floor": native.floor, "ceil": native.ceil, "round": native.round,
                         "trunc": native.trunc}.items():
    _whole(f"aten.{_name}", _function)


@row("aten.abs")
def absolute(at, self):
    return at.each(nn.abs, self) if at.dtype == "f32" else at.each(nn.maximum, self, at.each(lambda x: -x, self))


@row("aten.sign", "aten.sgn")
def sign(at, self):
    return at.each(native.sign, self)


def _angle(at, y, x):
    """Of a point: by the quotient of its smaller and its larger coordinate, so that neither gradient is 0/0."""
    steep = nn.less(nn.abs(x), nn.abs(y))
    larger = nn.select(steep, y, x)
    larger = nn.select(nn.equal(larger, at.number(0)), at.number(1), larger)
    angle = native.atan(nn.select(steep, x, y) / larger)
    half_turn = nn.select(nn.less(x, at.number(0)), native.copysign(at.number(math.pi), y), at.number(0))
    return nn.select(steep, native.copysign(at.number(math.pi / 2), y) - angle, angle + half_turn)


@row("aten.atan2")
def angle_of_point(at, self, other):
    return at.each(lambda y, x: _angle(at, y, x), self, other)


@row("aten.erfinv", "aten.lgamma", "aten.digamma")
def no_instruction(at, **_):
    raise Refused(f"{at.node.op}", "There is no such function of elements here.")


@row("aten.add")
def add(at, self, other, alpha=1):
    if at.dtype == "bool":
        return at.each(native.logical_or, self, other)
    if alpha != 1:
        other = at.each(lambda x: x * at.number(alpha), other) if isinstance(other, Placed) else other * alpha
    return at.each(lambda a, b: a + b, self, other)


@row("aten.sub")
def subtract(at, self, other, alpha=1):
    if alpha != 1:
        other = at.each(lambda x: x * at.number(alpha), other) if isinstance(other, Placed) else other * alpha
    return at.each(lambda a, b: a - b, self, other)


@row("aten.rsub")
def subtract_from(at, self, other, alpha=1):
    if alpha != 1:
        self = at.each(lambda x: x * at.number(alpha), self)
    return at.each(lambda a, b: b - a, self, other)


@row("aten.mul")
def multiply(at, self, other):
    if at.dtype == "bool":
        return at.each(native.logical_and, self, other)
    return at.each(lambda a, b: a * b, self, other)


@row("aten.div", "aten.true_divide")
def divide(at, self, other, rounding_mode=None):
    if rounding_mode is None:
        if not isinstance(other, Placed) and other != 0 and math.frexp(other)[0] == 0.5:
            return at.each(lambda a: a * (1 / other), self)
        return at.each(lambda a, b: a / b, self, other)
    if at.dtype == "i32":
        if rounding_mode != "floor":
            raise Refused("division of whole numbers toward zero", "Use rounding_mode='floor'.")
        return at.each(native.floor_divide, self, other)
    rounded = native.floor if rounding_mode == "floor" else native.trunc
    return at.each(lambda a, b: rounded(a / b), self, other)


@row("aten.floor_divide")
def floor_divide(at, self, other):
    return divide(at, self, other, "floor")


@row("aten.remainder")
def remainder(at, self, other):
    return at.each(native.remainder, self, other)


@row("aten.exp2")
def power_of_two(at, self):
    return power(at, 2, self)


@row("aten.pow")
def power(at, self, exponent):
    if not isinstance(self, Placed):
        if self <= 0:
            raise Refused("a power of a number that is not positive")
        return at.each(lambda x: native.power(at.number(self), x), exponent)
    if isinstance(exponent, Placed):
        return at.each(native.power, self, exponent)
    if at.dtype == "i32":
        return _whole_power(at, self, exponent)
    if exponent == 0.5:
        return at.each(nn.sqrt, self)
    if exponent == -0.5:
        return at.each(native.rsqrt, self)
    if exponent == -1:
        return at.each(lambda x: 1.0 / x, self)
    if float(exponent).is_integer() and abs(exponent) <= 64:
        return at.each(lambda x: x ** float(exponent), self)
    return at.each(lambda x: native.power(x, at.number(exponent)), self)


def _whole_power(at, x, exponent):
    if not 1 <= exponent <= 8 or int(exponent) != exponent:
        raise Refused(f"a power {exponent} of whole numbers")
    result = x
    for _ in range(int(exponent) - 1):
        result = at.each(lambda a, b: a * b, result, x)
    return result


def _chosen(at, condition, first, second, dtype=None):
    """Where the condition holds the first, elsewhere the second."""
    dtype = dtype or at.dtype
    tensors, order = layout.together([condition, at.value(first, dtype), at.value(second, dtype)])
    if dtype == "bool":
        held, a, b = tensors
        return Placed(native.logical_or(native.logical_and(held, a), native.logical_and(native.logical_not(held), b)),
                      order)
    return Placed(nn.select(*tensors), order)


@row("aten.where")
def where(at, condition, self, other):
    return layout.broadcast(_chosen(at, at.cast(condition, "bool"), self, other), at.shape)


@row("aten.masked_fill")
def masked_fill(at, self, mask, value):
    return layout.broadcast(_chosen(at, at.cast(mask, "bool"), value, self), at.shape)


def _compared(op, function):
    @row(op)
    def record(at, self, other):
        return at.each(function, self, other, dtype=_wide(common_dtype(self, other)))


def _wide(dtype):
    return "i32" if dtype == "bool" else dtype


for _name, _function in {
        "lt": nn.less, "le": nn.less_equal, "eq": nn.equal, "gt": lambda a, b: nn.less(b, a),
        "ge": lambda a, b: nn.less_equal(b, a), "ne": lambda a, b: native.logical_not(nn.equal(a, b))}.items():
    _compared(f"aten.{_name}", _function)


def _either_alone(a, b):
    return native.logical_or(native.logical_and(a, native.logical_not(b)),
                             native.logical_and(native.logical_not(a), b))


def _bits(name, of_booleans, of_integers):
    """logical_and and its kind ask whether operands are 0; bitwise_and and `&` take them bit by bit."""
    @row(f"aten.logical_{name}")
    def logical(at, self, other):
        return at.each(of_booleans, self, other, dtype="bool")

    @row(f"aten.bitwise_{name}", f"aten.__{name}__")
    def bitwise(at, self, other):
        if at.dtype == "bool":
            return at.each(of_booleans, self, other)
        return at.cast(at.each(of_integers, self, other, dtype="i32"))


_bits("and", native.logical_and, native.bit_and)
_bits("or", native.logical_or, native.bit_or)
_bits("xor", _either_alone, native.bit_xor)


@row("aten.logical_not")
def logical_not(at, self):
    x = at.cast(self, "bool")
    return Placed(native.logical_not(x.tensor), x.order)


@row("aten.bitwise_not")
def bitwise_not(at, self):
    if at.dtype == "bool":
        return logical_not(at, self)
    return at.cast(at.each(lambda x: native.bit_xor(x, at.number(255 if at.dtype == "u8" else -1, "i32")), self, dtype="i32"))


@row("aten.isnan")
def is_nan(at, self):
    return Placed(native.logical_not(nn.equal(self.tensor, self.tensor)), self.order)


@row("aten.isfinite")
def is_finite(at, self):
    return Placed(native.is_finite(self.tensor), self.order)


@row("aten.isinf")
def is_infinite(at, self):
    x = self.tensor
    return Placed(native.logical_and(nn.equal(x, x), native.logical_not(native.is_finite(x))), self.order)


@row("aten.maximum")
def maximum(at, self, other):
    return at.each(nn.maximum, self, other)


@row("aten.minimum")
def minimum(at, self, other):
    return at.each(nn.minimum, self, other)


@row("aten.clamp", "aten.hardtanh", "aten.clip", "aten.relu6", "aten.clamp_min", "aten.clamp_max")
def clamp(at, self, min=None, max=None, min_val=None, max_val=None):
    """The gradient at a bound that is a number is 0; it is shared with a bound that is a tensor."""
    if at.node.op == "aten.relu6":
        min_val, max_val = 0, 6
    min, max = (min if min_val is None else min_val), (max if max_val is None else max_val)
    x = at.cast(self)
    if at.dtype == "i32" or any(isinstance(bound, Placed) for bound in (min, max)):
        x = x if min is None else at.each(nn.maximum, x, min)
        return x if max is None else at.each(nn.minimum, x, max)
    if min is not None:
        x = _chosen(at, at.each(lambda v: nn.less(at.number(min), v), x), x, float(min))
    if max is not None:
        x = _chosen(at, at.each(lambda v: nn.less(v, at.number(max)), x), x, float(max))
    if self.dtype == "f32":  # NaN stays
        is_number = Placed(nn.equal(self.tensor, self.tensor), self.order)
        x = _chosen(at, is_number, x, self)
    return x


@row("aten.leaky_relu")
def leaky_relu(at, self, negative_slope=0.01):
    return _chosen(at, at.each(lambda x: nn.less(at.number(0), x), self), self,
                   at.each(lambda x: x * float(negative_slope), self))


@row("aten.prelu", "aten._prelu_kernel")
def prelu(at, self, weight):
    if len(weight.shape) == 1 and len(self.shape) > 1:
        weight = layout.viewed(weight, [-1 if axis == 1 else 1 for axis in range(len(self.shape))]
                               if weight.shape[0] == 1 else
                               [weight.shape[0] if axis == 1 else 1 for axis in range(len(self.shape))])
    return _chosen(at, at.each(lambda x: nn.less(at.number(0), x), self), self,
                   at.each(lambda x, w: x * w, self, weight))


@row("aten.elu")
def elu(at, self, alpha=1, scale=1, input_scale=1):
    if input_scale != 1:
        raise Refused("input_scale")
    x = at.each(lambda x: native.elu(x, float(alpha)), self)
    return x if scale == 1 else at.each(lambda x: x * float(scale), x)


@row("aten.celu")
def celu(at, self, alpha=1.0):
    return at.each(lambda x: native.elu(x * (1 / alpha), 1.0) * float(alpha), self)


@row("aten.gelu")
def gelu(at, self, approximate="none"):
    return at.each(nn.gelu if approximate == "tanh" else native.erf_gelu, self)


@row("aten.softplus")
def softplus(at, self, beta=1, threshold=20):
    """Beyond the threshold there it is x, which differs by less than rounding at 20."""
    if threshold < 15:
        raise Refused(f"a threshold of {threshold}", "Leave it at 20.")
    return at.each(lambda x: nn.softplus(x) if beta == 1 else nn.softplus(x * float(beta)) * (1 / beta), self)


@row("aten.hardsigmoid")
def hardsigmoid(at, self):
    return _hard(at, self, lambda x: (x + 3.0) * (1 / 6), 0.0, 1.0)


@row("aten.hardswish")
def hardswish(at, self):
    """The gradient at -3 is 0, and at 3 it is 1."""
    middle = at.each(lambda x: x * (x + 3.0) * (1 / 6), self)
    below = at.each(lambda x: nn.less_equal(x, at.number(-3)), self)
    above = at.each(lambda x: nn.less_equal(at.number(3), x), self)
    return _chosen(at, below, 0.0, _chosen(at, above, self, middle))


def _hard(at, x, middle, low, high):
    below = at.each(lambda x: nn.less_equal(x, at.number(-3)), x)
    above = at.each(lambda x: nn.less_equal(at.number(3), x), x)
    return _chosen(at, below, low, _chosen(at, above, high, at.each(middle, x)))


@row("aten.threshold")
def threshold(at, self, threshold, value):
    return _chosen(at, at.each(lambda x: nn.less(at.number(threshold), x), self), self, float(value))


@row("aten._to_copy", "aten.to")
def to_copy(at, self, **_):
    if at.dtype == "i32" and self.dtype == "f32":
        return at.cast(Placed(native.trunc(self.tensor), self.order))
    return at.cast(self)


@row("aten.type_as")
def type_as(at, self, other):
    return to_copy(at, self)


@row("aten.clone", "aten.contiguous", "aten.alias", "aten.lift_fresh_copy", "aten.lift", "aten.to_dense")
def same(at, self, **_):
    return self


@row("aten.detach")
def detach(at, self):
    if self.dtype != "f32":
        return self
    return Placed(nn.stop_gradient(self.tensor), self.order)


@row("aten.copy")
def copy(at, self, src, non_blocking=False):
    return layout.broadcast(at.cast(src), at.shape)


@row("aten.fill")
def fill(at, self, value):
    return layout.broadcast(at.value(value), at.shape)


@row("aten.zero")
def zero(at, self):
    return at.full(0.0)


@row("aten.addcmul")
def addcmul(at, self, tensor1, tensor2, value=1):
    return at.each(lambda x, a, b: x + a * b * float(value), self, tensor1, tensor2)


@row("aten.addcdiv")
def addcdiv(at, self, tensor1, tensor2, value=1):
    return at.each(lambda x, a, b: x + a / b * float(value), self, tensor1, tensor2)


@row("aten.lerp")
def lerp(at, self, end, weight):
    return at.each(lambda a, b, w: a + (b - a) * w, self, end, weight)
