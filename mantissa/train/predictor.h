// Predictions of a trained model, for any number of examples: what Model::output makes of them.
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
    std::int64_t batch = 32;  ///< examples that are computed at a time
};

class Predictor {
  public:
    /// The trainer's model in its precision, on the parameters that it has at each call. `trainer` must
    /// outlive this. Throws UserError if the model has no output, or the memory does not suffice.
    explicit Predictor(const Trainer& trainer);
    /// A model on weights in a file, as load_weights (train/weights.h) reads them.
    Predictor(Device& device, const nn::Model& model, const std::filesystem::path& weights,
              const PredictorOptions& options = {});
    /// A model on parameters that `bind` brings. Throws UserError if the model has no output.
    Predictor(Device& device, const nn::Model& model, const PredictorOptions& options = {});
    ~Predictor();
    Predictor(Predictor&&) noexcept;

    /// The states that must be there: what the model learned, and what it saw.
    std::vector<State> parameters() const;
    /// Takes memory beside `parameters`, which must outlive this. Throws UserError if it does not suffice, or
    /// if `parameters` lacks a state that the output reads.
    void bind(const StateBlock& parameters);

    /// The output of each example, one after another, each of so many numbers as `values_per_example`. The
    /// values of those inputs that the output is made of are [n, ...], n 1 or more (those without a batch
    /// axis are given whole). Some examples are computed at a time, with zeros beside what is short of so
    /// many, where the graph shows that they stand alone (passes/analysis/example_axis.h), else all at once.
    /// Throws UserError, naming the input, for values that do not fit.
    std::vector<float> predict(const Batch& examples);

    std::int64_t values_per_example() const;

  private:
    struct Plans;
    std::unique_ptr<Plans> plans_;
};

/// The share of examples whose greatest score, the first of equal ones, is that of their class: scores
/// [n, classes] against ids [n]. A score that is no number is never right.
double accuracy(std::span<const float> scores, std::span<const std::int32_t> classes);

}  // namespace mantissa
