// Symbolic tensors: what models are written in (mantissa/graph/tensor.h).
#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

using Axes = std::vector<std::int64_t>;

Axes all_axes(const Tensor& x) {
    Axes axes;
    for (int axis = 0; axis < x.rank(); ++axis) axes.push_back(axis);
    return axes;
}

/// A reduction over the axes that are named, or over all.
template <class Reduce>
auto reduction(Reduce reduce) {
    return [reduce](Tensor x, std::optional<Axes> axes, bool keep) {
        return reduce(x, axes ? std::move(*axes) : all_axes(x), keep ? KeepAxes::yes : KeepAxes::no);
    };
}

Tensor like(Tensor x, double number) { return constant(x.graph(), number, x.dtype()); }

bool refuse_a_branch(Tensor x) {
    throw UserError(x.type().text() + " has no numbers yet: a model is recorded once, for all batches; " +
                    "choose by nn.select(x > 0, a, b) instead of a branch");
}

template <class Function>
void def_unary(nb::module_& module, const char* name, Function function, const char* doc) {
    module.def(
        name, [function](Tensor x) { return function(x); }, nb::arg("x"), doc);
}

void bind_class(nb::module_& module) {
    nb::class_<Tensor>(module, "Tensor",
                       "A value of a model's graph: operations on it are recorded, not run.")
        .def_prop_ro("shape", [](Tensor x) { return nb::tuple(nb::cast(x.shape().extents())); })
        .def_prop_ro("dtype", [](Tensor x) { return std::string(name_of(x.dtype())); })
        .def("__repr__", [](Tensor x) { return "Tensor(" + x.type().text() + ")"; })
        .def(
            "__add__", [](Tensor a, Tensor b) { return a + b; }, nb::is_operator())
        .def(
            "__add__", [](Tensor a, double b) { return a + b; }, nb::is_operator())
        .def(
            "__radd__", [](Tensor a, double b) { return b + a; }, nb::is_operator())
        .def(
            "__sub__", [](Tensor a, Tensor b) { return a - b; }, nb::is_operator())
        .def(
            "__sub__", [](Tensor a, double b) { return a - b; }, nb::is_operator())
        .def(
            "__rsub__", [](Tensor a, double b) { return b - a; }, nb::is_operator())
        .def(
            "__mul__", [](Tensor a, Tensor b) { return a * b; }, nb::is_operator())
        .def(
            "__mul__", [](Tensor a, double b) { return a * b; }, nb::is_operator())
        .def(
            "__rmul__", [](Tensor a, double b) { return b * a; }, nb::is_operator())
        .def(
            "__truediv__", [](Tensor a, Tensor b) { return a / b; }, nb::is_operator())
        .def(
            "__truediv__", [](Tensor a, double b) { return a / b; }, nb::is_operator())
        .def(
            "__rtruediv__", [](Tensor a, double b) { return b / a; }, nb::is_operator())
        .def(
            "__lt__", [](Tensor a, Tensor b) { return less(a, b); }, nb::is_operator())
        .def(
            "__lt__", [](Tensor a, double b) { return less(a, like(a, b)); }, nb::is_operator())
        .def(
            "__le__", [](Tensor a, Tensor b) { return less_equal(a, b); }, nb::is_operator())
        .def(
            "__le__", [](Tensor a, double b) { return less_equal(a, like(a, b)); }, nb::is_operator())
        .def(
            "__gt__", [](Tensor a, Tensor b) { return less(b, a); }, nb::is_operator())
        .def(
            "__gt__", [](Tensor a, double b) { return less(like(a, b), a); }, nb::is_operator())
        .def(
            "__ge__", [](Tensor a, Tensor b) { return less_equal(b, a); }, nb::is_operator())
        .def(
            "__ge__", [](Tensor a, double b) { return less_equal(like(a, b), a); }, nb::is_operator())
        .def("__bool__", &refuse_a_branch)
        .def("__neg__", [](Tensor a) { return -a; })
        .def(
            "__pow__", [](Tensor a, double b) { return pow(a, b); }, nb::is_operator())
        .def(
            "__matmul__", [](Tensor a, Tensor b) { return matmul(a, b); }, nb::is_operator())
        .def("mean",
             reduction([](Tensor x, Axes axes, KeepAxes keep) { return mean(x, std::move(axes), keep); }),
             nb::arg("axes") = nb::none(), nb::arg("keep") = false)
        .def("sum",
             reduction([](Tensor x, Axes axes, KeepAxes keep) { return sum(x, std::move(axes), keep); }),
             nb::arg("axes") = nb::none(), nb::arg("keep") = false)
        .def("max",
             reduction([](Tensor x, Axes axes, KeepAxes keep) { return max(x, std::move(axes), keep); }),
             nb::arg("axes") = nb::none(), nb::arg("keep") = false)
        .def(
            "reshape", [](Tensor x, Axes shape) { return reshape(x, Shape(std::move(shape))); },
            nb::arg("shape"), "One extent may be -1: it is what is left.")
        .def(
            "transpose", [](Tensor x, Axes order) { return transpose(x, std::move(order)); },
            nb::arg("order"))
        .def(
            "cast", [](Tensor x, const std::string& dtype) { return cast(x, dtype_named(dtype)); },
            nb::arg("dtype"));
}

void bind_functions(nb::module_& module) {
    def_unary(
        module, "exp", [](Tensor x) { return exp(x); }, "e to the power of x");
    def_unary(
        module, "log", [](Tensor x) { return log(x); }, "The natural logarithm");
    def_unary(
        module, "tanh", [](Tensor x) { return tanh(x); }, "The hyperbolic tangent");
    def_unary(
        module, "erf", [](Tensor x) { return erf(x); }, "The error function");
    def_unary(
        module, "sqrt", [](Tensor x) { return sqrt(x); }, "The square root");
    def_unary(
        module, "abs", [](Tensor x) { return abs(x); }, "The absolute value; its gradient at 0 is 0");
    def_unary(
        module, "sin", [](Tensor x) { return sin(x); }, "Of radians");
    def_unary(
        module, "cos", [](Tensor x) { return cos(x); }, "Of radians");
    def_unary(
        module, "relu", [](Tensor x) { return relu(x); }, "max(x, 0); its gradient at 0 is 0");
    def_unary(
        module, "sigmoid", [](Tensor x) { return sigmoid(x); }, "1 / (1 + exp(-x))");
    def_unary(
        module, "gelu", [](Tensor x) { return gelu(x); }, "The tanh form of GPT-2");
    def_unary(
        module, "swish", [](Tensor x) { return swish(x); }, "x sigmoid(x)");
    def_unary(
        module, "softplus", [](Tensor x) { return softplus(x); }, "log(1 + exp(x))");
    def_unary(
        module, "softmax", [](Tensor x) { return softmax(x); }, "Over the last axis");
    def_unary(
        module, "stop_gradient", [](Tensor x) { return stop_gradient(x); },
        "x itself; no gradient flows back");
    module.def(
        "argmax", [](Tensor x, int axis) { return argmax(x, axis); }, nb::arg("x"), nb::arg("axis"),
        "Where the greatest element stands, i32: the first of equals");
    module.def(
        "maximum", [](Tensor a, Tensor b) { return maximum(a, b); }, nb::arg("a"), nb::arg("b"),
        "At a tie the gradient is shared in halves.");
    module.def(
        "maximum", [](Tensor a, double b) { return maximum(a, b); }, nb::arg("a"), nb::arg("b"));
    module.def(
        "minimum", [](Tensor a, Tensor b) { return minimum(a, b); }, nb::arg("a"), nb::arg("b"));
    module.def(
        "minimum", [](Tensor a, double b) { return minimum(a, b); }, nb::arg("a"), nb::arg("b"));
    module.def(
        "select", [](Tensor condition, Tensor a, Tensor b) { return select(condition, a, b); },
        nb::arg("condition"), nb::arg("a"), nb::arg("b"), "a where the condition holds, b elsewhere");
    module.def(
        "less", [](Tensor a, Tensor b) { return less(a, b); }, nb::arg("a"), nb::arg("b"));
    module.def(
        "less_equal", [](Tensor a, Tensor b) { return less_equal(a, b); }, nb::arg("a"), nb::arg("b"));
    module.def(
        "equal", [](Tensor a, Tensor b) { return equal(a, b); }, nb::arg("a"), nb::arg("b"));
    module.def(
        "concat", [](const std::vector<Tensor>& parts, int axis) { return concat(parts, axis); },
        nb::arg("parts"), nb::arg("axis"));
    module.def(
        "split", [](Tensor x, int axis, std::int64_t parts) { return split(x, axis, parts); }, nb::arg("x"),
        nb::arg("axis"), nb::arg("parts"), "Equal parts along the axis");
    module.def(
        "slice",
        [](Tensor x, int axis, std::int64_t start, std::int64_t stop) { return slice(x, axis, start, stop); },
        nb::arg("x"), nb::arg("axis"), nb::arg("start"), nb::arg("stop"));
    module.def(
        "pad",
        [](Tensor x, int axis, std::int64_t before, std::int64_t after) {
            return pad(x, axis, before, after);
        },
        nb::arg("x"), nb::arg("axis"), nb::arg("before"), nb::arg("after"), "Adds zeros along the axis");
    module.def(
        "matmul",
        [](Tensor a, Tensor b, bool transpose_a, bool transpose_b) {
            return matmul(a, b, {.transpose_a = transpose_a, .transpose_b = transpose_b});
        },
        nb::arg("a"), nb::arg("b"), nb::arg("transpose_a") = false, nb::arg("transpose_b") = false,
        "[..., M, K] x [..., K, N] -> [..., M, N]; leading axes equal");
    module.def(
        "attention",
        [](Tensor q, Tensor k, Tensor v, bool causal, std::optional<double> scale) {
            return attention(q, k, v, {.causal = causal, .scale = scale});
        },
        nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("causal") = false, nb::arg("scale") = nb::none(),
        "softmax(scale q k^T) v: q [B, H, T, D], k and v [B, G, S, D] -> [B, H, T, D]");
    module.def(
        "embedding", [](Tensor table, Tensor ids) { return embedding(table, ids); }, nb::arg("table"),
        nb::arg("ids"), "Rows of table [V, C] named by ids: [..., C]");
    module.def(
        "cross_entropy", [](Tensor logits, Tensor targets) { return cross_entropy(logits, targets); },
        nb::arg("logits"), nb::arg("targets"), "Mean over all rows of -log softmax(logits)[target]");
    module.def(
        "max_pool2d",
        [](Tensor x, std::int64_t window, std::int64_t stride) {
            return max_pool2d(x, {.window = {window, window}, .stride = {stride, stride}});
        },
        nb::arg("x"), nb::arg("window"), nb::arg("stride"), "Of images [N, H, W, C]");
}

}  // namespace

DType dtype_named(const std::string& name) {
    for (const DType each : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i64, DType::i32,
                             DType::u8, DType::boolean, DType::s8})
        if (name == name_of(each)) return each;
    throw UserError("there is no type '" + name + "'; there are f64, f32, f16, bf16, i64, i32, u8, bool, s8");
}

void bind_tensors(nb::module_& module) {
    bind_class(module);
    bind_functions(module);
}

}  // namespace mantissa::python
