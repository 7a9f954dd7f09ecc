// The report of each step of `train`: a line on standard output, an object of the JSON report, and a line of
// the file that --log names, which grows as steps are made.
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

/// The result of a validation in the course of training.
struct Validation {
    double loss = 0;
    std::uint64_t batches = 0;
    std::optional<ImageScores> scores = {};  ///< of a network for images
    std::string not_finite = {};             ///< where the loss is no number: "in batch 3 of 7"
};

struct StepRecord {
    std::int64_t step = 0;
    StepResult result;
    double learning_rate = 0;
    double units_per_second = 0;  ///< of the model: tokens, images
    double mfu = 0;
    LossScaleState loss_scale;  ///< after the step
    std::string non_finite;     ///< what was not finite, if the step was not applied
};

/// Whether a file is there that a log would write over.
bool holds_lines(const std::string& path);

class TrainLog {
  public:
    /// Whether each step is kept until the end, about half a KB, for json().
    enum class Keep : std::uint8_t { steps, nothing };

    TrainLog(const nn::Model& model, std::string_view policy, Keep keep)
        : keep_(keep), unit_(model.unit), report_{{"model", model.name}, {"policy", policy}} {}

    /// Lets lines also go to this file, one a step: JSON objects, or the numbers of a table where the name
    /// ends in .csv, whose first line names the columns. Lines of the steps before `first_step` stay, those
    /// of later ones go, which is said: the run makes these steps again. A run that begins keeps the file of
    /// another as PATH.previous. Throws UserError if it cannot be written.
    void open(const std::string& path, std::int64_t first_step);

    enum class Print : std::uint8_t { no, yes };

    /// Takes the step down and prints its line, if it is to; what belongs to the same step may follow.
    void step(const StepRecord& record, Print print = Print::yes);
    void validation(const Validation& result);
    void sample(const std::string& text);
    /// Nothing more belongs to the step: its line goes to the file. Throws UserError, once, if it cannot.
    void end_step();

    /// The report of the whole run, whose steps were kept.
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
    Fields step_;  ///< the number of the step first
    Datum::List steps_, validations_;
    std::string path_;
    bool comma_separated_ = false;
    std::optional<LockFile> lock_;  ///< two runs would write over one another's lines
    std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace mantissa::cli
