// Pictures as what `train` trains on.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "cli/picture_data.h"
#include "cli/print_error.h"
#include "cli/train_input.h"
#include "mantissa/base/error.h"
#include "mantissa/data/picture_reader.h"

namespace mantissa::cli {

namespace {

class PictureInput final : public TrainInput {
  public:
    PictureInput(const TrainOptions& options, const TrainerOptions& settings, int kept)
        : options_(options),
          kept_(kept),
          data_(open_picture_data(options.images, options.run,
                                  {.batch = settings.batch,
                                   .accumulate = settings.accumulate,
                                   .order = order_of(options),
                                   .seed = settings.seed},
                                  options.validate_every > 0)) {}

    const nn::Model& model() const override { return data_->network.model; }
    std::string description() const override { return data_->description; }

    std::int64_t bytes() const override {
        std::int64_t bytes = PictureReader::bytes(*data_->training, {.kept = kept_});
        if (options_.validate_every > 0) bytes += PictureReader::bytes(*data_->validation);
        return bytes;
    }

    void prepare(const Trainer& trainer) override {
        if (options_.validate_every > 0) scorer_.emplace(trainer, data_->network);
    }

    Batch batch(std::int64_t step) override {
        const auto wanted = static_cast<std::uint64_t>(step);
        if (!reader_ || wanted != next_step_)
            reader_.emplace(
                *data_->training,
                PictureReaderOptions{
                    .threads = data_->read_threads, .kept = kept_, .first = wanted, .end = last_step()});
        next_step_ = wanted + 1;
        const Batch batch = reader_->next();
        tell_skipped(*data_->training, next_step_);
        return batch;
    }

    Validation validate(Trainer&, MadeOf made) override {
        check(scorer_.has_value(), "validation was prepared");
        const std::uint64_t most = options_.validate_batches > 0
                                       ? static_cast<std::uint64_t>(options_.validate_batches)
                                       : data_->validation->steps_per_epoch();
        const PictureScores scores = scorer_->score(*data_->validation, most, data_->read_threads, made);
        tell_skipped(*data_->validation, most);
        return {.loss = scores.loss(),
                .batches = std::min(most, data_->validation->steps_per_epoch()),
                .scores = scores};
    }

    void add_to(RunRecord& record) const override {
        record.inputs["pictures"] = description_;
        record.texts["classes.txt"] = fmt::format("{}\n", fmt::join(data_->split.training.classes, "\n"));
    }

    const Tokenizer& tokenizer() override {
        throw UserError(
            fmt::format("--sample-every continues a text; {} is for pictures", data_->network.model.name));
    }

    std::string remark() const override {
        if (skipped_ == 0) return "";
        return fmt::format("{} picture{} could not be decoded and {} skipped", skipped_,
                           skipped_ == 1 ? "" : "s", skipped_ == 1 ? "was" : "were");
    }

  private:
    std::uint64_t last_step() const { return static_cast<std::uint64_t>(options_.run.steps); }

    /// The first by their names; a set of which all are damaged would fill the screen.
    void tell_skipped(const PictureBatches& batches, std::uint64_t steps) {
        constexpr std::uint64_t named = 10;
        for (const std::string& why : batches.take_skipped(steps)) {
            if (++skipped_ <= named) print_error(fmt::format("mantissa: warning: skipped: {}\n", why));
            if (skipped_ == named) print_error("mantissa: warning: those after it are only counted\n");
        }
    }

    const TrainOptions& options_;
    const int kept_;
    std::unique_ptr<const PictureData> data_;
    std::string description_ = data_->training->description();
    std::optional<PictureReader> reader_;
    std::optional<PictureScorer> scorer_;
    std::uint64_t next_step_ = 0, skipped_ = 0;
};

}  // namespace

std::unique_ptr<TrainInput> open_picture_input(const TrainOptions& options, const TrainerOptions& settings,
                                               int kept) {
    if (settings.ranks)
        throw UserError(
            "--images: pictures are not read by several ranks yet; train on them as one process, with "
            "--accumulate");
    return std::make_unique<PictureInput>(options, settings, kept);
}

}  // namespace mantissa::cli
