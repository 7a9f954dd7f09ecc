// The data of a training, of any kind: batches step by step, and a validation on the part that is held out.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/train_log.h"
#include "cli/train_options.h"
#include "mantissa/base/function_ref.h"
#include "mantissa/data/chat/chat_set.h"
#include "mantissa/data/tokenizer.h"
#include "mantissa/data/trained_on.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_checkpoint.h"

namespace mantissa::cli {

class TrainInput {
  public:
    virtual ~TrainInput() = default;

    virtual const nn::Model& model() const = 0;
    /// A line for people.
    virtual std::string description() const = 0;
    /// A chat with its learnt parts; empty if the data are not chats.
    virtual std::vector<ChatPart> example() const { return {}; }
    /// Bytes that it will hold, in addition to the trainer's plan.
    virtual std::int64_t bytes() const { return 0; }
    /// Takes the memory of validations, so that it is not missing later. Throws UserError if there is not
    /// enough.
    virtual void prepare(const Trainer&) {}
    /// Sets the weights of --from. Returns a text to print about it.
    virtual std::string begin_with_files(StateBlock& weights) = 0;
    /// The batch of a step, valid until `kept` later ones were requested. Throws UserError for unreadable
    /// data.
    virtual Batch batch(std::int64_t step) = 0;
    /// Validates on the held-out part, after prepare(). `made` gets the numbers of batches done and in all.
    using MadeOf = FunctionRef<void(std::uint64_t done, std::uint64_t of)>;
    virtual Validation validate(Trainer& trainer, MadeOf made) = 0;
    /// A checksum of the validation's data: losses are comparable if it is equal.
    virtual std::string judged() const = 0;
    /// Adds the data's part of the record of the run's inputs.
    virtual void add_to(RunRecord& record) const = 0;
    /// Throws UserError if the checkpoint of --resume learnt other classes.
    virtual void require_fit(const Resumed&) const {}
    /// The place after the steps before this one, and restoring it, as in BatchSource.
    virtual DataPlace place_at(std::int64_t step) const = 0;
    virtual std::string go_on_from(const DataPlace& place) = 0;
    /// A record of all training data.
    virtual TrainedOn trained_on() const = 0;
    /// The share of validation data that was trained on before, and is not trained on now.
    virtual double trained_before(const TrainedOn& before) const = 0;
    /// The method of holding out, if it is an earlier version's; empty: it is not.
    virtual std::string split_of_before() const = 0;
    /// The tokenizer for samples. Throws UserError if there is none, or the model writes no text.
    virtual const Tokenizer& tokenizer() = 0;
    /// How it reads texts.
    virtual TextReading reading() const { return {}; }
    /// A text for the end of the run; may be empty.
    virtual std::string remark() const { return ""; }
};

/// Opens the text, tokens or images of the options; `kept` batches stay valid. Throws UserError as their
/// readers do.
std::unique_ptr<TrainInput> open_train_input(const TrainOptions& options, const TrainerOptions& settings,
                                             int kept);

std::unique_ptr<TrainInput> open_text_input(const TrainOptions& options, const TrainerOptions& settings,
                                            int kept);
std::unique_ptr<TrainInput> open_image_input(const TrainOptions& options, const TrainerOptions& settings,
                                             int kept);

}  // namespace mantissa::cli
