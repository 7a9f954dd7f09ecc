// Images as the data of `train`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <sstream>

#include "cli/image_data.h"
#include "cli/print_error.h"
#include "cli/train_input.h"
#include "cli/training_data.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"
#include "mantissa/base/plain_nan.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/image_batches.h"
#include "mantissa/data/image_cut.h"
#include "mantissa/ranks/ranks.h"
#include "mantissa/runtime/state_block.h"

namespace mantissa::cli {

namespace {

class ImageInput final : public TrainInput {
  public:
    ImageInput(const TrainOptions& options, const TrainerOptions& settings, int kept)
        : options_(options),
          ranks_(settings.ranks),
          reading_{.kept = kept,
                   .first_row = static_cast<std::uint64_t>(settings.first_micro_batch() * settings.batch),
                   .rows = static_cast<std::uint64_t>(settings.accumulate * settings.batch),
                   .end = static_cast<std::uint64_t>(options.run.steps)},
          data_(open_image_data(
              options.images, options.run,
              {.batch = settings.batch,
               .accumulate = settings.micro_batches(),
               .order = options.order == "random" ? BatchOrder::random : BatchOrder::sequential,
               .seed = settings.seed},
              options.validate_every == 0  ? HoldOut::nothing
              : options.held_out == "name" ? HoldOut::by_name
                                           : HoldOut::by_seed)) {
        reading_.threads = data_->read_threads;
    }

    const nn::Model& model() const override { return data_->network.model; }
    std::string description() const override { return data_->description; }

    std::int64_t bytes() const override {
        std::int64_t bytes = ImageReader::bytes(*data_->training, reading_);
        if (options_.validate_every > 0) bytes += ImageReader::bytes(*data_->validation);
        return bytes;
    }

    void prepare(const Trainer& trainer) override {
        if (options_.validate_every > 0) scorer_.emplace(trainer);
    }

    std::string begin_with_files(StateBlock& weights) override {
        return cli::begin_with_files(options_.run, data_->network, &data_->split.training.classes, weights);
    }

    Batch batch(std::int64_t step) override {
        const auto wanted = static_cast<std::uint64_t>(step);
        if (!reader_ || wanted != next_step_) {
            reading_.first = wanted;
            reader_.emplace(*data_->training, reading_);
        }
        next_step_ = wanted + 1;
        const Batch batch = reader_->next();
        tell_skipped(*data_->training, next_step_, Said::by_each);
        return batch;
    }

    Validation validate(Trainer&, MadeOf made) override {
        check(scorer_.has_value(), "validation was prepared");
        const std::uint64_t most = options_.validate_batches > 0
                                       ? static_cast<std::uint64_t>(options_.validate_batches)
                                       : data_->validation->steps_per_epoch();
        const ImageScores scores = scorer_->score(*data_->validation, most, data_->read_threads, made);
        tell_skipped(*data_->validation, most, Said::by_the_first);
        return {
            .loss = plain_nan(scores.loss()),
            .batches = std::min(most, data_->validation->steps_per_epoch()),
            .scores = scores,
            .not_finite = fmt::format("of {} of {}", scores.not_finite, count_text(scores.images, "image"))};
    }

    std::string judged() const override {
        const ImageSet& set = data_->split.validation;
        const std::uint64_t most =
            options_.validate_batches > 0
                ? static_cast<std::uint64_t>(options_.validate_batches) * data_->validation->rows_per_step()
                : set.count();
        const std::string text = fmt::format("{}, {}, {}, {}", set.description(), set.contents(),
                                             image_cut_text(data_->cut), std::min(most, set.count()));
        return checksum_text(checksum_of(std::as_bytes(std::span(text))));
    }

    void add_to(RunRecord& record) const override {
        record.inputs["pictures"] = description_;
        if (!contents_.empty()) record.inputs["contents"] = contents_;
        record.texts[image_cut_file] = image_cut_text(data_->cut);
        record.texts["classes.txt"] = classes_;
    }

    void require_fit(const Resumed& resumed) const override {
        const auto saved = resumed.texts.find("classes.txt");
        if (saved == resumed.texts.end() || saved->second == classes_) return;
        const auto in_a_line = [](std::string names) {
            names.pop_back();
            std::ranges::replace(names, '\n', ',');
            return names;
        };
        throw UserError(
            fmt::format("--resume {}: it tells {} apart, and {} has {}; give images of the same classes, or "
                        "begin another "
                        "run by --from {}",
                        options_.resume, in_a_line(saved->second), options_.images.directory,
                        in_a_line(classes_), options_.resume));
    }

    DataPlace place_at(std::int64_t step) const override {
        return data_->training->place_at(static_cast<std::uint64_t>(step));
    }
    std::string go_on_from(const DataPlace& place) override { return data_->training->go_on_from(place); }

    TrainedOn trained_on() const override { return TrainedOn::images(data_->split.training); }
    double trained_before(const TrainedOn& before) const override {
        return before.share_of(data_->split.validation, trained_on());
    }
    std::string split_of_before() const override {
        return data_->split.held_out && options_.held_out != "name" ? "images by --seed" : "";
    }

    const Tokenizer& tokenizer() override {
        throw UserError(
            fmt::format("--sample-every continues a text; {} is for images", data_->network.model.name));
    }

    std::string remark() const override {
        const std::set<std::string> skipped = skipped_by_all();
        if (skipped.empty()) return "";
        return fmt::format("{} could not be decoded and {} skipped", count_text(skipped.size(), "image"),
                           skipped.size() == 1 ? "was" : "were");
    }

  private:
    /// Ranks that report an image: each reads others in training, and all read the same in validation.
    enum class Said : std::uint8_t { by_each, by_the_first };

    /// Names the first few; a completely damaged set would fill the screen.
    void tell_skipped(const ImageBatches& batches, std::uint64_t steps, Said said) {
        constexpr std::uint64_t named = 10;
        for (const std::string& why : batches.take_skipped(steps)) {
            if (!skipped_.insert(why).second) continue;
            if (ranks_ && ranks_->rank() > 0 && said == Said::by_the_first) continue;
            if (++named_ <= named) warn("skipped: {}", why);
            if (named_ == named) print_error("mantissa: warning: those after it are only counted\n");
        }
    }

    /// Skipped images of all ranks, each once: two ranks may meet one in different epochs. All call it.
    std::set<std::string> skipped_by_all() const {
        if (!ranks_) return skipped_;
        std::set<std::string> all;
        for (const std::string& lines :
             ranks_->gather(fmt::format("{}", fmt::join(skipped_, std::string_view("\0", 1))))) {
            std::istringstream rest(lines);
            for (std::string line; std::getline(rest, line, '\0');) all.insert(line);
        }
        return all;
    }

    const TrainOptions& options_;
    Ranks* const ranks_;
    ImageReaderOptions reading_;
    std::unique_ptr<const ImageData> data_;
    const std::string description_ = data_->training->description();
    const std::string contents_ = data_->split.training.contents();
    const std::string classes_ = fmt::format("{}\n", fmt::join(data_->split.training.classes, "\n"));
    std::optional<ImageReader> reader_;
    std::optional<ImageScorer> scorer_;
    std::set<std::string> skipped_;  ///< reasons, each once
    std::uint64_t next_step_ = 0, named_ = 0;
};

}  // namespace

std::unique_ptr<TrainInput> open_image_input(const TrainOptions& options, const TrainerOptions& settings,
                                             int kept) {
    return std::make_unique<ImageInput>(options, settings, kept);
}

}  // namespace mantissa::cli
