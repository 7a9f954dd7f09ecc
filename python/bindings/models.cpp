// Models whose loss and output are functions of Python (mantissa/nn/model.h).
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "mantissa/engine.h"
#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

thread_local const nn::Mode* running = nullptr;

/// While alive, layers find this mode.
class ModeScope {
  public:
    explicit ModeScope(const nn::Mode& mode) : before_(std::exchange(running, &mode)) {}
    ~ModeScope() { running = before_; }
    ModeScope(const ModeScope&) = delete;
    ModeScope& operator=(const ModeScope&) = delete;

  private:
    const nn::Mode* before_;
};

/// Where a function of Python begins; unknown for what is none.
Line line_of(const nb::handle function) {
    const nb::object code = nb::getattr(function, "__code__", nb::none());
    if (code.is_none()) return {};
    return {nb::cast<std::string>(code.attr("co_filename")),
            nb::cast<std::uint32_t>(code.attr("co_firstlineno"))};
}

/// Calls a function of Python with the inputs. The function is borrowed: the model keeps it. What it records
/// is traced at its first line, unless an importer knows better.
nn::Trace trace_of(PyObject* function) {
    return [function](Graph& graph, std::span<const Tensor> inputs, const nn::Mode& mode) {
        const nb::gil_scoped_acquire gil;
        const ModeScope scope(mode);
        Origin origin = graph.origin;
        origin.line = line_of(function);
        const OriginScope at(graph, std::move(origin));
        nb::list arguments;
        for (const Tensor& input : inputs) arguments.append(input);
        const nb::object result = nb::borrow(function)(*nb::tuple(arguments));
        Tensor recorded;
        if (!nb::try_cast(result, recorded))
            throw UserError(std::string("a model's function must return a Tensor, got ") +
                            nb::type_name(result.type()).c_str());
        return recorded;
    };
}

DType dtype_of_input(const std::string& name, const std::string& dtype) {
    if (dtype == "f32") return DType::f32;
    if (dtype == "i32") return DType::i32;
    if (dtype == "u8") return DType::u8;
    throw UserError("input '" + name + "': inputs are f32, i32 or u8, got '" + dtype + "'");
}

/// Name, type, shape, and whether it is given whole, without a batch axis.
using Inputs = std::vector<std::tuple<std::string, std::string, std::vector<std::int64_t>, bool>>;

void make_model(PythonModel* self, const std::string& name, const Inputs& inputs, nb::object loss,
                nb::object output, std::size_t output_inputs, bool shapes_vary) {
    // All that may throw comes before the object is made: nobody destroys one whose constructor threw.
    nn::Model model{.name = name, .shapes_vary = shapes_vary};
    for (const auto& [input, dtype, shape, is_whole] : inputs)
        model.inputs.push_back({input, dtype_of_input(input, dtype), Shape(shape),
                                is_whole ? nn::BatchAxis::none : nn::BatchAxis::leading});
    model.loss = trace_of(loss.ptr());
    model.output.inputs = output_inputs;
    if (!output.is_none()) model.output.trace = trace_of(output.ptr());
    new (self) PythonModel{.model = std::move(model), .loss = std::move(loss), .output = std::move(output)};
}

int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    const PythonModel* const model = nb::inst_ptr<PythonModel>(self);
    Py_VISIT(model->loss.ptr());
    Py_VISIT(model->output.ptr());
    return 0;
}

int clear(PyObject* self) {
    PythonModel* const model = nb::inst_ptr<PythonModel>(self);
    model->loss.reset();
    model->output.reset();
    return 0;
}

const PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                             {Py_tp_clear, reinterpret_cast<void*>(clear)},
                             {0, nullptr}};

}  // namespace

const nn::Mode& mode_of_trace() {
    if (!running)
        throw UserError("dropout and batch norms are recorded by a model's loss or output, and nowhere else");
    return *running;
}

void bind_models(nb::module_& module) {
    nb::class_<PythonModel>(module, "Model", nb::type_slots(slots))
        .def("__init__", &make_model, nb::arg("name"), nb::arg("inputs"), nb::arg("loss"),
             nb::arg("output") = nb::none(), nb::arg("output_inputs") = 1, nb::arg("shapes_vary") = false)
        .def_prop_ro("name", [](const PythonModel& self) { return self.model.name; });
}

}  // namespace mantissa::python
