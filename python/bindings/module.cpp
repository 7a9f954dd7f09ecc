// The module: errors, policies, devices, and the parts.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <regex>
#include <string>

#include "mantissa/base/system_memory.h"
#include "mantissa/base/version.h"
#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

/// A message without the line of C++ that traced: the traceback has the line of Python.
std::string without_place(const std::string& message) {
    static const std::regex place(" at [^ ():]*[.]cpp:[0-9]+"), traced(" [(]traced[)]");
    return std::regex_replace(std::regex_replace(message, place, ""), traced, "");
}

void translate(const std::exception_ptr& thrown, void* error) {
    try {
        std::rethrow_exception(thrown);
    } catch (const UserError& refused) {
        PyErr_SetString(static_cast<PyObject*>(error), without_place(refused.what()).c_str());
    }
}

}  // namespace

NB_MODULE(_native, module) {
    module.doc() = "mantissa's library, as Python calls it; the package mantissa is what one imports";
    module.attr("__version__") = version();
    const nb::object error = nb::exception<UserError>(module, "Error", PyExc_ValueError);
    nb::register_exception_translator(translate, error.ptr());
    nb::exception<InternalError>(module, "InternalError", PyExc_RuntimeError);
    module.def("policies", &policy_names, "Names of the policies in which a model can be trained.");
    module.def("give_back_memory", &give_back_memory, "Gives back to the system what was freed");
    bind_tensors(module);
    bind_operations(module);
    bind_states(module);
    bind_layers(module);
    bind_models(module);
    bind_trainers(module);
    bind_generators(module);
    bind_reports(module);
}

}  // namespace mantissa::python
