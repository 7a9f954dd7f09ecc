"""Convolutions, pools and resizing. Images lie with channels last; filters as [R, S, C / groups, K]."""
from .. import layout
from .._native import operations as native
from ..layout import NCDHW, NCHW, NCW, Placed
from .registry import Refused, row


def images(x):
    """The tensor [N, H, W, C] of x [N, C, H, W]."""
    return layout.stored_as(x, NCHW)


def pair(numbers, count=2):
    numbers = list(numbers) if isinstance(numbers, (list, tuple)) else [numbers]
    return numbers * count if len(numbers) == 1 else numbers


def _axes_of(at, x):
    """How many axes an operation has windows over, as its name says."""
    axes = int(at.node.op.split("d_with")[0].rstrip("d")[-1])
    if len(x.shape) != axes + 2:
        raise Refused("a pool or convolution without a batch axis", "Give it one example of a batch.")
    return axes


def _padding(padding, window, dilation):
    """Zeros before and behind each axis of the window."""
    if padding == "valid":
        return [0, 0] * len(window)
    if padding == "same":
        sides = []
        for extent, step in zip(window, dilation):
            total = (extent - 1) * step
            sides += [total // 2, total - total // 2]
        return sides
    return [side for side in pair(padding, len(window)) for _ in range(2)]


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
    _axes_of(at, input)
    x, filters = _row_of(input, weight)
    step = pair(dilation, 1)[0]
    sides = [0, 0] + _padding(padding, weight.shape[2:], [step])
    y = native.conv2d(x, filters, [1, pair(stride, 1)[0]], sides, [1, step], groups,
                      None if bias is None else layout.plain(bias))
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


@row("aten.conv3d")
def conv3d(at, input, weight, bias=None, stride=1, padding=0, dilation=1, groups=1):
    _axes_of(at, input)
    dilation = pair(dilation, 3)
    filters = layout.stored_as(weight, (4, 3, 0, 1, 2))  # [T, R, S, C, K]
    y = native.conv3d(layout.stored_as(input, NCDHW), filters, pair(stride, 3),
                      _padding(padding, weight.shape[2:], dilation), dilation, groups,
                      None if bias is None else layout.plain(bias))
    return Placed(y, NCDHW)


@row("aten.conv_transpose2d")
def conv_transpose2d(at, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    """The images that a convolution of these filters would have been given, as its gradient has it."""
    rows, columns = pair(padding)
    y = native.conv_transpose2d(images(input), _filter(weight), pair(stride), [rows, rows, columns, columns],
                                pair(dilation), groups, pair(output_padding),
                                None if bias is None else layout.plain(bias))
    return Placed(y, NCHW)


@row("aten.conv_transpose3d")
def conv_transpose3d(at, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    _axes_of(at, input)
    y = native.conv_transpose3d(layout.stored_as(input, NCDHW), layout.stored_as(weight, (4, 3, 0, 1, 2)),
                                pair(stride, 3), _padding(padding, weight.shape[2:], None), pair(dilation, 3), groups,
                                pair(output_padding, 3), None if bias is None else layout.plain(bias))
    return Placed(y, NCDHW)


@row("aten.conv_transpose1d")
def conv_transpose1d(at, input, weight, bias=None, stride=1, padding=0, output_padding=0, groups=1, dilation=1):
    x, filters = _row_of(input, weight)
    sides = pair(padding, 1)[0]
    y = native.conv_transpose2d(x, filters, [1, pair(stride, 1)[0]], [0, 0, sides, sides],
                                [1, pair(dilation, 1)[0]], groups, [0, pair(output_padding, 1)[0]],
                                None if bias is None else layout.plain(bias))
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


def _pooled(x, axes, images_pool, volumes_pool, kernel_size, stride, padding, *how):
    """A pool over so many axes: of images, of images of one row, or of volumes."""
    window = pair(kernel_size, axes)
    stride, sides = (pair(stride, axes) if stride else window), _padding(padding, window, None)
    if axes == 3:
        return Placed(volumes_pool(layout.stored_as(x, NCDHW), window, stride, sides, *how), NCDHW)
    if axes == 2:
        return Placed(images_pool(images(x), window, stride, sides, *how), NCHW)
    row_of_x = native_reshape(layout.stored_as(x, NCW), lambda n, w, c: [n, 1, w, c])
    y = images_pool(row_of_x, [1] + window, [1] + stride, [0, 0] + sides, *how)
    return Placed(native_reshape(y, lambda n, one, w, c: [n, w, c]), NCW)


@row("aten.max_pool1d", "aten.max_pool1d_with_indices", "aten.max_pool2d", "aten.max_pool2d_with_indices",
     "aten.max_pool3d", "aten.max_pool3d_with_indices")
def max_pool(at, self, kernel_size, stride=(), padding=0, dilation=1, ceil_mode=False):
    if any(step != 1 for step in pair(dilation)):
        raise Refused("dilation of a pool")
    y = _pooled(self, _axes_of(at, self), native.max_pool2d, native.max_pool3d, kernel_size, stride, padding,
                bool(ceil_mode))
    if not at.node.op.endswith("indices"):
        return y
    if len(at.node.outputs) > 1 and at.builder.is_used(at.node.outputs[1]):
        raise Refused("indices of a pool", "Unpool by resizing.")
    return y, None


@row("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d")
def avg_pool(at, self, kernel_size, stride=(), padding=0, ceil_mode=False, count_include_pad=True,
             divisor_override=None):
    if divisor_override is not None:
        raise Refused("divisor_override")
    return _pooled(self, _axes_of(at, self), native.average_pool2d, native.average_pool3d, kernel_size, stride,
                   padding, bool(ceil_mode), bool(count_include_pad))


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
    return Placed(native.adaptive_average_pool3d(layout.stored_as(self, NCDHW), list(at.shape[2:])), NCDHW)


@row("aten.adaptive_max_pool2d", "aten.adaptive_max_pool1d")
def adaptive_max_pool(at, self, output_size):
    spatial, wanted = self.shape[2:], at.shape[2:]
    if any(extent % out for extent, out in zip(spatial, wanted)):
        raise Refused("adaptive_max_pool of parts that are not of one size", "Choose sizes that divide.")
    window = [extent // out for extent, out in zip(spatial, wanted)]
    return _pooled(self, _axes_of(at, self), native.max_pool2d, None, window, (), 0, False), None


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
