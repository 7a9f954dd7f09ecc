// Training and prediction (mantissa/train).
#include <nanobind/ndarray.h>
#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "mantissa/engine.h"
#include "python/bindings/bindings.h"

namespace mantissa::python {

namespace {

/// A trainer, the model whose functions it calls, and where it trains.
struct PythonTrainer {
    nb::object model;
    Device& device;
    Trainer trainer;
    std::unique_ptr<Predictor> predictor = {};
    std::unique_ptr<Arrays> brought = {};          ///< of the next step; null: none
    std::optional<AveragedWeights> averaged = {};  ///< none: the weights are those that are trained
    std::string choice = {};                       ///< settings that were chosen so that a step fits

    const nn::Model& traced() const { return trainer.model(); }
};

void make_trainer(PythonTrainer* self, const nb::object& model, const TrainerOptions& options,
                  const std::string& device, int threads) {
    const auto& traced = nb::cast<const PythonModel&>(model).model;
    Device& on = device_named(device, threads);
    new (self) PythonTrainer{.model = model, .device = on, .trainer = Trainer(on, traced, options)};
    self->choice = choice_text(options, self->trainer.plan());
}

StepResult step(PythonTrainer& self, const nb::tuple& arrays, double learning_rate) {
    const Arrays given(self.traced(), arrays, self.traced().inputs.size());
    const nb::gil_scoped_release release;
    self.trainer.forget_brought();
    return self.trainer.step(given.batch(), learning_rate);
}

/// A step on the arrays, or on those that `bring` was given last.
void start(PythonTrainer& self, const std::optional<nb::tuple>& arrays, double learning_rate) {
    if (arrays) {
        self.trainer.forget_brought();
        self.brought = std::make_unique<Arrays>(self.traced(), *arrays, self.traced().inputs.size());
    }
    if (!self.brought) throw UserError("no arrays were brought for this step");
    {
        const nb::gil_scoped_release release;
        self.trainer.start(self.brought->batch(), learning_rate);
    }
    self.brought.reset();
}

void bring(PythonTrainer& self, const nb::tuple& arrays) {
    self.brought = std::make_unique<Arrays>(self.traced(), arrays, self.traced().inputs.size());
    const nb::gil_scoped_release release;
    self.trainer.bring(self.brought->batch());
}

Evaluation evaluate(PythonTrainer& self, const nb::tuple& arrays) {
    const Arrays given(self.traced(), arrays, self.traced().inputs.size());
    const nb::gil_scoped_release release;
    return self.trainer.evaluate(given.batch());
}

/// Rows [n, values] in memory that the array owns.
nb::object rows_of(std::vector<float> numbers, std::int64_t each) {
    auto* const kept = new std::vector<float>(std::move(numbers));
    const nb::capsule owner(kept,
                            [](void* numbers) noexcept { delete static_cast<std::vector<float>*>(numbers); });
    const auto columns = static_cast<std::size_t>(each);
    return nb::cast(nb::ndarray<nb::numpy, float>(kept->data(), {kept->size() / columns, columns}, owner));
}

nb::object predict(PythonTrainer& self, const nb::tuple& arrays) {
    const Arrays given(self.traced(), arrays, self.traced().output.inputs);
    std::vector<float> numbers;
    {
        const nb::gil_scoped_release release;
        if (!self.predictor) self.predictor = std::make_unique<Predictor>(self.trainer);
        numbers = self.predictor->predict(given.batch());
    }
    return rows_of(std::move(numbers), self.predictor->values_per_example());
}

/// The gradients of a step that stopped there, as arrays by name, and its loss.
nb::tuple gradients(PythonTrainer& self, const nb::tuple& arrays) {
    const Arrays given(self.traced(), arrays, self.traced().inputs.size());
    const Gradients* stopped = nullptr;
    {
        const nb::gil_scoped_release release;
        self.trainer.forget_brought();
        stopped = &self.trainer.gradients(given.batch());
    }
    nb::dict by_name;
    for (const std::string& name : stopped->names()) {
        auto* const kept = new std::vector<float>(stopped->read(name));
        const nb::capsule owner(kept, [](void* of) noexcept { delete static_cast<std::vector<float>*>(of); });
        std::vector<std::size_t> shape;
        const Gradients::Place place = stopped->place(name);
        for (const std::int64_t extent : place.type.shape.extents())
            shape.push_back(static_cast<std::size_t>(extent));
        by_name[name.c_str()] =
            nb::ndarray<nb::numpy, float>(kept->data(), shape.size(), shape.data(), owner);
    }
    return nb::make_tuple(stopped->loss(), by_name);
}

/// A weight, or a number that the optimizer keeps, as it lies: row-major bytes.
nb::bytes read_state(const PythonTrainer& self, const std::string& name) {
    const std::vector<std::byte> bytes = self.trainer.state().read(name);
    return nb::bytes(bytes.data(), bytes.size());
}

void write_state(PythonTrainer& self, const std::string& name, const nb::bytes& value) {
    StateBlock& states = self.trainer.state();
    if (states.is_lent())
        throw UserError("state '" + name + "' is an average for now, which nothing may change");
    const Type& type = states.type(name);
    if (static_cast<std::int64_t>(value.size()) != type.bytes())
        throw UserError("state '" + name + "' is " + type.text() + ", got " + std::to_string(value.size()) +
                        " bytes");
    states.write(name, std::span(static_cast<const std::byte*>(value.data()), value.size()));
}

/// A weight where it lies, as an array that trainer and array share. It holds the memory, not the trainer.
nb::object view_of_state(const PythonTrainer& self, const std::string& name) {
    const StateBlock& states = self.trainer.state();
    const Type& type = states.type(name);
    if (type.dtype != DType::f32) throw UserError("state '" + name + "' is " + type.text() + ", no f32");
    if (const std::string& device = self.device.target().device; device != "cpu")
        throw UserError("state '" + name + "' lies on " + device + ": read_state copies it");
    using Held = std::shared_ptr<const DeviceMemory>;
    const nb::capsule owner(new Held(states.memory()),
                            [](void* held) noexcept { delete static_cast<Held*>(held); });
    std::vector<std::size_t> shape;
    for (const std::int64_t extent : type.shape.extents()) shape.push_back(static_cast<std::size_t>(extent));
    auto* const numbers = reinterpret_cast<float*>(states.address(name));
    return nb::cast(nb::ndarray<nb::numpy, float>(numbers, shape.size(), shape.data(), owner));
}

/// Type and shape of each state, by name.
nb::dict states_of(const PythonTrainer& self) {
    nb::dict all;
    for (const State& state : self.trainer.state().states())
        all[state.name.c_str()] = nb::make_tuple(std::string(name_of(state.type.dtype)),
                                                 nb::tuple(nb::cast(state.type.shape.extents())));
    return all;
}

int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PythonTrainer>(self)->model.ptr());
    return 0;
}

/// The model stays as long as the trainer, which may call it: breaking the cycle is the model's part.
const PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {0, nullptr}};

/// All numbers that it holds, those that were not given among them.
std::string text_of(const Optimizer& optimizer) {
    std::string text = optimizer.name + "(";
    const auto add = [&](const std::string& name, const auto& value) {
        text += name + "=" + nb::repr(nb::cast(value)).c_str();
    };
    for (const Setting& setting : optimizer.configuration) {
        std::visit([&](const auto& value) { add(setting.name, value); }, setting.value);
        text += ", ";
    }
    add("clip", optimizer.clip);
    return text + ")";
}

void bind_optimizers(nb::module_& module) {
    nb::class_<Optimizer>(module, "Optimizer")
        .def_ro("name", &Optimizer::name)
        .def("__repr__", [](const Optimizer& self) { return text_of(self); });
    module.def(
        "adamw",
        [](double weight_decay, double beta1, double beta2, double epsilon, double clip,
           bool decay_matrices_only) {
            return clipped(adamw({.beta1 = beta1,
                                  .beta2 = beta2,
                                  .epsilon = epsilon,
                                  .weight_decay = weight_decay,
                                  .decay_matrices_only = decay_matrices_only}),
                           clip);
        },
        nb::arg("weight_decay") = 0.1, nb::arg("beta1") = 0.9, nb::arg("beta2") = 0.95,
        nb::arg("epsilon") = 1e-8, nb::arg("clip") = 0.0, nb::arg("decay_matrices_only") = true,
        "torch.optim.AdamW decays all parameters: decay_matrices_only=False");
    module.def(
        "sgd",
        [](double momentum, bool nesterov, double weight_decay, double clip) {
            return clipped(sgd({.momentum = momentum, .nesterov = nesterov, .weight_decay = weight_decay}),
                           clip);
        },
        nb::arg("momentum") = 0.0, nb::arg("nesterov") = false, nb::arg("weight_decay") = 0.0,
        nb::arg("clip") = 0.0);
    module.def(
        "muon",
        [](double momentum, double weight_decay, double clip, bool nesterov, double epsilon,
           std::int64_t iterations, bool original_rates, std::optional<std::vector<std::string>> matrices,
           double beta1, double beta2, double other_epsilon, double other_weight_decay,
           bool decay_matrices_only) {
            return clipped(
                muon({.momentum = momentum,
                      .nesterov = nesterov,
                      .weight_decay = weight_decay,
                      .epsilon = epsilon,
                      .iterations = iterations,
                      .rates = original_rates ? MuonOptions::Rates::original : MuonOptions::Rates::like_adamw,
                      .matrices = std::move(matrices),
                      .others = {.beta1 = beta1,
                                 .beta2 = beta2,
                                 .epsilon = other_epsilon,
                                 .weight_decay = other_weight_decay,
                                 .decay_matrices_only = decay_matrices_only}}),
                clip);
        },
        nb::arg("momentum") = 0.95, nb::arg("weight_decay") = 0.1, nb::arg("clip") = 0.0,
        nb::arg("nesterov") = true, nb::arg("epsilon") = 1e-7, nb::arg("iterations") = 5,
        nb::arg("original_rates") = false, nb::arg("matrices") = nb::none(), nb::arg("beta1") = 0.9,
        nb::arg("beta2") = 0.95, nb::arg("other_epsilon") = 1e-8, nb::arg("other_weight_decay") = 0.1,
        nb::arg("decay_matrices_only") = true,
        "matrices: patterns of names, None for those of hidden layers. AdamW, which has the arguments from "
        "beta1 on, updates the others. torch.optim.Muon's default rates: original_rates=True");
    module.def(
        "grouped",
        [](Optimizer optimizer,
           const std::vector<std::tuple<std::string, double, std::optional<double>>>& groups) {
            std::vector<ParameterGroup> all;
            for (const auto& [pattern, factor, decay] : groups) all.push_back({pattern, factor, decay});
            return grouped(std::move(optimizer), std::move(all));
        },
        nb::arg("optimizer"), nb::arg("groups"),
        "The same with groups of parameters: (pattern of names, factor of the rate, weight decay or None) "
        "each");
}

nb::str text_of(const StepResult& result) {
    return nb::str("StepResult(loss={:.6g}, gradient_norm={:.6g}, applied={}, seconds={:.4g}, metrics={})")
        .format(result.loss, result.gradient_norm, result.applied, result.seconds, result.metrics.by_name);
}

nb::str text_of(const Evaluation& result) {
    return nb::str("Evaluation(loss={:.6g}, metrics={})").format(result.loss, result.metrics.by_name);
}

void bind_options(nb::module_& module) {
    nb::class_<nn::LoraOptions>(module, "LoraOptions");
    module.def(
        "lora",
        [](std::int64_t rank, std::optional<double> alpha, double dropout, bool rank_stabilized,
           std::vector<std::string> layers, bool magnitudes, const std::optional<std::string>& trunk) {
            return nn::LoraOptions{.rank = rank,
                                   .alpha = alpha,
                                   .dropout = dropout,
                                   .rank_stabilized = rank_stabilized,
                                   .magnitudes = magnitudes,
                                   .layers = std::move(layers),
                                   .trunk = trunk ? nn::trunk_named(*trunk) : Layout::row_major};
        },
        nb::arg("rank") = 16, nb::arg("alpha") = nb::none(), nb::arg("dropout") = 0.0,
        nb::arg("rank_stabilized") = false, nb::arg("layers") = std::vector<std::string>(),
        nb::arg("magnitudes") = false, nb::arg("trunk") = nb::none(),
        "Adapters of low rank that are trained in place of the weights, beside linear layers and "
        "convolutions. alpha: None for the rank. layers: patterns of names, none for all but the last. "
        "magnitudes: train the norm of each output's weights, too (DoRA). trunk: nf4, int4 or int8, in which "
        "frozen weights of linear layers but the last are kept; None for the policy's format");
    nb::class_<TrainerOptions>(module, "TrainerOptions")
        .def(nb::init<>())
        .def_rw("optimizer", &TrainerOptions::optimizer)
        .def_rw("batch", &TrainerOptions::batch)
        .def_rw("accumulate", &TrainerOptions::accumulate)
        .def_rw("plans", &TrainerOptions::plans)
        .def_rw("seed", &TrainerOptions::seed)
        .def_prop_rw(
            "policy", [](const TrainerOptions& self) { return self.policy.name; },
            [](TrainerOptions& self, const std::string& name) { self.policy = name; })
        .def_rw("passes", &TrainerOptions::passes)
        .def_rw("recompute", &TrainerOptions::recompute)
        .def_rw("frozen", &TrainerOptions::frozen)
        .def_rw("lora", &TrainerOptions::lora)
        .def_rw("ema_decay", &TrainerOptions::ema_decay)
        .def(
            "_leave_open",
            [](TrainerOptions& self, bool batch, bool recompute) {
                self.open = {.trunk = self.lora && self.lora->trunk == Layout::row_major,
                             .batch = batch,
                             .recompute = recompute};
            },
            nb::arg("batch"), nb::arg("recompute"), "Settings that may change so that a step fits");
    nb::class_<StepResult>(module, "StepResult")
        .def_ro("loss", &StepResult::loss)
        .def_ro("gradient_norm", &StepResult::gradient_norm)
        .def_ro("applied", &StepResult::applied)
        .def_ro("seconds", &StepResult::seconds)
        .def_prop_ro("metrics", [](const StepResult& self) { return self.metrics.by_name; })
        .def("__repr__", [](const StepResult& self) { return text_of(self); });
    nb::class_<Evaluation>(module, "Evaluation")
        .def_ro("loss", &Evaluation::loss)
        .def_prop_ro("metrics", [](const Evaluation& self) { return self.metrics.by_name; })
        .def("__repr__", [](const Evaluation& self) { return text_of(self); });
}

}  // namespace

Device& device_named(const std::string& name, int threads) {
    if (name == "cpu") return cpu(threads);
    if (name == "cuda") return gpu();
    throw UserError("there is no device '" + name + "'; there are cpu and cuda");
}

void bind_trainers(nb::module_& module) {
    bind_optimizers(module);
    bind_options(module);
    nb::class_<PythonTrainer>(module, "Trainer", nb::type_slots(slots))
        .def("__init__", &make_trainer, nb::arg("model"), nb::arg("options"), nb::arg("device") = "cpu",
             nb::arg("threads") = 0)
        .def("step", &step, nb::arg("arrays"), nb::arg("learning_rate"))
        .def("start", &start, nb::arg("arrays").none(), nb::arg("learning_rate"), "None: what was brought")
        .def("bring", &bring, nb::arg("arrays"), "The arrays of the next step, while one works")
        .def(
            "finish", [](PythonTrainer& self) { return self.trainer.finish(); },
            nb::call_guard<nb::gil_scoped_release>())
        .def("evaluate", &evaluate, nb::arg("arrays"))
        .def("predict", &predict, nb::arg("arrays"))
        .def(
            "average", [](PythonTrainer& self) { self.averaged.emplace(self.trainer); },
            "Weights and statistics are their averages, until stop_averaging")
        .def("stop_averaging", [](PythonTrainer& self) { self.averaged.reset(); })
        .def("gradients", &gradients, nb::arg("arrays"))
        .def(
            "update", [](PythonTrainer& self, double rate) { return self.trainer.update(rate); },
            nb::arg("learning_rate"), nb::call_guard<nb::gil_scoped_release>())
        .def(
            "save", [](PythonTrainer& self, const std::filesystem::path& to) { self.trainer.save(to); },
            nb::arg("directory"), nb::call_guard<nb::gil_scoped_release>())
        .def(
            "resume",
            [](PythonTrainer& self, const std::filesystem::path& from) { return self.trainer.resume(from); },
            nb::arg("directory"), nb::call_guard<nb::gil_scoped_release>())
        .def(
            "save_weights",
            [](PythonTrainer& self, const std::filesystem::path& to) { self.trainer.save_weights(to); },
            nb::arg("file"), nb::call_guard<nb::gil_scoped_release>())
        .def(
            "load_weights",
            [](PythonTrainer& self, const std::filesystem::path& from, bool strict) {
                return self.trainer.load_weights(from, strict ? Match::strict : Match::by_name).text();
            },
            nb::arg("file"), nb::arg("strict") = true, nb::call_guard<nb::gil_scoped_release>())
        .def("read_state", &read_state, nb::arg("name"))
        .def("write_state", &write_state, nb::arg("name"), nb::arg("value"))
        .def("view_of_state", &view_of_state, nb::arg("name"),
             "A weight where it lies: who writes into the array calls note_write")
        .def("note_write", [](PythonTrainer& self) { self.trainer.state().note_write(); })
        .def_prop_ro("states", &states_of)
        .def(
            "continue_after",
            [](PythonTrainer& self, std::int64_t steps) { self.trainer.continue_after(steps); },
            nb::arg("steps"))
        .def_ro("choice", &PythonTrainer::choice)
        .def_prop_ro("planned_shapes",
                     [](const PythonTrainer& self) { return self.trainer.planned_shapes(); })
        .def_prop_ro("steps", [](const PythonTrainer& self) { return self.trainer.steps_done(); });
}

}  // namespace mantissa::python
