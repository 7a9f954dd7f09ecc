// Layers and losses (mantissa/nn): they create their parameters under a name. The mode is that of the trace.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <string>

#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

/// A name in front of what is recorded and of parameters, as a context manager.
class NameScope {
  public:
    NameScope(Tensor in_graph_of, std::string name) : tensor_(in_graph_of), name_(std::move(name)) {}
    void enter() { scope_ = std::make_unique<nn::Scope>(tensor_, name_); }
    void leave() { scope_.reset(); }

  private:
    Tensor tensor_;
    std::string name_;
    std::unique_ptr<nn::Scope> scope_;
};

void bind_losses(nb::module_& module) {
    module.def(
        "metric", [](const std::string& name, Tensor value) { nn::metric(name, value); }, nb::arg("name"),
        nb::arg("value"),
        "Names a result beside the loss; a number of each row, or a bool, counts by its mean");
    module.def(
        "mse_loss", [](Tensor x, Tensor target) { return nn::mse_loss(x, target); }, nb::arg("prediction"),
        nb::arg("target"), "The mean of (prediction - target)^2");
    module.def(
        "l1_loss", [](Tensor x, Tensor target) { return nn::l1_loss(x, target); }, nb::arg("prediction"),
        nb::arg("target"), "The mean of |prediction - target|");
    module.def(
        "huber_loss", [](Tensor x, Tensor target, double delta) { return nn::huber_loss(x, target, delta); },
        nb::arg("prediction"), nb::arg("target"), nb::arg("delta") = 1.0);
    module.def(
        "binary_cross_entropy",
        [](Tensor logits, Tensor targets) { return nn::binary_cross_entropy(logits, targets); },
        nb::arg("logits"), nb::arg("targets"));
}

}  // namespace

void bind_layers(nb::module_& module) {
    nb::class_<NameScope>(module, "Scope")
        .def(nb::init<Tensor, std::string>(), nb::arg("x"), nb::arg("name"))
        .def("__enter__", [](NameScope& self) { self.enter(); })
        .def("__exit__", [](NameScope& self, const nb::args&) { self.leave(); });
    module.def(
        "parameter",
        [](Tensor x, const std::string& name, std::vector<std::int64_t> shape, double deviation,
           double mean) {
            return nn::parameter(
                x.graph(), name, Shape(std::move(shape)),
                {.kind = Initializer::Kind::normal, .mean = mean, .standard_deviation = deviation});
        },
        nb::arg("x"), nb::arg("name"), nb::arg("shape"), nb::arg("standard_deviation") = 0.02,
        nb::arg("mean") = 0.0, "A parameter in the graph of x, which starts with normal numbers");
    module.def(
        "linear",
        [](Tensor x, const std::string& name, std::int64_t outputs, bool bias, double deviation) {
            return nn::linear(x, name, {.outputs = outputs, .standard_deviation = deviation, .bias = bias});
        },
        nb::arg("x"), nb::arg("name"), nb::arg("outputs"), nb::arg("bias") = true,
        nb::arg("standard_deviation") = 0.02, "y = x W^T + b over the last axis");
    module.def(
        "conv2d",
        [](Tensor x, const std::string& name, std::int64_t outputs, std::int64_t window, std::int64_t stride,
           std::int64_t padding, bool bias) {
            return nn::conv2d(x, name,
                              {.outputs = outputs,
                               .window = {window, window},
                               .stride = {stride, stride},
                               .padding = padding,
                               .bias = bias});
        },
        nb::arg("x"), nb::arg("name"), nb::arg("outputs"), nb::arg("window") = 3, nb::arg("stride") = 1,
        nb::arg("padding") = 0, nb::arg("bias") = true, "Images [B, H, W, C] -> [B, H', W', outputs]");
    module.def(
        "layer_norm",
        [](Tensor x, const std::string& name, double epsilon) {
            return nn::layer_norm(x, name, {.epsilon = epsilon});
        },
        nb::arg("x"), nb::arg("name"), nb::arg("epsilon") = 1e-5);
    module.def(
        "rms_norm",
        [](Tensor x, const std::string& name, double epsilon) { return nn::rms_norm(x, name, epsilon); },
        nb::arg("x"), nb::arg("name"), nb::arg("epsilon") = 1e-5);
    module.def(
        "batch_norm",
        [](Tensor x, const std::string& name, double momentum) {
            return nn::batch_norm(x, name, mode_of_trace(), {.momentum = momentum});
        },
        nb::arg("x"), nb::arg("name"), nb::arg("momentum") = 0.1, "Over all axes but the last");
    module.def(
        "dropout", [](Tensor x, double rate) { return nn::dropout(x, rate, mode_of_trace()); }, nb::arg("x"),
        nb::arg("rate"), "While training: zero with this probability, else x / (1 - rate)");
    bind_losses(module);
}

}  // namespace mantissa::python
