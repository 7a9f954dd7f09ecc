// Text and tokens as the data of `train`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "cli/print_error.h"
#include "cli/train_input.h"
#include "cli/training_data.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/plain_nan.h"
#include "mantissa/base/printable.h"
#include "mantissa/base/system_memory.h"
#include "mantissa/data/text_reading.h"
#include "mantissa/data/tokenizer_files.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::cli {

namespace {

class TextInput final : public TrainInput {
  public:
    TextInput(const TrainOptions& options, const TrainerOptions& settings, int kept)
        : options_(options),
          corpus_(open_corpus(options.run, CorpusOptions::Untokenized::bytes)),
          tokenizer_texts_(corpus_.tokenizer ? tokenizer_texts(*corpus_.tokenizer)
                                             : std::map<std::string, std::string>{}),
          token_ids_(token_ids_of_run()),
          validation_corpus_(open_validation_corpus(options, corpus_)),
          split_(split_of(options, corpus_)),
          model_(model_to_train(options.run)),
          batches_(
              text_batches(corpus_, split_.train, model_.units_per_example,
                           {.batch = settings.batch,
                            .accumulate = settings.micro_batches(),
                            .order = options.order == "random" ? BatchOrder::random : BatchOrder::sequential,
                            .seed = settings.seed})),
          buffers_(static_cast<std::size_t>(kept),
                   {model_, settings.batch, settings.accumulate, settings.first_micro_batch()}),
          batch_(settings.batch),
          validation_buffer_(model_, settings.batch) {
        if (options.validate_every > 0) validation_ = validation_batches(settings.batch);
    }

    const nn::Model& model() const override { return model_; }
    std::string description() const override {
        if (validation_corpus_)
            return fmt::format("{}\nvalidated on {}", corpus_.description, validation_corpus_->description);
        const auto kept = static_cast<double>(split_.validation.size());
        if (corpus_.chats && kept > 0)
            return fmt::format("{}\nheld out: {} of {}", corpus_.description,
                               std::ranges::count_if(corpus_.chats->starts,
                                                     [&](std::uint64_t start) {
                                                         return start >= split_.validation.begin &&
                                                                start < split_.validation.end;
                                                     }),
                               count_text(corpus_.chats->chats(), "chat"));
        if (!corpus_.ends || kept == 0) return corpus_.description;
        return fmt::format("{}\nheld out: {} of {}, {:.1f} % of the tokens", corpus_.description,
                           corpus_.ends->among(split_.validation),
                           count_text(corpus_.ends->documents(), "document"),
                           100 * kept / static_cast<double>(corpus_.stream.size()));
    }
    /// The first chat of the training data.
    std::vector<ChatPart> example() const override {
        if (!corpus_.chats) return {};
        const std::size_t size = corpus_.chats->starts[1];
        return parts_of(*corpus_.tokenizer, std::span(corpus_.chats->tokens).first(size),
                        std::span(corpus_.chats->trained).first(size));
    }
    std::string begin_with_files(StateBlock& weights) override {
        return cli::begin_with_files(options_.run, weights);
    }
    std::int64_t bytes() const override {
        return static_cast<std::int64_t>(buffers_.size()) * buffers_.front().bytes();
    }
    /// Takes memory after the trainer, which refuses a batch that is far too large.
    void prepare(const Trainer&) override {
        if (const std::int64_t available = available_memory(); bytes() > available)
            throw UserError(fmt::format(
                "the tokens of a step need {:.2f} GB, {:.2f} GB are available; give a smaller --batch, "
                "--sequence or --accumulate",
                static_cast<double>(bytes()) / 1e9, static_cast<double>(available) / 1e9));
        batches_text_ = batches_->description();
    }
    Batch batch(std::int64_t step) override {
        taken_ = (taken_ + 1) % buffers_.size();
        return buffers_[taken_].fill(*batches_, static_cast<std::uint64_t>(step));
    }

    /// Validates over all targets of the validation text, or of the requested number of batches.
    Validation validate(Trainer& trainer, MadeOf made) override {
        check(validation_ != nullptr, "there is a text to validate on");
        Validation result{.batches = validation_->steps_per_epoch()};
        double counted = 0;
        if (options_.validate_batches > 0)
            result.batches = std::min(result.batches, static_cast<std::uint64_t>(options_.validate_batches));
        for (std::uint64_t i = 0; i < result.batches; ++i) {
            const auto of_batch = static_cast<double>(validation_->counted(i));
            const auto loss =
                static_cast<double>(trainer.evaluate(validation_buffer_.fill(*validation_, i)).loss);
            if (!std::isfinite(loss) && result.not_finite.empty())
                result.not_finite = fmt::format("in batch {} of {}", i + 1, result.batches);
            result.loss += of_batch * loss;
            counted += of_batch;
            made(i + 1, result.batches);
        }
        result.loss = plain_nan(result.loss / std::max(counted, 1.0));
        return result;
    }

    /// A checksum of sequences, independent of batches.
    std::string judged() const override {
        const auto sequences = validation_batches(1);
        const std::uint64_t most = options_.validate_batches > 0
                                       ? static_cast<std::uint64_t>(options_.validate_batches * batch_)
                                       : sequences->steps_per_epoch();
        BatchBuffer buffer(model_, 1);
        Checksum checksum;
        for (std::uint64_t i = 0; i < std::min(most, sequences->steps_per_epoch()); ++i) {
            const Batch sequence = buffer.fill(*sequences, i);
            for (const HostValues& input : sequence.values()) checksum.add(input.bytes);
        }
        return checksum_text(checksum.value());
    }

    void add_to(RunRecord& record) const override {
        record.inputs["tokens"] = batches_text_;
        record.texts = tokenizer_texts_;
        record.token_ids = token_ids_;
        record.reading = corpus_.reading;
    }

    DataPlace place_at(std::int64_t step) const override {
        return batches_->place_at(static_cast<std::uint64_t>(step));
    }
    std::string go_on_from(const DataPlace& place) override { return batches_->go_on_from(place); }

    TrainedOn trained_on() const override { return TrainedOn::tokens(corpus_.stream, split_.train); }
    double trained_before(const TrainedOn& before) const override {
        if (validation_corpus_)
            return before.share_of(validation_corpus_->stream, validation_corpus_->stream.all(),
                                   corpus_.stream, split_.train);
        return before.share_of(corpus_.stream, split_.validation, corpus_.stream, split_.train);
    }
    std::string split_of_before() const override {
        if (!(corpus_.ends || corpus_.chats) || split_.validation.size() == 0 || options_.held_out == "name")
            return "";
        return options_.held_out == "last" ? "the end of all documents" : "documents at the end of each file";
    }

    const Tokenizer& tokenizer() override {
        if (!corpus_.tokenizer && !options_.run.tokens.empty() && options_.run.tokenizer != bytes_word)
            throw UserError(
                "--sample-every prints text, but nothing says what text these tokens stand for; "
                "give --tokenizer DIR, or --tokenizer bytes");
        if (!corpus_.tokenizer) corpus_.tokenizer = std::make_unique<Tokenizer>(byte_tokenizer());
        return *corpus_.tokenizer;
    }
    TextReading reading() const override { return corpus_.reading; }

  private:
    /// Ids of the tokenizer's tokens, or ids that came with the weights.
    HfTokenIds token_ids_of_run() const {
        HfTokenIds ids;
        if (corpus_.tokenizer) ids = token_ids_of(*corpus_.tokenizer);
        const std::string& before = options_.resume.empty() ? options_.run.from : options_.resume;
        if (ids.ends.empty() && !before.empty()) ids = read_hf_token_ids(before);
        return ids;
    }

    std::unique_ptr<const BatchSource> validation_batches(std::int64_t batch) const {
        const Corpus& corpus = validation_corpus_ ? *validation_corpus_ : corpus_;
        const TokenRange range = validation_corpus_ ? corpus.stream.all() : split_.validation;
        try {
            return text_batches(corpus, range, model_.units_per_example, {.batch = batch, .all = true});
        } catch (const UserError& error) {
            throw UserError(fmt::format(
                "{} {}", validation_corpus_ ? "--validation" : "--validate-every takes a tenth of",
                error.what()));
        }
    }

    /// Null if no validation text is given, and a part of the training text is kept for it, or if there is no
    /// validation.
    static std::unique_ptr<const Corpus> open_validation_corpus(const TrainOptions& options,
                                                                const Corpus& corpus) {
        if (options.validation.empty() || options.validate_every == 0) return nullptr;
        RunOptions run = options.run;
        (!run.chats.empty() ? run.chats : run.tokens.empty() ? run.text : run.tokens) = options.validation;
        run.special_tokens.reset();
        run.reading = corpus.reading;
        run.earlier.clear();
        auto opened = std::make_unique<const Corpus>(
            in_option("--validation", [&] { return open_corpus(run, CorpusOptions::Untokenized::bytes); }));
        if (corpus.tokenizer && differ(opened->reading, corpus.reading, *corpus.tokenizer))
            warn(
                "--validation: its tokens were made in another way ({}) than those that are trained on ({}), "
                "so the validation loss tells little",
                text_of(opened->reading, *corpus.tokenizer), text_of(corpus.reading, *corpus.tokenizer));
        return opened;
    }

    static TokenSplit split_of(const TrainOptions& options, Corpus& corpus) {
        const TokenRange all = corpus.stream.all();
        if (corpus.chats && options.validate_every > 0 && options.validation.empty())
            return split_chats(corpus, options.held_out == "last");
        if (options.validate_every == 0 || !options.validation.empty()) return {all, {}};
        if (options.held_out == "last") return split_for_validation(all);
        return options.held_out == "name" ? split_by_name(corpus) : split_each_file(corpus);
    }

    const TrainOptions& options_;
    Corpus corpus_;
    /// Read early: a save needs them after the files may be gone.
    std::map<std::string, std::string> tokenizer_texts_;
    HfTokenIds token_ids_;
    std::unique_ptr<const Corpus> validation_corpus_;
    TokenSplit split_;
    nn::Model model_;
    std::unique_ptr<BatchSource> batches_;
    /// Read early: a save needs the description after the files may be gone.
    std::string batches_text_;
    std::unique_ptr<const BatchSource> validation_;  // null: not requested
    std::vector<BatchBuffer> buffers_;               // of the kept batches
    std::size_t taken_ = 0;                          // index of the last one
    std::int64_t batch_;
    BatchBuffer validation_buffer_;
};

}  // namespace

std::unique_ptr<TrainInput> open_text_input(const TrainOptions& options, const TrainerOptions& settings,
                                            int kept) {
    return std::make_unique<TextInput>(options, settings, kept);
}

}  // namespace mantissa::cli
