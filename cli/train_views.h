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
    std::string command;                   ///< what was typed
};

/// Parsing the options throws UserError where a place cannot be written.
void add_view_options(Command& command, ViewOptions& options);

/// Takes what the loop tells of a run, and hands it to the views that were asked for.
class TrainViews {
  public:
    explicit TrainViews(const ViewOptions& options) : options_(options) {}

    struct Beginning {
        std::string data;                    ///< what is trained on, for people
        std::vector<ChatPart> example = {};  ///< TrainInput::example
        std::string judged;                  ///< TrainInput::judged, or empty where nothing is
        std::int64_t steps = 0;              ///< at which the run ends
        std::string kept;                    ///< what kept() was when a run was saved that goes on, or empty
    };
    /// Before the first step. Throws UserError where a file cannot be written.
    void begin(const Trainer& trainer, const Beginning& beginning);
    /// The page so far, for begin(); empty where there is none.
    std::string kept() const;

    /// Trainer::step, looked into where that is due; where not, `meanwhile` is called while the device works.
    StepResult step(Trainer& trainer, const Batch& batch, double learning_rate, Profile* profile,
                    FunctionRef<void()> meanwhile);

    // In this order, for each step. Where events cannot be written any more, end_step throws UserError,
    // once.
    void made(const StepRecord& record);
    void validation(const Validation& result);
    void sample(const std::string& text);
    void end_step();

    /// After the last step.
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
    std::string run_;                ///< in a line
    std::string unit_;               ///< of the model
    std::int64_t traced_step_ = -1;  ///< that is to be traced; -1: none
    bool histograms_due_ = false, scales_loss_ = false, warned_ = false;
    std::int64_t step_ = 0;  ///< that was made last
    Stopwatch since_begin_;
    double seconds_before_ = 0;            ///< of the run, until it was saved
    std::optional<Stopwatch> since_page_;  ///< was written
};

}  // namespace mantissa::cli
