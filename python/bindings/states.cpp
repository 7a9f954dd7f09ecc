// Weights under names of one's own, and scopes and formats that no policy changes.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "mantissa/engine.h"
#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

using Numbers = nb::ndarray<const float, nb::ro, nb::c_contig, nb::device::cpu>;

/// A weight under this name, whatever the scope. It starts with the array that a function of Python gives,
/// which is borrowed: the model keeps it.
Tensor weight(Tensor x, State::Kind kind, const std::string& name, std::vector<std::int64_t> shape,
              const nb::callable& values) {
    const auto write = [name, values = values.ptr()](std::span<std::byte> to) {
        const nb::gil_scoped_acquire gil;
        const auto array = nb::cast<Numbers>(nb::borrow<nb::callable>(values)(name));
        if (array.nbytes() != to.size())
            throw UserError("weight '" + name + "' has " + std::to_string(to.size()) +
                            " bytes, and its array " + std::to_string(array.nbytes()));
        std::memcpy(to.data(), array.data(), to.size());
    };
    return {x.graph(), x.graph().add_state({.kind = kind,
                                            .name = name,
                                            .type = {DType::f32, Shape(std::move(shape))},
                                            .initializer = {},
                                            .values = write})};
}

Graph& graph_of_state(Tensor state, int& index) {
    Graph& graph = state.graph();
    index = graph.state_of(state.value().node);
    if (index < 0) throw UserError("an update is of a weight, got " + state.type().text());
    return graph;
}

/// At the end of a good step the running statistic is blended with that of the batch.
void follow(Tensor running, Tensor statistic, double momentum) {
    int index = -1;
    Graph& graph = graph_of_state(running, index);
    if (graph.state(index).frozen) return;
    const OriginScope update(graph, Origin{.scope = graph.origin.scope, .stage = Stage::update});
    const Tensor blended = call1("running_average", {running, statistic}, {{"momentum", momentum}});
    graph.add_update(index, blended.value());
}

/// While alive, nodes stand in this scope and at this line, and in this format whatever the policy.
class Place {
  public:
    Place(Tensor in_graph_of, std::string scope, Line line, bool is_exact)
        : graph_(&in_graph_of.graph()),
          scope_(std::move(scope)),
          line_(std::move(line)),
          is_exact_(is_exact) {}
    void enter() {
        Origin origin = graph_->origin;
        origin.scope = scope_;
        if (line_) origin.line = line_;
        origin_ = std::make_unique<OriginScope>(*graph_, origin);
        if (is_exact_) exact_ = std::make_unique<PrecisionScope>(*graph_, DType::f32);
    }
    void leave() {
        exact_.reset();
        origin_.reset();
    }

  private:
    Graph* graph_;
    std::string scope_;
    Line line_;
    bool is_exact_;
    std::unique_ptr<OriginScope> origin_;
    std::unique_ptr<PrecisionScope> exact_;
};

}  // namespace

void bind_states(nb::module_& module) {
    nb::class_<Place>(module, "Place")
        .def(
            "__init__",
            [](Place* self, Tensor x, std::string scope, const std::string& file, std::uint32_t line,
               bool exact) { new (self) Place(x, std::move(scope), Line(file, line), exact); },
            nb::arg("x"), nb::arg("scope"), nb::arg("file") = "", nb::arg("line") = 0,
            nb::arg("exact") = false, "A module, a line of its program (0: unknown), and whether it is FP32")
        .def("__enter__", [](Place& self) { self.enter(); })
        .def("__exit__", [](Place& self, const nb::args&) { self.leave(); });
    module.def(
        "weight",
        [](Tensor x, const std::string& name, std::vector<std::int64_t> shape, const nb::callable& values) {
            return weight(x, State::Kind::parameter, name, std::move(shape), values);
        },
        nb::arg("x"), nb::arg("name"), nb::arg("shape"), nb::arg("values"),
        "A parameter in the graph of x, by its whole name; values(name) is the array that it starts with");
    module.def(
        "running",
        [](Tensor x, const std::string& name, std::vector<std::int64_t> shape, const nb::callable& values) {
            return weight(x, State::Kind::running, name, std::move(shape), values);
        },
        nb::arg("x"), nb::arg("name"), nb::arg("shape"), nb::arg("values"), "A statistic that steps update");
    module.def("follow", &follow, nb::arg("running"), nb::arg("statistic"), nb::arg("momentum"),
               "After a good step: (1 - momentum) running + momentum statistic");
}

}  // namespace mantissa::python
