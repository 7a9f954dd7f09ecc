// The symbolic tensor: ordinary C++ expressions over it record a graph. Operations are in mantissa::ops; C++
// finds them there by their operands, without a name in front.
//
// Two-operand arithmetic broadcasts as NumPy does. Axes may be negative: they count from the end. Every
// function throws UserError, naming the operation, the model's scope and the line, if shapes or types do not
// fit, and for an empty tensor.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <source_location>
#include <span>
#include <vector>

#include "mantissa/graph/type.h"

namespace mantissa::inline v0 {

class Graph;
class SharedData;

namespace ops {

/// The line that asks for a tensor, which errors name.
using Where = std::source_location;

class Tensor {
  public:
    Tensor() = default;  ///< empty: stands for "no tensor"
    Tensor(Graph& graph, Value value) : graph_(&graph), value_(value) {}

    explicit operator bool() const { return graph_ != nullptr; }
    // A member that an empty tensor does not have; it throws UserError.
    Graph& graph(Where at = Where::current()) const {
        if (!graph_) [[unlikely]]
            refuse_empty(at);
        return *graph_;
    }
    Value value() const { return value_; }
    const Type& type(Where at = Where::current()) const;
    const Shape& shape(Where at = Where::current()) const { return type(at).shape; }
    DType dtype(Where at = Where::current()) const { return type(at).dtype; }
    int rank(Where at = Where::current()) const { return shape(at).rank(); }
    std::int64_t dim(int axis, Where at = Where::current()) const;

  private:
    [[noreturn]] static void refuse_empty(Where at);

    Graph* graph_ = nullptr;
    Value value_;
};

/// A tensor and the line that names it: how an operator, which takes no further parameter, learns its line.
struct Operand {
    Tensor tensor;
    Where at;

    // NOLINTNEXTLINE(google-explicit-constructor): operators convert to it
    Operand(Tensor x, Where line = Where::current()) : tensor(x), at(line) {}
};

/// A number and the line that names it, likewise.
struct Number {
    double value;
    Where at;

    // NOLINTNEXTLINE(google-explicit-constructor): operators convert to it
    Number(double number, Where line = Where::current()) : value(number), at(line) {}
};

// Sources.
/// A tensor of equal values.
Tensor constant(Graph& graph, double value, DType dtype = DType::f32, Shape shape = {},
                Where at = Where::current());
/// A tensor of these values, in row-major order, each rounded once to the type.
Tensor literal(Graph& graph, std::vector<double> values, DType dtype, Shape shape,
               Where at = Where::current());
/// A tensor of these elements, of any type (graph/attributes.h). Tables however large cost the graph
/// nothing.
Tensor literal(Graph& graph, SharedData data, Shape shape, Where at = Where::current());
/// Element = its index along `axis`.
Tensor iota(Graph& graph, Shape shape, int axis, DType dtype = DType::i32, Where at = Where::current());
/// Uniform in [0, 1): element i is a function of (seed, step, operation, i). seed and step: i64 scalars.
Tensor random_uniform(Tensor seed, Tensor step, std::int64_t operation, Shape shape,
                      Where at = Where::current());

// Element-wise.
Tensor operator+(Operand a, Tensor b);
Tensor operator-(Operand a, Tensor b);
Tensor operator*(Operand a, Tensor b);
Tensor operator/(Operand a, Tensor b);
Tensor operator+(Operand a, double b);
Tensor operator-(Operand a, double b);
Tensor operator*(Operand a, double b);
Tensor operator/(Operand a, double b);
Tensor operator+(double a, Operand b);
Tensor operator-(double a, Operand b);
Tensor operator*(double a, Operand b);
Tensor operator/(double a, Operand b);
Tensor operator-(Operand a);
// `a` names another tensor then; tensors are values, and operations recorded on the old one stay.
Tensor& operator+=(Tensor& a, Operand b);
Tensor& operator-=(Tensor& a, Operand b);
Tensor& operator*=(Tensor& a, Operand b);
Tensor& operator/=(Tensor& a, Operand b);
Tensor& operator+=(Tensor& a, Number b);
Tensor& operator-=(Tensor& a, Number b);
Tensor& operator*=(Tensor& a, Number b);
Tensor& operator/=(Tensor& a, Number b);
Tensor maximum(Tensor a, Tensor b,
               Where at = Where::current());  ///< at a tie the gradient is shared in halves
Tensor minimum(Tensor a, Tensor b,
               Where at = Where::current());  ///< at a tie the gradient is shared in halves
Tensor maximum(Tensor a, double b, Where at = Where::current());
Tensor minimum(Tensor a, double b, Where at = Where::current());
Tensor less(Tensor a, Tensor b, Where at = Where::current());
Tensor less_equal(Tensor a, Tensor b, Where at = Where::current());
Tensor equal(Tensor a, Tensor b, Where at = Where::current());
Tensor logical_and(Tensor a, Tensor b, Where at = Where::current());
/// Where `condition` holds, a; elsewhere b.
Tensor select(Tensor condition, Tensor a, Tensor b, Where at = Where::current());
Tensor exp(Tensor x, Where at = Where::current());
Tensor log(Tensor x, Where at = Where::current());
Tensor tanh(Tensor x, Where at = Where::current());
Tensor erf(Tensor x, Where at = Where::current());
Tensor sin(Tensor x,
           Where at = Where::current());  ///< of radians; on the CPU NaN from 2^20 on
Tensor cos(Tensor x,
           Where at = Where::current());  ///< of radians; on the CPU NaN from 2^20 on
Tensor sqrt(Tensor x, Where at = Where::current());
Tensor rsqrt(Tensor x, Where at = Where::current());
Tensor abs(Tensor x, Where at = Where::current());  ///< its gradient at 0 is 0
/// x to the power of a number. A whole exponent up to 64 is multiplied out; with others x must be 0 or more,
/// else the result is NaN.
Tensor pow(Tensor x, double exponent, Where at = Where::current());
Tensor is_finite(Tensor x, Where at = Where::current());
Tensor cast(Tensor x, DType dtype, Where at = Where::current());
/// x itself; no gradient flows back.
Tensor stop_gradient(Tensor x, Where at = Where::current());

// Movement.
/// One extent may be -1: it follows from the others.
Tensor reshape(Tensor x, Shape shape, Where at = Where::current());
/// Axis i of the result is axis order[i] of x.
Tensor transpose(Tensor x, std::vector<std::int64_t> order, Where at = Where::current());
Tensor broadcast_to(Tensor x, Shape shape, Where at = Where::current());
/// Elements start <= index < stop along the axis.
Tensor slice(Tensor x, int axis, std::int64_t start, std::int64_t stop, Where at = Where::current());
/// Adds zeros before and after along the axis.
Tensor pad(Tensor x, int axis, std::int64_t before, std::int64_t after, Where at = Where::current());
/// Equal parts along the axis.
std::vector<Tensor> split(Tensor x, int axis, std::int64_t parts, Where at = Where::current());
Tensor concat(std::span<const Tensor> parts, int axis, Where at = Where::current());
/// x with `part` written over it from index `start` (i32 scalar, known when it runs) of the axis on. A part
/// that does not lie within x is an error of the run.
Tensor write_slice(Tensor x, Tensor part, Tensor start, int axis, Where at = Where::current());
/// Rows of table [V, C] named by ids (i32, any shape): [..., C]. An id outside [0, V) is an error of the run.
Tensor embedding(Tensor table, Tensor ids, Where at = Where::current());

// Reductions. The reduced axes stay with extent 1 if `keep`.
// Without axes: over all of them.
enum class KeepAxes : bool { no, yes };
Tensor sum(Tensor x, std::vector<std::int64_t> axes, KeepAxes keep = KeepAxes::no,
           Where at = Where::current());
Tensor sum(Tensor x, Where at = Where::current());
/// The sum written in a wider type than its terms have.
Tensor sum_as(DType output, Tensor x, std::vector<std::int64_t> axes, Where at = Where::current());
Tensor max(Tensor x, std::vector<std::int64_t> axes, KeepAxes keep = KeepAxes::no,
           Where at = Where::current());
Tensor mean(Tensor x, std::vector<std::int64_t> axes, KeepAxes keep = KeepAxes::no,
            Where at = Where::current());
Tensor max(Tensor x, Where at = Where::current());
Tensor mean(Tensor x, Where at = Where::current());

// Contractions.
struct MatmulOptions {
    bool transpose_a = false;          ///< a is stored [..., K, M]
    bool transpose_b = false;          ///< b is stored [..., N, K]
    std::optional<Tensor> bias = {};   ///< [N], added to each row
    std::optional<DType> output = {};  ///< f32 where the operands are shorter; else: the operands' type
    std::string multiply = {};         ///< "tf32" for FP32 operands; empty: as they are stored
};
/// [..., M, K] x [..., K, N] -> [..., M, N]; leading axes equal.
Tensor matmul(Tensor a, Tensor b, const MatmulOptions& options = {}, Where at = Where::current());

struct Conv2dOptions {
    std::array<std::int64_t, 2> stride = {1, 1};         ///< down and across
    std::array<std::int64_t, 4> padding = {0, 0, 0, 0};  ///< zeros at the top, bottom, left and right
    std::array<std::int64_t, 2> dilation = {1, 1};       ///< down and across
    std::int64_t groups = 1;           ///< each group of filters reads its own part of the channels
    std::optional<Tensor> bias = {};   ///< [K], added to each pixel
    std::optional<DType> output = {};  ///< as of a matmul
    std::string multiply = {};         ///< as of a matmul
};
/// Images x [N, H, W, C] under filters [R, S, C / groups, K] -> [N, H', W', K]; graph/convolution.h says how.
Tensor conv2d(Tensor x, Tensor filter, const Conv2dOptions& options = {}, Where at = Where::current());

/// The gradient of the input to a conv2d from K channels to C, as PyTorch has it. x [N, H, W, C] under
/// filters [R, S, K / groups, C] -> [N, H', W', K]. H' is (H - 1) stride - top - bottom + (R - 1) dilation +
/// 1 + `more`, and W' likewise.
Tensor conv_transpose2d(Tensor x, Tensor filter, const Conv2dOptions& options = {},
                        std::array<std::int64_t, 2> more = {0, 0}, Where at = Where::current());

struct Conv1dOptions {
    std::int64_t stride = 1, dilation = 1, groups = 1;
    std::array<std::int64_t, 2> padding = {0, 0};  ///< zeros before and behind; causal: all before
    std::optional<Tensor> bias = {};               ///< [K]
};
/// x [N, T, C] under filters [R, C / groups, K] -> [N, T', K].
Tensor conv1d(Tensor x, Tensor filter, const Conv1dOptions& options = {}, Where at = Where::current());

struct Conv3dOptions {
    std::array<std::int64_t, 3> stride = {1, 1, 1}, dilation = {1, 1, 1};  ///< depth, rows, columns
    std::array<std::int64_t, 6> padding = {};  ///< zeros before and behind each of the three
    std::int64_t groups = 1;                   ///< as of a conv2d
    std::optional<Tensor> bias = {};           ///< [K]
};
/// Volumes x [N, D, H, W, C] under filters [T, R, S, C / groups, K] -> [N, D', H', W', K].
Tensor conv3d(Tensor x, Tensor filter, const Conv3dOptions& options = {}, Where at = Where::current());
/// As conv_transpose2d: x [N, D, H, W, C] under filters [T, R, S, K / groups, C] -> [N, D', H', W', K].
Tensor conv_transpose3d(Tensor x, Tensor filter, const Conv3dOptions& options = {},
                        std::array<std::int64_t, 3> more = {0, 0, 0}, Where at = Where::current());

/// Where the diagonal of a causal mask begins if there are more keys than queries, or fewer.
enum class AttentionCorner : std::uint8_t {
    last,   ///< the last query sees all keys, the one before all but the last, ...; one without keys gives 0
    first,  ///< the first query sees the first key, the next one more, ..., as PyTorch's is_causal has it
};
struct AttentionOptions {
    bool causal = false;
    AttentionCorner corner = AttentionCorner::last;
    std::optional<double> scale = {};  ///< of the scores; 1 / sqrt(D) if not given
};
/// softmax(scale q k^T) v: q [..., H, T, D], k [..., G, S, D], v [..., G, S, E] -> [..., H, T, E]. Vaswani et
/// al. 2017. G divides H: query head h reads keys and values of head h / (H / G). Ainslie et al. 2023. With
/// three axes the first counts sequences, with two there is one head. Where E is not D, the shorter one is
/// computed as if it were the longer.
Tensor attention(Tensor q, Tensor k, Tensor v, const AttentionOptions& options = {},
                 Where at = Where::current());

// Composites.
/// Over the last axis; gamma and beta [C]. Ba, Kiros, Hinton 2016.
Tensor layer_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon = 1e-5, Where at = Where::current());
/// gamma x / sqrt(mean(x^2) + epsilon), over the last axis; gamma [C]. Zhang, Sennrich 2019.
Tensor rms_norm(Tensor x, Tensor gamma, double epsilon = 1e-5, Where at = Where::current());
/// Rotary positions: turns the pair of elements i and i + D/2 of each head of x [B, T, H, D] by an angle. The
/// angle's cosine and sine are FP32 [T, D/2]. They are tables: no gradient flows to them. Su et al. 2021;
/// pairs as in GPT-NeoX.
Tensor rotary(Tensor x, Tensor cosine, Tensor sine, Where at = Where::current());
/// Over the last axis.
Tensor softmax(Tensor x, Where at = Where::current());
/// The tanh form of GPT-2: x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). Hendrycks, Gimpel 2016.
Tensor gelu(Tensor x, Where at = Where::current());
// Activations, element by element. Each stays finite, as does its gradient, wherever the function does.
Tensor relu(Tensor x, Where at = Where::current());     ///< max(x, 0); its gradient at 0 is 0
Tensor sigmoid(Tensor x, Where at = Where::current());  ///< 1 / (1 + exp(-x))
/// x where it is above 0, else alpha (exp(x) - 1). Clevert, Unterthiner, Hochreiter 2015.
Tensor elu(Tensor x, double alpha = 1.0, Where at = Where::current());
Tensor softplus(Tensor x, Where at = Where::current());  ///< log(1 + exp(x))
/// x sigmoid(x). Ramachandran, Zoph, Le 2017.
Tensor swish(Tensor x, Where at = Where::current());

struct BatchNormed {
    Tensor y;         ///< as x
    Tensor mean;      ///< FP32 [C]
    Tensor variance;  ///< FP32 [C]; biased: divided by the number of elements
};
/// (x - mean) / sqrt(variance + epsilon) * gamma + beta, with mean and variance of each channel over all axes
/// but the last; gamma and beta [C]. Only y has a gradient. Ioffe, Szegedy 2015.
BatchNormed batch_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon = 1e-5,
                       Where at = Where::current());
struct ChannelStatistics {
    Tensor mean, variance;  ///< [C]
};
/// Normalisation with given statistics [C], as batch normalisation is evaluated. mean and variance get no
/// gradient.
Tensor normalize(Tensor x, Tensor gamma, Tensor beta, const ChannelStatistics& statistics,
                 double epsilon = 1e-5, Where at = Where::current());

// Pools of images [N, H, W, C]. Windows that would end beyond the image and its padding are left out, or with
// `ceil_mode` the first of them is taken, as far as it lies inside.
struct Pool2dOptions {
    std::array<std::int64_t, 2> window, stride;          ///< rows, columns
    std::array<std::int64_t, 4> padding = {0, 0, 0, 0};  ///< top, bottom, left, right; less than the window
    bool count_padding = false;  ///< averages only: divide by the window, not by its part in the image
    bool ceil_mode = false;
};
/// Padding never wins. NaN does; the gradient goes to the first of equal elements.
Tensor max_pool2d(Tensor x, const Pool2dOptions& options, Where at = Where::current());
Tensor average_pool2d(Tensor x, const Pool2dOptions& options, Where at = Where::current());
/// [N, H, W, C] -> [N, rows, columns, C]: averages over as many parts of the image, of nearly equal size.
Tensor adaptive_average_pool2d(Tensor x, std::array<std::int64_t, 2> extents, Where at = Where::current());

/// Pools of volumes [N, D, H, W, C], by the rules of Pool2dOptions.
struct Pool3dOptions {
    std::array<std::int64_t, 3> window, stride;  ///< depth, rows, columns
    std::array<std::int64_t, 6> padding = {};    ///< before and behind each of the three
    bool count_padding = false;
    bool ceil_mode = false;
};
Tensor max_pool3d(Tensor x, const Pool3dOptions& options, Where at = Where::current());
Tensor average_pool3d(Tensor x, const Pool3dOptions& options, Where at = Where::current());
Tensor adaptive_average_pool3d(Tensor x, std::array<std::int64_t, 3> extents, Where at = Where::current());

/// Mean over all rows of -log softmax(logits)[target]. logits [..., V], targets i32 [...] in [0, V).
Tensor cross_entropy(Tensor logits, Tensor targets, Where at = Where::current());
/// The loss without the rows whose target is below 0: the sum over the other rows divided by `counted`, a
/// floating scalar. Where `counted` is empty, the sum is divided by the number of these rows (by 1 where
/// there are none, and the loss is 0).
Tensor counted_cross_entropy(Tensor logits, Tensor targets, Tensor counted = {}, Where at = Where::current());
struct RandomState {
    Tensor seed;  ///< i64 scalar
    Tensor step;  ///< i64 scalar
};
/// Zero with probability `rate`, else x / (1 - rate). `operation` tells this use from every other.
Tensor dropout(Tensor x, const RandomState& random, double rate, std::int64_t operation,
               Where at = Where::current());

// More functions of elements: of f32, bf16 and f16, made by the generator on every device.
Tensor by_elements(const char* op, std::initializer_list<Tensor> operands, Where at);
inline Tensor floor(Tensor x, Where at = Where::current()) { return by_elements("floor", {x}, at); }
inline Tensor ceil(Tensor x, Where at = Where::current()) { return by_elements("ceil", {x}, at); }
/// To the nearest whole number, ties to even.
inline Tensor round(Tensor x, Where at = Where::current()) { return by_elements("round", {x}, at); }
/// Toward zero.
inline Tensor trunc(Tensor x, Where at = Where::current()) { return by_elements("trunc", {x}, at); }
/// -1, 0 or 1; NaN stays.
inline Tensor sign(Tensor x, Where at = Where::current()) { return by_elements("sign", {x}, at); }
/// log(1 + x), and e^x - 1, exact in the last digits where x is small.
inline Tensor log1p(Tensor x, Where at = Where::current()) { return by_elements("log1p", {x}, at); }
inline Tensor expm1(Tensor x, Where at = Where::current()) { return by_elements("expm1", {x}, at); }
/// The angle in radians, between -pi/2 and pi/2.
inline Tensor atan(Tensor x, Where at = Where::current()) { return by_elements("atan", {x}, at); }
/// 1 - erf(x), exact in the last digits where the result is small.
inline Tensor erfc(Tensor x, Where at = Where::current()) { return by_elements("erfc", {x}, at); }
/// x^y as C has it: negative x gives a number for whole y alone, else NaN.
inline Tensor pow(Tensor x, Tensor y, Where at = Where::current()) { return by_elements("pow", {x, y}, at); }
/// |x| with the sign of y, whose gradient is 0.
inline Tensor copysign(Tensor x, Tensor y, Where at = Where::current()) {
    return by_elements("copysign", {x, y}, at);
}
/// The remainder of division toward minus infinity, with the sign of y. i32 too: by 0 it is 0. In floating
/// point it is NaN by 0, and where x / y is 2^46 in size or more.
inline Tensor remainder(Tensor x, Tensor y, Where at = Where::current()) {
    return by_elements(x.dtype() == DType::i32 ? "integer_remainder" : "remainder", {x, y}, at);
}
/// Division of i32 toward minus infinity; by 0 it is 0.
inline Tensor floor_divide(Tensor x, Tensor y, Where at = Where::current()) {
    return by_elements("integer_division", {x, y}, at);
}
/// x held between two numbers; NaN stays. The gradient is dy where x lies from `least` to `most`, else 0.
Tensor clamp(Tensor x, double least, double most, Where at = Where::current());
Tensor logical_not(Tensor a, Where at = Where::current());
Tensor logical_or(Tensor a, Tensor b, Where at = Where::current());

// Along an axis, by the operations above.
/// Elements start, start + step, ... below stop along the axis.
Tensor slice(Tensor x, int axis, std::int64_t start, std::int64_t stop, std::int64_t step,
             Where at = Where::current());
/// Element i goes to i + shift, around the end.
Tensor roll(Tensor x, int axis, std::int64_t shift, Where at = Where::current());
/// The elements that `pad` adds: x's outermost ones again, or x mirrored at its ends, which are not repeated.
enum class Edges : std::uint8_t { replicated, reflected };
Tensor pad(Tensor x, int axis, std::int64_t before, std::int64_t after, Edges edges,
           Where at = Where::current());
/// The sum of all elements up to each, in FP32 and rounded once; of i32 exact below 2^24.
Tensor cumsum(Tensor x, int axis, Where at = Where::current());
/// i32: where the greatest element stands, the first of equals; NaN is greatest. It has no gradient.
Tensor argmax(Tensor x, int axis, Where at = Where::current());
/// x [..., V, ...] at i32 indices of its own shape but along the axis. An index outside [0, V) is an error of
/// the run, as in the functions below.
Tensor gather(Tensor x, int axis, Tensor index, Where at = Where::current());
/// The parts of x at indices along the axis; axes of the indices, of any shape, replace that axis.
Tensor take(Tensor x, int axis, Tensor index, Where at = Where::current());
/// x with `parts` added where `gather` would read them. Several parts for one element are added in their
/// order.
Tensor scatter_add(Tensor x, int axis, Tensor index, Tensor parts, Where at = Where::current());

// Orders. NaN is greatest, a zero's sign does not count, and equal elements keep their order in x, also in
// descending orders. x: f32, bf16, f16, or i32 where only the order is asked for.
enum class Order : std::uint8_t { ascending, descending };
/// i32: which element stands at each place of the order along the axis. It has no gradient.
Tensor argsort(Tensor x, int axis = -1, Order order = Order::ascending, Where at = Where::current());
struct Sorted {
    Tensor values;   ///< their gradients go where they came from
    Tensor indices;  ///< i32
};
Sorted sort(Tensor x, int axis = -1, Order order = Order::ascending, Where at = Where::current());
/// The `count` greatest elements along the axis, in descending order.
Sorted top_k(Tensor x, std::int64_t count, int axis = -1, Where at = Where::current());

// Images [N, H, W, C] read at other places.
enum class Sampling : std::uint8_t { bilinear, nearest };
struct ResizeOptions {
    Sampling sampling = Sampling::bilinear;
    bool align_corners = false;  ///< the middles of the outermost pixels stay where they are, not their edges
};
/// Resizes to these rows and columns, without smoothing, as PyTorch's `interpolate` of the same names.
Tensor resize(Tensor x, std::array<std::int64_t, 2> extents, const ResizeOptions& options = {},
              Where at = Where::current());
/// The values outside of an image: zero, or its outermost pixel.
enum class Outside : std::uint8_t { zeros, border };
struct GridOptions {
    Sampling sampling = Sampling::bilinear;
    Outside outside = Outside::zeros;
    bool align_corners = false;  ///< -1 and 1 are the middles of the outermost pixels, not their edges
};
/// x at the places that a grid [N, rows, columns, 2] names: across, then down, from -1 to 1. Both have
/// gradients; the grid's is the bilinear function's.
Tensor grid_sample(Tensor x, Tensor grid, const GridOptions& options = {}, Where at = Where::current());

/// x [N, ..., C] normalised over all but N and each of so many groups of channels; gamma and beta [C]. Wu, He
/// 2018.
Tensor group_norm(Tensor x, std::int64_t groups, Tensor gamma, Tensor beta, double epsilon = 1e-5,
                  Where at = Where::current());
/// Group norm with groups of one channel. Ulyanov, Vedaldi, Lempitsky 2016.
Tensor instance_norm(Tensor x, Tensor gamma, Tensor beta, double epsilon = 1e-5, Where at = Where::current());
/// `direction` scaled so that its part at index i of the axis has the length length[i]. Salimans, Kingma
/// 2016.
Tensor weight_norm(Tensor direction, Tensor length, int axis = 0, Where at = Where::current());

enum class Bag : std::uint8_t { sum, mean, max };
struct BagOptions {
    Bag bag = Bag::mean;
    Tensor weights = {};                         ///< [bags, ids], of sums alone
    std::optional<std::int64_t> ignore_id = {};  ///< counts for nothing; a bag without ids is 0
};
/// One row, [bags, C], for each bag of ids, i32 [bags, ids]: the rows of a table [V, C] put together.
Tensor embedding_bag(Tensor table, Tensor ids, const BagOptions& options = {}, Where at = Where::current());

/// Rows x [R, K] that lie group by group, each group times a matrix of its own, w [E, K, N] or, if
/// `transposed`, [E, N, K]: [R, N]. counts: i32 [E], how many rows each group has; rows behind all groups
/// give 0. Counts of more rows than R are an error of the run.
enum class GroupedWeights : std::uint8_t { as_multiplied, transposed };
Tensor grouped_matmul(Tensor x, Tensor w, Tensor counts,
                      GroupedWeights weights = GroupedWeights::as_multiplied, Where at = Where::current());
/// Rows given to experts, each to so many, expert by expert: operands of grouped_matmul, and the way back.
struct Routed {
    Tensor source;   ///< i32 [R experts of a row]: which row stands at each place
    Tensor counts;   ///< i32 [E]
    Tensor place;    ///< i32 [R, experts of a row]: where each went
    Tensor experts;  ///< i32 [R, experts of a row], the best first
};
/// Routes each row to its best experts, by scores [R, E]. No gradient flows through the result.
Routed route(Tensor scores, std::int64_t experts_of_row, Where at = Where::current());

enum class Reduction : std::uint8_t { mean, sum, none };
struct CrossEntropyOptions {
    Tensor class_weights = {};   ///< FP32 [V]: a row has its target's weight. No gradient flows to them
    double label_smoothing = 0;  ///< that part of a target goes to all classes alike. Szegedy et al. 2016
    std::optional<std::int64_t> ignore_index = {};  ///< rows of this target are 0 and count for nothing
    /// `mean`: divided by the sum of the rows' weights, as PyTorch has it; 0 where nothing counts.
    Reduction reduction = Reduction::mean;
};
/// Targets are indices, i32 [...], or shares of classes, floating [..., V], whose mean is over rows, as
/// PyTorch has it. Where the logits are a product with weights, no pass needs them in memory.
Tensor cross_entropy(Tensor logits, Tensor targets, const CrossEntropyOptions& options,
                     Where at = Where::current());

}  // namespace ops

// Types, and functions that no operand leads to; all others are found by their operands.
using ops::AttentionCorner;
using ops::AttentionOptions;
using ops::Bag;
using ops::BagOptions;
using ops::BatchNormed;
using ops::ChannelStatistics;
using ops::constant;
using ops::Conv1dOptions;
using ops::Conv2dOptions;
using ops::Conv3dOptions;
using ops::CrossEntropyOptions;
using ops::Edges;
using ops::GridOptions;
using ops::GroupedWeights;
using ops::iota;
using ops::KeepAxes;
using ops::literal;
using ops::MatmulOptions;
using ops::Operand;
using ops::Order;
using ops::Outside;
using ops::Pool2dOptions;
using ops::Pool3dOptions;
using ops::RandomState;
using ops::Reduction;
using ops::ResizeOptions;
using ops::Routed;
using ops::Sampling;
using ops::Sorted;
using ops::Tensor;
using ops::Where;

}  // namespace mantissa
