// The computation of each primitive, in FP64: the meaning on which all else rests, so kept plain rather than
// quick.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/graph/convolution.h"
#include "mantissa/graph/reference.h"
#include "mantissa/graph/reference_pools.h"
#include "mantissa/graph/reference_rounding.h"
#include "mantissa/numerics/coded_weights.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

using Inputs = std::span<const ReferenceTensor* const>;
using Values = std::vector<double>;
using Evaluate = std::vector<Values> (*)(const Node&, Inputs);
using Index = std::vector<std::int64_t>;

/// Calls `body(position, index)` for every element of a shape in row-major order.
template <class Body>
void for_each_element(const Shape& shape, Body&& body) {
    const std::vector<std::int64_t>& extents = shape.extents();
    Index index(extents.size());
    const std::int64_t count = shape.elements();
    for (std::int64_t position = 0; position < count; ++position) {
        body(static_cast<std::size_t>(position), index);
        for (std::size_t axis = extents.size(); axis-- > 0;) {
            if (++index[axis] < extents[axis]) break;
            index[axis] = 0;
        }
    }
}

/// The position at which a broadcast operand is read for an element of the result.
std::size_t broadcast_position(const Shape& operand, const Index& index) {
    const std::vector<std::int64_t>& extents = operand.extents();
    const std::size_t missing = index.size() - extents.size();
    std::int64_t position = 0;
    for (std::size_t axis = 0; axis < extents.size(); ++axis)
        position = position * extents[axis] + (extents[axis] == 1 ? 0 : index[axis + missing]);
    return static_cast<std::size_t>(position);
}

std::size_t position_of(const Shape& shape, const Index& index) {
    const std::vector<std::int64_t>& extents = shape.extents();
    std::int64_t position = 0;
    for (std::size_t axis = 0; axis < extents.size(); ++axis)
        position = position * extents[axis] + index[axis];
    return static_cast<std::size_t>(position);
}

Values sized(const Type& type) { return Values(type.shape.elements()); }

/// An element-wise primitive, by the meaning in its row.
std::vector<Values> by_element(const Node& node, Inputs in) {
    Values y = sized(node.outputs[0]), operands(in.size());
    for_each_element(node.outputs[0].shape, [&](std::size_t position, const Index& index) {
        for (std::size_t i = 0; i < in.size(); ++i)
            operands[i] = in[i]->values[broadcast_position(in[i]->type.shape, index)];
        y[position] = node.op->meaning(operands);
    });
    return {y};
}

/// Rounds to a binary format of `fraction` bits whose smallest normal exponent is `least` and largest is
/// `most`: nearest, ties to even; subnormals kept; beyond the largest, infinity.
double round_to(double x, int fraction, int least, int most) {
    if (x == 0 || !std::isfinite(x)) return x;
    const int exponent = std::max(std::ilogb(x), least);
    const double unit = std::ldexp(1.0, exponent - fraction);
    const double rounded = std::nearbyint(x / unit) * unit;
    return std::abs(rounded) >= std::ldexp(1.0, most + 1)
               ? std::copysign(std::numeric_limits<double>::infinity(), x)
               : rounded;
}

std::vector<Values> cast(const Node& node, Inputs in) {
    Values y = in[0]->values;
    switch (node.outputs[0].dtype) {
        case DType::f64:
        case DType::f32:
            break;
        case DType::f16:
            for (double& x : y) x = round_to(x, 10, -14, 15);
            break;
        case DType::bf16:
            for (double& x : y) x = round_to(x, 7, -126, 127);
            break;
        case DType::boolean:
            for (double& x : y) x = x != 0;
            break;
        case DType::i64:
        case DType::i32:
        case DType::u8:
        case DType::s8:
            for (double& x : y) x = std::trunc(x);
            break;
    }
    return {y};
}

std::vector<Values> same(const Node&, Inputs in) { return {in[0]->values}; }

std::vector<Values> constant(const Node& node, Inputs) {
    return {Values(node.outputs[0].shape.elements(), node.attributes.number("value"))};
}

std::vector<Values> literal(const Node& node, Inputs) {
    const SharedData& data = node.attributes.data("values");
    Values y = sized(node.outputs[0]);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = data.number(static_cast<std::int64_t>(i));
    return {y};
}

std::vector<Values> iota(const Node& node, Inputs) {
    Values y = sized(node.outputs[0]);
    const auto axis = static_cast<std::size_t>(node.attributes.integer("axis"));
    for_each_element(node.outputs[0].shape, [&](std::size_t position, const Index& index) {
        y[position] = static_cast<double>(index[axis]);
    });
    return {y};
}

std::vector<Values> random_uniform(const Node& node, Inputs in) {
    const RandomStream stream{.seed = static_cast<std::uint64_t>(static_cast<std::int64_t>(in[0]->values[0])),
                              .step = static_cast<std::uint32_t>(static_cast<std::int64_t>(in[1]->values[0])),
                              .operation = static_cast<std::uint32_t>(node.attributes.integer("operation"))};
    Values y = sized(node.outputs[0]);
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = stream.uniform(i);
    return {y};
}

std::vector<Values> transpose(const Node& node, Inputs in) {
    Values y = sized(node.outputs[0]);
    const auto& order = node.attributes.list("order");
    Index source(order.size());
    for_each_element(node.outputs[0].shape, [&](std::size_t position, const Index& index) {
        for (std::size_t axis = 0; axis < order.size(); ++axis) source[order[axis]] = index[axis];
        y[position] = in[0]->values[position_of(in[0]->type.shape, source)];
    });
    return {y};
}

std::vector<Values> rounded_to_format(const Node& node, Inputs in) {
    const std::string& format = node.attributes.word("format");
    Values y = in[0]->values;
    for (double& x : y) {
        const double given = x;
        x = format == "f16"    ? round_to(given, 10, -14, 15)
            : format == "bf16" ? round_to(given, 7, -126, 127)
                               : round_to(given, 10, -126, 127);
        // TF32 keeps finite numbers finite.
        if (format == "tf32" && std::isinf(x) && std::isfinite(given))
            x = std::copysign(std::ldexp(2 - std::ldexp(1, -10), 127), given);
    }
    return {y};
}

std::vector<Values> broadcast(const Node& node, Inputs in) {
    Values y = sized(node.outputs[0]);
    for_each_element(node.outputs[0].shape, [&](std::size_t position, const Index& index) {
        y[position] = in[0]->values[broadcast_position(in[0]->type.shape, index)];
    });
    return {y};
}

/// Calls move(position in the part, position in the whole) for each element of a part that begins at an
/// offset along one axis.
void cut(const Shape& part, const Shape& whole, std::size_t axis, std::int64_t offset, auto&& move) {
    for_each_element(part, [&](std::size_t position, Index index) {
        index[axis] += offset;
        move(position, position_of(whole, index));
    });
}

std::vector<Values> slice(const Node& node, Inputs in) {
    Values y = sized(node.outputs[0]);
    cut(node.outputs[0].shape, in[0]->type.shape, static_cast<std::size_t>(node.attributes.integer("axis")),
        node.attributes.integer("start"), [&](std::size_t p, std::size_t w) { y[p] = in[0]->values[w]; });
    return {y};
}

std::vector<Values> pad(const Node& node, Inputs in) {
    Values y = sized(node.outputs[0]);
    cut(in[0]->type.shape, node.outputs[0].shape, static_cast<std::size_t>(node.attributes.integer("axis")),
        node.attributes.integer("before"), [&](std::size_t p, std::size_t w) { y[w] = in[0]->values[p]; });
    return {y};
}

std::vector<Values> split(const Node& node, Inputs in) {
    std::vector<Values> parts;
    const auto axis = static_cast<std::size_t>(node.attributes.integer("axis"));
    const std::int64_t extent = node.outputs[0].shape.extents()[axis];
    for (std::size_t i = 0; i < node.outputs.size(); ++i) {
        Values y = sized(node.outputs[i]);
        cut(node.outputs[i].shape, in[0]->type.shape, axis, static_cast<std::int64_t>(i) * extent,
            [&](std::size_t p, std::size_t w) { y[p] = in[0]->values[w]; });
        parts.push_back(std::move(y));
    }
    return parts;
}

std::vector<Values> concat(const Node& node, Inputs in) {
    Values y = sized(node.outputs[0]);
    const auto axis = static_cast<std::size_t>(node.attributes.integer("axis"));
    std::int64_t offset = 0;
    for (const ReferenceTensor* part : in) {
        cut(part->type.shape, node.outputs[0].shape, axis, offset,
            [&](std::size_t p, std::size_t w) { y[w] = part->values[p]; });
        offset += part->type.shape.extents()[axis];
    }
    return {y};
}

std::vector<Values> write_slice(const Node& node, Inputs in) {
    const auto axis = static_cast<std::size_t>(node.attributes.integer("axis"));
    const Shape &whole = in[0]->type.shape, &part = in[1]->type.shape;
    Values y = in[0]->values;
    const std::size_t parts = part.rank() == 0 ? 1 : static_cast<std::size_t>(part[0]);
    for (std::size_t i = 0; i < in[2]->values.size(); ++i) {
        const auto start = static_cast<std::int64_t>(in[2]->values[i]);
        if (start < 0 || start + part.extents()[axis] > whole.extents()[axis])
            throw UserError(fmt::format("write_slice: [{}, {}) is outside an axis of {}", start,
                                        start + part.extents()[axis], whole.extents()[axis]));
        const std::size_t of_each = in[1]->values.size() / std::max<std::size_t>(parts, 1);
        cut(part, whole, axis, start, [&](std::size_t p, std::size_t w) {
            if (in[2]->values.size() == 1 || p / of_each == i) y[w] = in[1]->values[p];
        });
    }
    return {y};
}

std::size_t row_of(const ReferenceTensor& ids, std::size_t i, std::int64_t rows) {
    const double id = ids.values[i];
    if (!(id >= 0 && id < static_cast<double>(rows)))
        throw UserError(fmt::format("embedding: id {} is outside the table of {} rows", id, rows));
    return static_cast<std::size_t>(id);
}

std::vector<Values> embedding(const Node& node, Inputs in) {
    const auto channels = static_cast<std::size_t>(in[0]->type.shape[1]);
    Values y = sized(node.outputs[0]);
    for (std::size_t i = 0; i < in[1]->values.size(); ++i)
        std::copy_n(in[0]->values.begin() +
                        static_cast<std::ptrdiff_t>(row_of(*in[1], i, in[0]->type.shape[0]) * channels),
                    channels, y.begin() + static_cast<std::ptrdiff_t>(i * channels));
    return {y};
}

std::vector<Values> embedding_grad(const Node& node, Inputs in) {
    const auto channels = static_cast<std::size_t>(node.outputs[0].shape[1]);
    Values table = in.size() == 3 ? in[2]->values : sized(node.outputs[0]);
    for (std::size_t i = 0; i < in[1]->values.size(); ++i) {
        const std::size_t row = row_of(*in[1], i, node.outputs[0].shape[0]);
        for (std::size_t c = 0; c < channels; ++c)
            table[row * channels + c] += in[0]->values[i * channels + c];
    }
    return {table};
}

std::vector<Values> reduce(const Node& node, Inputs in, double start, double (*combine)(double, double)) {
    Shape kept = in[0]->type.shape;
    for (std::int64_t axis : node.attributes.list("axes")) kept[static_cast<int>(axis)] = 1;
    Values y(kept.elements(), start);
    for_each_element(in[0]->type.shape, [&](std::size_t position, const Index& index) {
        double& target = y[broadcast_position(kept, index)];
        target = combine(target, in[0]->values[position]);
    });
    return {y};
}

std::vector<Values> sum(const Node& node, Inputs in) {
    return reduce(node, in, 0.0, [](double a, double b) { return a + b; });
}

/// NaN wins, as it does in the kernels.
double larger(double a, double b) { return std::isnan(a) || a > b ? a : b; }

std::vector<Values> max(const Node& node, Inputs in) {
    return reduce(node, in, -std::numeric_limits<double>::infinity(), larger);
}

std::vector<Values> matmul(const Node& node, Inputs in) {
    const Shape &a = in[0]->type.shape, &b = in[1]->type.shape, &y_shape = node.outputs[0].shape;
    const bool ta = node.attributes.flag("transpose_a"), tb = node.attributes.flag("transpose_b");
    const std::int64_t m = y_shape[-2], n = y_shape[-1], k = a[ta ? -2 : -1];
    const std::int64_t batches = m * n == 0 ? 0 : y_shape.elements() / (m * n);
    Values y = sized(node.outputs[0]);
    const auto at = [](std::int64_t row, std::int64_t column, std::int64_t width) {
        return static_cast<std::size_t>(row * width + column);
    };
    for (std::int64_t batch = 0; batch < batches; ++batch)
        for (std::int64_t i = 0; i < m; ++i)
            for (std::int64_t j = 0; j < n; ++j) {
                double total = in.size() == 3 ? in[2]->values[j] : 0.0;
                for (std::int64_t x = 0; x < k; ++x)
                    total +=
                        in[0]->values[at(batch * m * k, 0, 1) + (ta ? at(x, i, a[-1]) : at(i, x, a[-1]))] *
                        in[1]->values[at(batch * n * k, 0, 1) + (tb ? at(j, x, b[-1]) : at(x, j, b[-1]))];
                y[at(batch * m + i, j, n)] = total;
            }
    return {y};
}

std::vector<Type> types_of(Inputs in) {
    std::vector<Type> types;
    for (const ReferenceTensor* tensor : in) types.push_back(tensor->type);
    return types;
}

/// Calls `body(x, filter, y)` with the places of the elements of each product of a convolution.
template <class Body>
void for_each_product(const Convolution& of, Body&& body) {
    const std::int64_t each = of.group_channels(), filters = of.group_filters();
    const auto place = [](std::int64_t index) { return static_cast<std::size_t>(index); };
    for_each_element(of.y_shape(), [&](std::size_t y, const Index& at) {
        const std::int64_t first = at[3] / filters * each;
        for (std::int64_t tap = 0; tap < of.vertical.filter * of.horizontal.filter; ++tap) {
            const std::int64_t row = of.vertical.image_place(at[1], tap / of.horizontal.filter);
            const std::int64_t column = of.horizontal.image_place(at[2], tap % of.horizontal.filter);
            if (row < 0 || row >= of.vertical.image || column < 0 || column >= of.horizontal.image) continue;
            const std::int64_t pixel = (at[0] * of.vertical.image + row) * of.horizontal.image + column;
            for (std::int64_t channel = 0; channel < each; ++channel)
                body(place(pixel * of.channels + first + channel),
                     place((tap * each + channel) * of.filters + at[3]), y);
        }
    });
}

std::vector<Values> conv2d(const Node& node, Inputs in) {
    const Convolution of = convolution_of(types_of(in), node.attributes);
    Values y = sized(node.outputs[0]);
    if (in.size() == 3)
        for (std::size_t i = 0; i < y.size(); ++i) y[i] = in[2]->values[i % in[2]->values.size()];
    for_each_product(of, [&](std::size_t x, std::size_t filter, std::size_t to) {
        y[to] += in[0]->values[x] * in[1]->values[filter];
    });
    return {y};
}

std::vector<Values> conv2d_input_gradient(const Node& node, Inputs in) {
    Values dx = sized(node.outputs[0]);
    for_each_product(convolution_of(types_of(in), node.attributes),
                     [&](std::size_t x, std::size_t filter, std::size_t y) {
                         dx[x] += in[0]->values[y] * in[1]->values[filter];
                     });
    return {dx};
}

std::vector<Values> conv2d_filter_gradient(const Node& node, Inputs in) {
    Values filters = sized(node.outputs[0]);
    for_each_product(convolution_of(types_of(in), node.attributes),
                     [&](std::size_t x, std::size_t filter, std::size_t y) {
                         filters[filter] += in[0]->values[x] * in[1]->values[y];
                     });
    return {filters};
}

/// Quantising is defined in FP32: factor and product are rounded to it, so that ties fall alike everywhere.
struct QuantizedRow {
    Values numbers;
    double scale = 0;
};

QuantizedRow quantize(std::span<const double> row) {
    constexpr float most = 127;
    float largest = 0;
    for (const double x : row)
        if (const float size = std::abs(static_cast<float>(x)); !(size <= largest)) largest = size;
    const float factor = largest == 0 ? 0 : most / largest;
    QuantizedRow out{.numbers = {}, .scale = static_cast<double>(largest / most)};
    for (const double x : row) {
        const float rounded = std::nearbyint(static_cast<float>(x) * factor);
        out.numbers.push_back(std::isnan(rounded) ? 0 : std::clamp<double>(rounded, -most - 1, most));
    }
    return out;
}

std::vector<Values> quantize_weight_by_groups(std::size_t K, Inputs in) {
    std::vector<Values> out(2);
    for (std::size_t at = 0; at < in[0]->values.size(); at += K)
        for (std::size_t k = 0; k < K; k += weights_of_group) {
            const auto values =
                std::span(in[0]->values).subspan(at + k, std::min<std::size_t>(weights_of_group, K - k));
            const std::vector<float> weights(values.begin(), values.end());
            const WeightGroup found = group_of(weights);
            out[0].insert(out[0].end(), found.numbers.begin(), found.numbers.begin() + std::ssize(weights));
            out[1].push_back(static_cast<double>(to_f32(found.scale)));
        }
    return out;
}

std::vector<Values> quantize_weight(const Node& node, Inputs in) {
    const auto K = static_cast<std::size_t>(in[0]->type.shape[1]);
    if (node.attributes.word("format") == "s4") return quantize_weight_by_groups(K, in);
    std::vector<Values> out(2);
    for (std::size_t at = 0; at < in[0]->values.size(); at += K) {
        const QuantizedRow row = quantize(std::span(in[0]->values).subspan(at, K));
        out[0].insert(out[0].end(), row.numbers.begin(), row.numbers.end());
        out[1].push_back(row.scale);
    }
    return out;
}

/// A group is a row, or 32 neighbours of it.
std::vector<Values> quantized_matmul(const Node& node, Inputs in) {
    const auto K = static_cast<std::size_t>(in[0]->type.shape[1]),
               N = static_cast<std::size_t>(in[1]->type.shape[0]);
    const std::size_t group =
        node.attributes.word("multiply") == "s4" ? weights_of_group : std::max<std::size_t>(K, 1);
    const std::size_t groups = ceil_div(K, group);
    Values y;
    for (std::size_t at = 0; at < in[0]->values.size(); at += K) {
        std::vector<QuantizedRow> x;
        for (std::size_t k = 0; k < K; k += group)
            x.push_back(quantize(std::span(in[0]->values).subspan(at + k, std::min(group, K - k))));
        for (std::size_t n = 0; n < N; ++n) {
            double total = in.size() == 4 ? in[3]->values[n] : 0;
            for (std::size_t g = 0; g < groups; ++g) {
                double sum = 0;
                for (std::size_t k = 0; k < x[g].numbers.size(); ++k)
                    sum += x[g].numbers[k] * in[1]->values[n * K + g * group + k];
                total += sum * x[g].scale * in[2]->values[n * groups + g];
            }
            y.push_back(total);
        }
    }
    return {y};
}

/// The reference knows one rank.
std::vector<Values> reduced_alone(const Node& node, Inputs in) {
    check(node.attributes.integer("ranks") == 1, "the reference evaluates what one rank computes alone");
    std::vector<Values> out;
    for (const ReferenceTensor* each : in) out.push_back(each->values);
    return out;
}

/// A part of everything, filled up with zeros; or everything, without them.
std::vector<Values> own_shard_of_one(const Node& node, Inputs in) {
    std::vector<Values> out = reduced_alone(node, in);
    for (std::size_t i = 0; i < out.size(); ++i) out[i].resize(sized(node.outputs[i]).size());
    return out;
}

std::vector<Values> norm_of_one(const Node& node, Inputs in) {
    double total = 0;
    for (const Values& values : reduced_alone(node, in))
        for (const double x : values) total += x * x;
    return {{std::sqrt(total)}, {std::isfinite(total) ? 1.0 : 0.0}};
}

const std::map<std::string_view, Evaluate>& table() {
    static const std::map<std::string_view, Evaluate> entries = {
        {"constant", constant},
        {"literal", literal},
        {"iota", iota},
        {"random_uniform", random_uniform},
        {"cast", cast},
        {"round_to", rounded_to_format},
        {"round_blocks", reference::round_blocks},
        {"stop_gradient", same},
        {"all_reduce_start", reduced_alone},
        {"all_reduce_wait", reduced_alone},
        {"reduce_scatter_start", reduced_alone},
        {"reduce_scatter_wait", own_shard_of_one},
        {"own_shard", own_shard_of_one},
        {"all_gather_start", own_shard_of_one},
        {"all_gather_rows_start", reduced_alone},
        {"all_gather_wait", reduced_alone},
        {"norm_of_parts", norm_of_one},
        {"reshape", same},
        {"transpose", transpose},
        {"broadcast", broadcast},
        {"slice", slice},
        {"pad", pad},
        {"split", split},
        {"concat", concat},
        {"write_slice", write_slice},
        {"embedding", embedding},
        {"embedding_grad", embedding_grad},
        {"sum", sum},
        {"max", max},
        {"matmul", matmul},
        {"conv2d", conv2d},
        {"conv2d_input_gradient", conv2d_input_gradient},
        {"conv2d_filter_gradient", conv2d_filter_gradient},
        {"max_pool2d", reference::max_pool2d},
        {"max_pool2d_grad", reference::max_pool2d_grad},
        {"average_pool2d", reference::average_pool2d},
        {"average_pool2d_grad", reference::average_pool2d_grad},
        {"adaptive_average_pool2d", reference::average_pool2d},
        {"adaptive_average_pool2d_grad", reference::average_pool2d_grad},
        {"quantize_weight", quantize_weight},
        {"quantized_matmul", quantized_matmul},
    };
    return entries;
}

}  // namespace

std::vector<ReferenceTensor> evaluate_primitive(const Node& node, Inputs inputs) {
    const auto entry = table().find(node.op->name);
    if (entry == table().end() && !node.op->meaning)
        throw InternalError(fmt::format("the reference has no entry for the primitive '{}'", node.op->name));
    std::vector<Values> values = node.op->meaning ? by_element(node, inputs) : entry->second(node, inputs);
    std::vector<ReferenceTensor> outputs;
    for (std::size_t i = 0; i < values.size(); ++i)
        outputs.push_back({node.outputs[i], std::move(values[i])});
    return outputs;
}

}  // namespace mantissa
