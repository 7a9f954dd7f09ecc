// The data that `train` trains on, whatever it is: batches step by step, and a validation on what is kept
// from them.
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
    /// In a line, for people.
    virtual std::string description() const = 0;
    /// A chat with what is learnt of it; empty where it is of none.
    virtual std::vector<ChatPart> example() const { return {}; }
    /// Bytes that it will hold beside what the trainer plans.
    virtual std::int64_t bytes() const { return 0; }
    /// Takes what validations need, so that it is not lacking later. Throws UserError if there is not so
    /// much.
    virtual void prepare(const Trainer&) {}
    /// Begins with the weights of --from. Returns what to say of it.
    virtual std::string begin_with_files(StateBlock& weights) = 0;
    /// The batch of a step, good until as many more were asked for as are kept. Throws UserError where
    /// something cannot be read.
    virtual Batch batch(std::int64_t step) = 0;
    /// On what was kept for it; prepare() was called. `made` hears of batches that are done, of how many.
    using MadeOf = FunctionRef<void(std::uint64_t done, std::uint64_t of)>;
    virtual Validation validate(Trainer& trainer, MadeOf made) = 0;
    /// A checksum of what validations judge, equal where two losses can be compared.
    virtual std::string judged() const = 0;
    /// Adds what the run follows from.
    virtual void add_to(RunRecord& record) const = 0;
    /// Throws UserError where the checkpoint of --resume learnt to tell other things apart.
    virtual void require_fit(const Resumed&) const {}
    /// How far the steps before this one read, and what puts the next there: as BatchSource.
    virtual DataPlace place_at(std::int64_t step) const = 0;
    virtual std::string go_on_from(const DataPlace& place) = 0;
    /// All that it trains on.
    virtual TrainedOn trained_on() const = 0;
    /// The share of what it validates on that is among what was trained on before, and is not trained on now.
    virtual double trained_before(const TrainedOn& before) const = 0;
    /// The choice of what is held out, where it is one that earlier versions made; empty: it is not.
    virtual std::string split_of_before() const = 0;
    /// For samples. Throws UserError where there is none, or the model writes no text.
    virtual const Tokenizer& tokenizer() = 0;
    /// How it reads texts.
    virtual TextReading reading() const { return {}; }
    /// Words to say at the end; empty: nothing.
    virtual std::string remark() const { return ""; }
};

/// The text, the tokens or the images of the options; so many batches are kept. Throws UserError as their
/// readers do.
std::unique_ptr<TrainInput> open_train_input(const TrainOptions& options, const TrainerOptions& settings,
                                             int kept);

std::unique_ptr<TrainInput> open_text_input(const TrainOptions& options, const TrainerOptions& settings,
                                            int kept);
std::unique_ptr<TrainInput> open_image_input(const TrainOptions& options, const TrainerOptions& settings,
                                             int kept);

}  // namespace mantissa::cli
