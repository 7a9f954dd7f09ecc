// Predictions of a trained model, for any number of examples: the values of Model::output.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

struct PredictorOptions {
    Policy policy = {};       ///< int8 and int4, too, which quantise the weights of linear layers
    std::int64_t batch = 32;  ///< examples computed at a time
};

class Predictor {
  public:
    /// The trainer's model in its precision, on the parameters at the time of each call. `trainer` must
    /// outlive this. Throws UserError if the model has no output, or the memory does not suffice.
    explicit Predictor(const Trainer& trainer);
    /// A model on weights in a file, as load_weights (train/weights.h) reads them.
    Predictor(Device& device, const nn::Model& model, const std::filesystem::path& weights,
              const PredictorOptions& options = {});
    /// A model without parameters, until `bind`. Throws UserError if the model has no output.
    Predictor(Device& device, const nn::Model& model, const PredictorOptions& options = {});
    ~Predictor();
    Predictor(Predictor&&) noexcept;

    /// The states that must be bound: parameters and running statistics.
    std::vector<State> parameters() const;
    /// Takes memory beside `parameters`, which must outlive this. Throws UserError if it does not suffice, or
    /// if `parameters` lacks a state that the output reads.
    void bind(const StateBlock& parameters);

    /// The output of each example, one after another, `values_per_example` numbers each. `examples` has the
    /// values [n, ...], n >= 1, of the inputs that the output reads; inputs without a batch axis are given
    /// whole. If the graph shows that examples stand alone (passes/analysis/example_axis.h), `batch` of them
    /// are computed at a time, filled up with zeros; otherwise all at once. Throws UserError, naming the
    /// input, for values that do not fit.
    std::vector<float> predict(const Batch& examples);

    std::int64_t values_per_example() const;

  private:
    struct Plans;
    std::unique_ptr<Plans> plans_;
};

/// The share of examples with the greatest score, the first of equal ones, at their class: scores [n,
/// classes], ids [n]. A score that is not a number is never right.
double accuracy(std::span<const float> scores, std::span<const std::int32_t> classes);

}  // namespace mantissa
