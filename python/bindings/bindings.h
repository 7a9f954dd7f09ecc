// The parts of the module, a file each, and what they share.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <string>
#include <vector>

#include "mantissa/mantissa.h"

namespace mantissa::python {

namespace nb = nanobind;

void bind_tensors(nb::module_& module);
void bind_operations(nb::module_& module);
void bind_states(nb::module_& module);
void bind_layers(nb::module_& module);
void bind_models(nb::module_& module);
void bind_trainers(nb::module_& module);
void bind_generators(nb::module_& module);
void bind_reports(nb::module_& module);

/// A model whose loss and output are functions of Python. Trainers hold it, and what they trace calls it.
struct PythonModel {
    nn::Model model;
    nb::object loss, output;
};

/// A type of numbers by its name, as in "f32". Throws UserError, naming those there are, for another.
DType dtype_named(const std::string& name);

/// "cpu", with so many threads (mantissa/device/devices.h), or "cuda". Throws UserError for another name, and
/// where there is no such device.
Device& device_named(const std::string& name, int threads);

/// The mode of the trace that runs now: layers that need it find it here. Throws UserError outside of one.
const nn::Mode& mode_of_trace();

/// The values of a model's inputs, as arrays of any library that knows DLPack or the buffer protocol: taken
/// as they lie where their type is the input's, else converted (float64, float16 and bfloat16 to float32,
/// int64 to int32).
class Arrays {
  public:
    /// `count`: how many of the model's inputs there are. Throws UserError, naming the input, for another
    /// number of arrays, other shapes and other kinds of numbers.
    Arrays(const nn::Model& model, const nb::tuple& arrays, std::size_t count);

    const Batch& batch() const { return batch_; }

  private:
    std::vector<nb::object> kept_;                ///< arrays that are read where they lie
    std::vector<std::vector<std::byte>> copied_;  ///< what was converted
    Batch batch_{};
};

}  // namespace mantissa::python
