"""Convolutions, pools and resizing. Images lie with channels last; filters as [R, S, C / groups, K]."""
from .. import layout, nn
from .._native import operations as native
from ..layout import NCHW, NCW, Placed
from .registry import Refused, row


def images(x):
    """The tensor [N, H, W, C] of x [N, C, H, W]."""
    return layout.stored_as(x, NCHW)


def pair(numbers, count=2):
    numbers = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    return numbers * count if len(numbers) == 1 else numbers


def _padding(padding, window, dilation):
    """Zeros at the top, bottom, left and right."""
    if padding == "valid":
        return [0, 0, 0, 0]
    if padding == "same":
        sides = []
        for extent, step in zip(window, dilation):
            total = (extent - 1) * step
            sides += [total // 2, total - total // 2]
        return sides
    rows, columns = pair(padding)
    return [rows, rows, columns, columns]


def _filter(weight):
    """Filters [K, C, R, S] as [R, S, C, K]."""
    return layout.stored_as(weight, (3, 2, 0, 1))


@row("aten.conv2d")
def conv2d(at, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    lone = len(input.shape) == 3
    if lone:
        input = layout.viewed(input, (1,) + input.shape)
    dilation = pair(dilation)
    y = native.conv2d(images(input), _filter(weight), pair(stride), _padding(padding, weight.shape[2:], dilation),
                      dilation, groups, None if bias is None else layout.plain(bias))
    y = Placed(y, NCHW)
    return layout.viewed(y, y.shape[1:]) if lone else y


def _row_of(x, filters):
    """x [N, C, W] as images of one row; filters [K, C, S] as those of one row."""
    return (native_reshape(layout.stored_as(x, NCW), lambda n, w, c: [n, 1, w, c]),
            native_reshape(layout.stored_as(filters, (2, 1, 0)), lambda s, c, k: [1, s, c, k]))


def native_reshape(tensor, shape):
    return tensor.reshape(shape(*tensor.shape))


@row("aten.conv1d")
def conv1d(at, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    if len(input.shape) != 3:
        raise Refused("conv1d without a batch axis", "Give it [N, C, L].")
    x, filters = _row_of(input, weight)
    step = pair(dilation, 1)[0]
    if isinstance(padding, str):
        sides = _padding(padding, [1, weight.shape[2]], [1, step])
    else:
        sides = [0, 0, pair(padding, 1)[0], pair(padding, 1)[0]]
    y = native.conv2d(x, filters, [1, pair(stride, 1)[0]], sides, [1, step], groups,
                      None if bias is None else layout.plain(bias))
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


@row("aten.conv3d")
def conv3d(at, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    """A sum over the depth of the filters: each plane of them is a convolution of planes of the images."""
    stride, dilation = pair(stride, 3), pair(dilation, 3)
    if isinstance(padding, str):
        raise Refused(f"padding='{padding}' of conv3d", "Give it numbers.")
    padding = pair(padding, 3)
    N, C, D, H, W = input.shape
    K, _, T, R, S = weight.shape
    x = layout.stored_as(input, (0, 4, 1, 2, 3))  # [N, D, H, W, C]
    if padding[0]:
        x = nn.pad(x, 1, padding[0], padding[0])
    filters = layout.stored_as(weight, (4, 3, 0, 1, 2))  # [T, R, S, C, K]
    depth = at.shape[2]
    total = None
    for t in range(T):
        begin = t * dilation[0]
        planes = native.strided_slice(x, 1, begin, begin + (depth - 1) * stride[0] + 1, stride[0]) \
            if stride[0] > 1 else nn.slice(x, 1, begin, begin + depth)
        y = native.conv2d(planes.reshape([N * depth, H, W, C]), nn.slice(filters, 0, t, t + 1).reshape(
            [R, S, C // groups, K]), stride[1:], _padding(padding[1:], [R, S], dilation[1:]), dilation[1:], groups)
        total = y if total is None else total + y
    if bias is not None:
        total = total + layout.plain(bias)
    rows, columns = total.shape[1:3]
    return Placed(total.reshape([N, depth, rows, columns, K]), (0, 4, 1, 2, 3))


@row("aten.conv_transpose2d")
def conv_transpose2d(at, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The images that a convolution of these filters would have been given, as its gradient has it."""
    rows, columns = pair(padding)
    y = native.conv_transpose2d(images(input), _filter(weight), pair(stride), [rows, rows, columns, columns],
                                pair(dilation), groups, pair(output_padding),
                                None if bias is None else layout.plain(bias))
    return Placed(y, NCHW)


@row("aten.conv_transpose1d")
def conv_transpose1d(at, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    x, filters = _row_of(input, weight)
    sides = pair(padding, 1)[0]
    y = native.conv_transpose2d(x, filters, [1, pair(stride, 1)[0]], [0, 0, sides, sides],
                                [1, pair(dilation, 1)[0]], groups, [0, pair(output_padding, 1)[0]],
                                None if bias is None else layout.plain(bias))
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


def _rooms(extent, window, stride, padding, ceil_mode, wanted):
    """Padding behind: more than before it where the last window is to be whole by ceil_mode."""
    needed = (wanted - 1) * stride + window - extent - padding
    return max(padding, needed) if ceil_mode else padding


def _pool_sides(x, window, stride, padding, ceil_mode, shape):
    H, W = x.shape[2:]
    return [padding[0], _rooms(H, window[0], stride[0], padding[0], ceil_mode, shape[0]),
            padding[1], _rooms(W, window[1], stride[1], padding[1], ceil_mode, shape[1])]


@row("aten.max_pool2d", "aten.max_pool2d_with_indices")
def max_pool2d(at, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    if pair(dilation) != [1, 1]:
        raise Refused("dilation of a pool")
    window = pair(kernel_size)
    stride = pair(stride) if stride else window
    sides = _pool_sides(self, window, stride, pair(padding), ceil_mode, at.shape[-2:])
    if max(sides[1] - window[0], sides[3] - window[1]) >= 0:
        raise Refused("a pool whose padding is as long as its window")
    y = Placed(native.max_pool2d(images(self), window, stride, sides), NCHW)
    if at.node.op.endswith("indices"):
        if len(at.node.outputs) > 1 and at.builder.is_used(at.node.outputs[1]):
            raise Refused("indices of a pool", "Unpool by resizing.")
        return y, None
    return y


@row("aten.avg_pool2d")
def avg_pool2d(at, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True,
               divisor_override=None):
    if divisor_override is not None:
        raise Refused("divisor_override")
    window = pair(kernel_size)
    stride, padding = (pair(stride) if stride else window), pair(padding)
    sides = _pool_sides(self, window, stride, padding, ceil_mode, at.shape[-2:])
    if (sides[1], sides[3]) != (padding[0], padding[1]) and count_include_pad and padding != [0, 0]:
        raise Refused("an average by ceil_mode that counts padding", "Set count_include_pad=False.")
    counts = count_include_pad and (sides[1], sides[3]) == (padding[0], padding[1])
    return Placed(native.average_pool2d(images(self), window, stride, sides, counts), NCHW)


@row("aten.avg_pool1d")
def avg_pool1d(at, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True):
    if ceil_mode:
        raise Refused("ceil_mode of avg_pool1d")
    x = native_reshape(layout.stored_as(self, NCW), lambda n, w, c: [n, 1, w, c])
    window, side = pair(kernel_size, 1)[0], pair(padding, 1)[0]
    y = native.average_pool2d(x, [1, window], [1, pair(stride, 1)[0] if stride else window], [0, 0, side, side],
                              count_include_pad)
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


@row("aten.max_pool1d", "aten.max_pool1d_with_indices")
def max_pool1d(at, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    if ceil_mode or pair(dilation, 1)[0] != 1:
        raise Refused("ceil_mode or dilation of max_pool1d")
    x = native_reshape(layout.stored_as(self, NCW), lambda n, w, c: [n, 1, w, c])
    window, side = pair(kernel_size, 1)[0], pair(padding, 1)[0]
    y = native.max_pool2d(x, [1, window], [1, pair(stride, 1)[0] if stride else window], [0, 0, side, side])
    y = Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)
    return (y, None) if at.node.op.endswith("indices") else y


@row("aten.max_pool3d", "aten.max_pool3d_with_indices")
def max_pool3d(at, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    """Two pools: over rows and columns of each plane, then over the depth."""
    if ceil_mode or pair(dilation, 3) != [1, 1, 1]:
        raise Refused("ceil_mode or dilation of max_pool3d")
    window = pair(kernel_size, 3)
    stride, padding = (pair(stride, 3) if stride else window), pair(padding, 3)
    N, C, D, H, W = self.shape
    x = layout.stored_as(self, (0, 4, 1, 2, 3)).reshape([N * D, H, W, C])
    y = native.max_pool2d(x, window[1:], stride[1:], [padding[1]] * 2 + [padding[2]] * 2)
    rows, columns = y.shape[1:3]
    y = native.max_pool2d(y.reshape([N, D, rows * columns, C]), [window[0], 1], [stride[0], 1],
                          [padding[0], padding[0], 0, 0])
    y = Placed(y.reshape([N, y.shape[1], rows, columns, C]), (0, 4, 1, 2, 3))
    return (y, None) if at.node.op.endswith("indices") else y


@row("aten.avg_pool3d")
def avg_pool3d(at, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True,
               divisor_override=None):
    window = pair(kernel_size, 3)
    stride = pair(stride, 3) if stride else window
    if ceil_mode or divisor_override is not None or pair(padding, 3) != [0, 0, 0]:
        raise Refused("padding, ceil_mode or divisor_override of avg_pool3d")
    N, C, D, H, W = self.shape
    x = layout.stored_as(self, (0, 4, 1, 2, 3)).reshape([N * D, H, W, C])
    y = native.average_pool2d(x, window[1:], stride[1:], [0, 0, 0, 0], True)
    rows, columns = y.shape[1:3]
    y = native.average_pool2d(y.reshape([N, D, rows * columns, C]), [window[0], 1], [stride[0], 1], [0, 0, 0, 0], True)
    return Placed(y.reshape([N, y.shape[1], rows, columns, C]), (0, 4, 1, 2, 3))


@row("aten.adaptive_avg_pool2d", "aten._adaptive_avg_pool2d")
def adaptive_avg_pool2d(at, self, output_size):
    if list(output_size) == [1, 1]:
        from .reductions import reduced
        return reduced(self, [2, 3], True, lambda x, axes: x.mean(axes))
    return Placed(native.adaptive_average_pool2d(images(self), list(at.shape[2:])), NCHW)


@row("aten.adaptive_avg_pool1d")
def adaptive_avg_pool1d(at, self, output_size):
    x = native_reshape(layout.stored_as(self, NCW), lambda n, w, c: [n, 1, w, c])
    y = native.adaptive_average_pool2d(x, [1, at.shape[2]])
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


@row("aten.adaptive_avg_pool3d", "aten._adaptive_avg_pool3d")
def adaptive_avg_pool3d(at, self, output_size):
    if any(extent != 1 for extent in at.shape[2:]):
        raise Refused("adaptive_avg_pool3d to more than one element", "Use avg_pool3d.")
    from .reductions import reduced
    return reduced(self, [2, 3, 4], True, lambda x, axes: x.mean(axes))


@row("aten.adaptive_max_pool2d", "aten.adaptive_max_pool1d")
def adaptive_max_pool(at, self, output_size):
    spatial, wanted = self.shape[2:], at.shape[2:]
    if any(extent % out for extent, out in zip(spatial, wanted)):
        raise Refused("adaptive_max_pool of parts that are not of one size", "Choose sizes that divide.")
    window = [extent // out for extent, out in zip(spatial, wanted)]
    if len(window) == 1:
        x = native_reshape(layout.stored_as(self, NCW), lambda n, w, c: [n, 1, w, c])
        y = native.max_pool2d(x, [1] + window, [1] + window, [0, 0, 0, 0])
        return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW), None
    return Placed(native.max_pool2d(images(self), window, window, [0, 0, 0, 0]), NCHW), None


def _scales_agree(at, extents, wanted, scales):
    """A scale that is not the ratio of the sizes reads other places."""
    for extent, out, scale in zip(extents, wanted, scales or []):
        if scale is not None and abs(scale * extent - out) > 1e-6:
            raise Refused(f"a scale of {scale} for {extent} to {out}", "Give size= instead of scale_factor=.")


@row("aten.upsample_bilinear2d")
def upsample_bilinear2d(at, input=None, output_size=None, align_corners=False, scale_factors=None, self=None,
                        scales_h=None, scales_w=None):
    x = input if input is not None else self
    _scales_agree(at, x.shape[2:], at.shape[2:], scale_factors or [scales_h, scales_w])
    return Placed(native.resize(images(x), list(at.shape[2:]), "bilinear", bool(align_corners)), NCHW)


@row("aten.upsample_nearest2d")
def upsample_nearest2d(at, input=None, output_size=None, scale_factors=None, self=None, scales_h=None,
                       scales_w=None):
    x = input if input is not None else self
    _scales_agree(at, x.shape[2:], at.shape[2:], scale_factors or [scales_h, scales_w])
    return Placed(native.resize(images(x), list(at.shape[2:]), "nearest", False), NCHW)


@row("aten.upsample_nearest1d", "aten.upsample_linear1d")
def upsample_1d(at, input=None, output_size=None, scale_factors=None, align_corners=False, self=None, scales=None):
    x = input if input is not None else self
    _scales_agree(at, x.shape[2:], at.shape[2:], scale_factors or [scales])
    wide = native_reshape(layout.stored_as(x, NCW), lambda n, w, c: [n, 1, w, c])
    how = "nearest" if "nearest" in at.node.op else "bilinear"
    y = native.resize(wide, [1, at.shape[2]], how, bool(align_corners))
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


@row("aten.upsample_bicubic2d")
def upsample_bicubic2d(at, **_):
    raise Refused("bicubic resizing", "Use mode='bilinear'.")


@row("aten.grid_sampler", "aten.grid_sampler_2d")
def grid_sampler(at, input, grid, interpolation_mode, padding_mode, align_corners):
    if interpolation_mode > 1 or padding_mode > 1 or len(input.shape) != 4:
        raise Refused("grid_sample by bicubic, reflection or of volumes", "Use bilinear or nearest, zeros or border.")
    y = native.grid_sample(images(input), layout.plain(grid), ["bilinear", "nearest"][interpolation_mode],
                           ["zeros", "border"][padding_mode], bool(align_corners))
    return Placed(y, NCHW)
