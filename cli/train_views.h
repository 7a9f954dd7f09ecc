// Views of a run for people: a trace of one step, event files for TensorBoard, and a page.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_options.h"
#include "cli/train_log.h"
#include "mantissa/base/clock.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/data/chat/chat_set.h"
#include "mantissa/formats/tensorboard.h"
#include "mantissa/report/training_page.h"

namespace mantissa::cli {

struct ViewOptions {
    std::string trace, tensorboard, html;  ///< files and a directory; empty: none
    std::int64_t histogram_every = 100;    ///< steps; 0: never
    std::string command;                   ///< the command line
};

/// Adds the options; parsing throws UserError for a place that cannot be written.
void add_view_options(Command& command, ViewOptions& options);

/// Takes the loop's reports on a run, and hands them to the requested views.
class TrainViews {
  public:
    explicit TrainViews(const ViewOptions& options) : options_(options) {}

    struct Beginning {
        std::string data;                    ///< description of the training data
        std::vector<ChatPart> example = {};  ///< TrainInput::example
        std::string judged;                  ///< TrainInput::judged; empty without validation
        std::int64_t steps = 0;              ///< last step of the run
        std::string kept;                    ///< kept() of the saved run, if it continues; else empty
    };
    /// To be called before the first step. Throws UserError if a file cannot be written.
    void begin(const Trainer& trainer, const Beginning& beginning);
    /// The page so far, for begin(); empty if there is none.
    std::string kept() const;

    /// Trainer::step, with tracing or histograms if due; else `meanwhile` is called while the device works.
    StepResult step(Trainer& trainer, const Batch& batch, double learning_rate, Profile* profile,
                    FunctionRef<void()> meanwhile);

    // To be called in this order for each step. If events cannot be written any more, end_step throws
    // UserError, once.
    void made(const StepRecord& record);
    void validation(const Validation& result);
    void sample(const std::string& text);
    void end_step();

    /// To be called after the last step.
    void end();

  private:
    StepResult traced_step(Trainer& trainer, const Batch& batch, double learning_rate, Profile* profile);
    StepResult shown_step(Trainer& trainer, const Batch& batch, double learning_rate, Profile* profile);
    bool page_is_due() const;
    void write_page(TrainingState state);
    double seconds() const { return seconds_before_ + since_begin_.seconds(); }

    const ViewOptions& options_;
    std::optional<EventFile> events_;
    std::optional<TrainingPage> page_;
    std::string run_;                ///< a line about the run
    std::string unit_;               ///< of the model
    std::int64_t traced_step_ = -1;  ///< number of the step to trace; -1: none
    bool histograms_due_ = false, scales_loss_ = false, warned_ = false;
    std::int64_t step_ = 0;  ///< the last step made
    Stopwatch since_begin_;
    double seconds_before_ = 0;            ///< of the run before it was saved
    std::optional<Stopwatch> since_page_;  ///< since the page was written
};

}  // namespace mantissa::cli
