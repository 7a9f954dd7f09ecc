// Predictions of a trained model, for any number of examples: what Model::output makes of them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "mantissa/train/trainer.h"

namespace mantissa::inline v0 {

class Forward;

class Predictor {
  public:
    /// The trainer's model in its precision, on the parameters that it has at each call. `trainer` must
    /// outlive this. Throws UserError if the model has no output, or the memory does not suffice.
    explicit Predictor(const Trainer& trainer);
    /// A model on parameters that `bind` brings; `batch` examples are computed at a time. Throws UserError if
    /// the model has no output.
    Predictor(Device& device, const nn::Model& model, const PipelineOptions& pipeline,
              std::int64_t batch = 32);
    ~Predictor();
    Predictor(Predictor&&) noexcept;

    /// The states that must be there: what the model learned, and what it saw.
    std::vector<State> parameters() const;
    /// Takes memory beside `parameters`, which must outlive this. Throws UserError if it does not suffice.
    void bind(const StateBlock& parameters);

    /// The output of each example, one after another, each of so many numbers as `values_per_example`. The
    /// values of those inputs that the output is made of are [n, ...], n 1 or more; what is short of a whole
    /// batch is computed with zeros beside it, or alone if it is one example. Throws UserError, naming the
    /// input, for values that do not fit.
    std::vector<float> predict(const Batch& examples);

    std::int64_t values_per_example() const;

  private:
    std::unique_ptr<Forward> forward_of(std::int64_t examples) const;
    Forward& one();
    /// Appends the output of `count` of the examples, from `first` on.
    void predict_some(Forward& forward, const Batch& examples, std::int64_t first, std::int64_t count,
                      std::vector<float>& to) const;

    Device& device_;
    nn::Model model_;  ///< with those inputs alone that the output is made of
    PipelineOptions pipeline_;
    std::int64_t batch_;
    bool parameters_change_ = false;
    std::unique_ptr<Forward> many_, one_;  ///< `one_` is made when it is first needed
};

}  // namespace mantissa
