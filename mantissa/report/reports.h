// The reports on a model and its training, one call each for one's own model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "mantissa/train/trainer.h"

namespace mantissa::inline v0::report {

/// A report for people, as a self-contained page, and for machines (docs/json.md).
struct Report {
    std::string text, page, json;

    /// Throw UserError, naming the file, if it cannot be written.
    void write_page(const std::filesystem::path& file) const;
    void write_json(const std::filesystem::path& file) const;
};

struct Options {
    TrainerOptions trainer = {};  ///< of the steps: policy, passes, batch, optimizer
    std::int64_t steps = 10;      ///< of training
    double learning_rate = 3e-4;
    std::int64_t repeats = 3;  ///< measurements of each rung, and of each size
    /// Rungs of a ladder, policies to converge; none: all that the machine has.
    std::vector<std::string> names = {};
    std::function<void(const std::string&)> progress = {};  ///< called with the current activity
};

/// Formats of storage, multiplication and sum, rule and kernel of each operation in a step. Runs nothing.
Report explain(Device& device, const nn::Model& model, const Options& options = {});

/// Arithmetic, bytes, time and bound of each kernel in a step. Runs steps on the first batch.
Report roofline(Device& device, const nn::Model& model, const BatchSource& batches,
                const Options& options = {});

/// The model on each rung, trained and timed. Throws UserError as run_ladder (report/ladder.h) does.
Report ladder(Device& device, const nn::Model& model, const BatchSource& batches,
              const Options& options = {});

/// The numbers of weights, activations and gradients after some steps in FP32, with the formats' ranges.
Report numerics(Device& device, const nn::Model& model, const BatchSource& batches,
                const Options& options = {});

/// The model trained in one precision after another, with a comparison of their losses to the first.
Report converge(Device& device, const nn::Model& model, const BatchSource& batches,
                const Options& options = {});

/// Ugly sizes: extents that leave a rest in the blocks of kernels, and the gain of better sizes here.
Report lint(Device& device, const nn::Model& model, const Options& options = {});

}  // namespace mantissa::report
