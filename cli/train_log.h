// The report of each step of `train`: a line on standard output, an object of the JSON report, and a line of
// the file of --log, which grows with the steps.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "mantissa/base/atomic_file.h"
#include "mantissa/report/report.h"
#include "mantissa/train/image_scores.h"
#include "mantissa/train/trainer.h"

namespace mantissa::cli {

/// The result of a validation during training.
struct Validation {
    double loss = 0;
    std::uint64_t batches = 0;
    std::optional<ImageScores> scores = {};  ///< of an image network
    std::string not_finite = {};             ///< place of a loss that is not finite: "in batch 3 of 7"
};

struct StepRecord {
    std::int64_t step = 0;
    StepResult result;
    double learning_rate = 0;
    double units_per_second = 0;  ///< of the model's unit: tokens, images
    double mfu = 0;
    LossScaleState loss_scale;  ///< after the step
    std::string non_finite;     ///< the first non-finite number, if the step was not applied
};

/// Whether a log would overwrite this file.
bool holds_lines(const std::string& path);

class TrainLog {
  public:
    /// Whether all steps are kept for json(), about half a KB each.
    enum class Keep : std::uint8_t { steps, nothing };

    TrainLog(const nn::Model& model, std::string_view policy, Keep keep)
        : keep_(keep), unit_(model.unit), report_{{"model", model.name}, {"policy", policy}} {}

    /// Also writes lines to this file, one a step: JSON objects, or, for a name that ends in .csv, numbers of
    /// a table with its columns named in the first line. Lines of steps before `first_step` stay; later ones
    /// are removed, with a message, since the run repeats these steps. A new run keeps another's file as
    /// PATH.previous. Throws UserError if it cannot be written.
    void open(const std::string& path, std::int64_t first_step);

    enum class Print : std::uint8_t { no, yes };

    /// Records the step and, if requested, prints its line; further data of the step may follow.
    void step(const StepRecord& record, Print print = Print::yes);
    void validation(const Validation& result);
    void sample(const std::string& text);
    /// Completes the step: its line goes to the file. Throws UserError, once, if it cannot.
    void end_step();

    /// The report of the whole run; needs kept steps.
    std::string json(std::int64_t peak_resident_bytes);

  private:
    std::int64_t step() const { return std::get<std::int64_t>(step_.front().value.value); }
    std::string line() const;
    void write(const std::string& line);

    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };

    Keep keep_;
    std::string unit_;
    Fields report_;
    Fields step_;  ///< the number of the step comes first
    Datum::List steps_, validations_;
    std::string path_;
    bool comma_separated_ = false;
    std::optional<LockFile> lock_;  ///< two runs would overwrite each other's lines
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace mantissa::cli
