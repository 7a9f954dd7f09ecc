// Reports of one's own model (mantissa/report/reports.h).
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <vector>

#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

using OfModel = report::Report (*)(Device&, const nn::Model&, const report::Options&);
using OfBatches = report::Report (*)(Device&, const nn::Model&, const BatchSource&, const report::Options&);

/// The arrays are all examples there are; steps take them in order, and over again.
template <OfBatches made>
report::Report on_batches(const PythonModel& model, const nb::tuple& arrays, const report::Options& options,
                          const std::string& device, int threads) {
    const Arrays given(model.model, arrays, model.model.inputs.size());
    const Examples examples(model.model, given.batch(),
                            {.batch = options.trainer.batch, .accumulate = options.trainer.accumulate});
    const nb::gil_scoped_release release;
    return made(device_named(device, threads), model.model, examples, options);
}

template <OfModel made>
report::Report of_model(const PythonModel& model, const report::Options& options, const std::string& device,
                        int threads) {
    const nb::gil_scoped_release release;
    return made(device_named(device, threads), model.model, options);
}

}  // namespace

void bind_reports(nb::module_& module) {
    nb::class_<report::Report>(module, "Report", "A report: print it, show it in a notebook, or write it.")
        .def_ro("text", &report::Report::text)
        .def_ro("page", &report::Report::page)
        .def_ro("json", &report::Report::json)
        .def("write_page", &report::Report::write_page, nb::arg("file"))
        .def("write_json", &report::Report::write_json, nb::arg("file"))
        .def("__str__", [](const report::Report& self) { return self.text; })
        .def("_repr_html_", [](const report::Report& self) { return self.page; });
    nb::class_<report::Options>(module, "ReportOptions")
        .def(nb::init<>())
        .def_rw("trainer", &report::Options::trainer)
        .def_rw("steps", &report::Options::steps)
        .def_rw("learning_rate", &report::Options::learning_rate)
        .def_rw("repeats", &report::Options::repeats)
        .def_rw("names", &report::Options::names);
    module.def("explain", &of_model<report::explain>, nb::arg("model"), nb::arg("options"), nb::arg("device"),
               nb::arg("threads"));
    module.def("lint", &of_model<report::lint>, nb::arg("model"), nb::arg("options"), nb::arg("device"),
               nb::arg("threads"));
    module.def("roofline", &on_batches<report::roofline>, nb::arg("model"), nb::arg("arrays"),
               nb::arg("options"), nb::arg("device"), nb::arg("threads"));
    module.def("ladder", &on_batches<report::ladder>, nb::arg("model"), nb::arg("arrays"), nb::arg("options"),
               nb::arg("device"), nb::arg("threads"));
    module.def("numerics", &on_batches<report::numerics>, nb::arg("model"), nb::arg("arrays"),
               nb::arg("options"), nb::arg("device"), nb::arg("threads"));
    module.def("converge", &on_batches<report::converge>, nb::arg("model"), nb::arg("arrays"),
               nb::arg("options"), nb::arg("device"), nb::arg("threads"));
}

}  // namespace mantissa::python
