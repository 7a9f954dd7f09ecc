// `mantissa predict`: classifies images with a network trained by train --images.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/commands.h"
#include "cli/output_file.h"
#include "cli/print_error.h"
#include "cli/run_options.h"
#include "mantissa/base/error.h"
#include "mantissa/base/printable.h"
#include "mantissa/data/image_batches.h"
#include "mantissa/data/image_folders.h"
#include "mantissa/report/report.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/image_model_file.h"
#include "mantissa/train/image_scores.h"
#include "mantissa/train/perplexity.h"
#include "mantissa/train/predictor.h"

namespace mantissa::cli {

namespace {

struct PredictCommand {
    RunOptions run;  // device, threads, policy, json, quiet
    std::string checkpoint, csv;
    std::vector<std::string> images;
    std::int64_t top = 5, batch = 32;
};

struct Guess {
    std::size_t label = 0;
    double probability = 0;
};

struct Predicted {
    std::string image;
    std::int32_t label = unknown_class;
    std::vector<Guess> guesses;  ///< the likeliest first
};

/// The likeliest classes by softmax.
std::vector<Guess> guesses_of(std::span<const double> logits, std::int64_t top) {
    const double highest = *std::ranges::max_element(logits);
    double sum = 0;
    for (const double logit : logits) sum += std::exp(logit - highest);
    std::vector<Guess> all(logits.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = {i, std::exp(logits[i] - highest) / sum};
    const auto few = std::min(all.size(), static_cast<std::size_t>(top));
    // A score that is NaN comes last, so that it hides nothing.
    const auto is_before = [](const Guess& a, const Guess& b) {
        if (std::isnan(a.probability) || std::isnan(b.probability)) return !std::isnan(a.probability);
        return a.probability != b.probability ? a.probability > b.probability : a.label < b.label;
    };
    std::ranges::stable_sort(all, is_before);
    all.resize(few);
    return all;
}

void validate(const PredictCommand& options) {
    if (options.checkpoint.empty())
        throw UserError("--checkpoint DIR is missing: which network, trained by train --images?");
    if (options.images.empty())
        throw UserError("predict needs an image, or a folder of them: predict --checkpoint DIR IMAGE");
}

/// Reads images ahead, predicts them, and shows each result at once.
class Prediction {
  public:
    Prediction(const PredictCommand& options, const ImageModelFile& file, const ImageSet& set,
               Predictor& predictor)
        : options_(options), file_(file), set_(set), predictor_(predictor) {
        for (const std::string& name : set.files) widest_ = std::max(widest_, name.size());
    }

    void run() {
        const auto batch = static_cast<std::uint64_t>(
            std::min<std::int64_t>(options_.batch, static_cast<std::int64_t>(set_.count())));
        const ImageBatches batches(set_, {.batches = {.batch = static_cast<std::int64_t>(batch)},
                                          .cut = file_.cut(),
                                          .use = ImageBatchOptions::Use::validation,
                                          .bad = BadImage::skip});
        ImageReader reader(batches, {.end = batches.steps_per_epoch()});
        for (std::uint64_t first = 0; first < set_.count(); first += batch) {
            const Batch read = reader.next();
            add(read, first, std::min(batch, set_.count() - first));
            for (const std::string& why : batches.take_skipped(first / batch + 1)) {
                warn("{}", why);
                damaged_.push_back(why);
            }
        }
    }

    std::string summary() const {
        if (scores_.images == 0) return "";
        return fmt::format(
            "top-1 {:.2f} %{} of {} in folders named like classes\n", 100 * scores_.top1_share(),
            scores_.has_top5() ? fmt::format(", top-5 {:.2f} %", 100 * scores_.top5_share()) : "",
            count_text(scores_.images, "image"));
    }

    std::string json(const Policy& policy) const {
        Table images{{"image", "folder_class", "top"}};
        for (const Predicted& each : predicted_) {
            Table top{{"class", "probability"}};
            for (const Guess& guess : each.guesses) top.add(name_of(guess.label), guess.probability);
            images.add(each.image, or_null(folder_class(each)), top);
        }
        Fields fields{{"model", file_.network().model.name},
                      {"policy", policy.name},
                      {"images", images},
                      {"damaged", damaged_}};
        if (scores_.images > 0)
            fields.push_back(
                {"scores", Fields{{"images", scores_.images},
                                  {"top1", scores_.top1_share()},
                                  {"top5", scores_.has_top5() ? Datum(scores_.top5_share()) : nullptr},
                                  {"loss", scores_.loss()}}});
        return json_of("predict", std::move(fields));
    }

    std::string csv() const {
        const auto guesses = predicted_.empty() ? 0 : predicted_.front().guesses.size();
        std::string text = "image,folder_class";
        for (std::size_t i = 1; i <= guesses; ++i) text += fmt::format(",class_{0},probability_{0}", i);
        text += "\n";
        for (const Predicted& each : predicted_) {
            text += field(each.image) + "," + field(folder_class(each));
            for (const Guess& guess : each.guesses)
                text += fmt::format(",{},{:.6g}", field(name_of(guess.label)), guess.probability);
            text += "\n";
        }
        return text;
    }

    /// Why the predictions are invalid; empty: they are valid.
    std::string failure(const Policy& policy) const {
        if (not_finite_ == 0) return "";
        return fmt::format("the scores of {} of {} are no numbers under {}: {}", not_finite_,
                           count_text(predicted_.size(), "image"), policy.name, why_not_finite(policy.name));
    }
    std::size_t damaged() const { return damaged_.size(); }
    std::string damaged_text() const {
        if (!predicted_.empty())
            return fmt::format("{} of {} could not be decoded; the others were predicted", damaged_.size(),
                               count_text(set_.count(), "image"));
        return set_.count() == 1
                   ? "the image could not be decoded, so nothing was predicted"
                   : fmt::format("none of the {} images could be decoded, so nothing was predicted",
                                 set_.count());
    }

  private:
    const std::string& name_of(std::size_t label) const { return file_.classes()[label]; }
    /// Empty if the folder has no class's name.
    std::string folder_class(const Predicted& each) const {
        return each.label < 0 ? "" : name_of(static_cast<std::size_t>(each.label));
    }
    /// A field of a CSV file (RFC 4180).
    static std::string field(const std::string& text) {
        if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
        std::string quoted = "\"";
        for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
        return quoted + "\"";
    }

    void add(const Batch& read, std::uint64_t first, std::uint64_t count) {
        const auto row = static_cast<std::size_t>(3 * file_.cut().image * file_.cut().image) * sizeof(float);
        const std::vector<float> logits = predictor_.predict(
            {HostValues(DType::f32, read.values()[0].bytes.first(static_cast<std::size_t>(count) * row))});
        const auto* const labels = reinterpret_cast<const std::int32_t*>(read.values()[1].bytes.data());
        const auto classes = static_cast<std::size_t>(predictor_.values_per_example());
        for (std::size_t i = 0; i < count; ++i) {
            if (labels[i] == ImageBatches::no_class) continue;  // damaged
            const std::vector<double> scores(logits.begin() + static_cast<std::ptrdiff_t>(i * classes),
                                             logits.begin() + static_cast<std::ptrdiff_t>((i + 1) * classes));
            if (!std::ranges::all_of(scores, [](double score) { return std::isfinite(score); }))
                ++not_finite_;
            if (labels[i] >= 0) scores_.add(scores, labels[i]);
            predicted_.push_back({set_.name(first + i), labels[i], guesses_of(scores, options_.top)});
            show(predicted_.back());
        }
    }

    void show(const Predicted& predicted) const {
        std::string line = fmt::format("{:<{}}", printable(predicted.image), widest_);
        for (const Guess& guess : predicted.guesses)
            line += fmt::format("  {} {:.2f} %", printable(name_of(guess.label)), 100 * guess.probability);
        fmt::print("{}\n", line);
    }

    const PredictCommand& options_;
    const ImageModelFile& file_;
    const ImageSet& set_;
    Predictor& predictor_;
    std::size_t widest_ = 0;
    std::vector<Predicted> predicted_;
    std::vector<std::string> damaged_;
    ImageScores scores_;
    std::size_t not_finite_ = 0;  ///< images with a score that is not finite
};

void run(const PredictCommand& options) {
    validate(options);
    const ImageModelFile file(options.checkpoint);
    if (!file.warning().empty()) warn("{}", file.warning());
    const ImagesToPredict found = images_to_predict(options.images, file.classes());
    const ImageSet& set = found.set;
    const auto device = open_device(options.run);
    const Policy policy = policy_for(options.run, device->target());
    const nn::Model& model = file.network().model;
    const auto images = static_cast<std::int64_t>(set.count());
    Predictor predictor(*device, model,
                        {.policy = policy, .batch = std::min<std::int64_t>(options.batch, images)});
    StateBlock weights(*device, predictor.parameters());
    file.load(weights);
    predictor.bind(weights);
    if (!options.run.quiet)
        print_error(fmt::format("{}: {} of {}; policy {}; {}\n", options.checkpoint, model.name,
                                count_text(file.network().sizes.classes, "class", "classes"), policy.name,
                                device_text(device->target())));
    if (!found.left_out.empty()) say("left out: {}", found.left_out);
    Prediction prediction(options, file, set, predictor);
    prediction.run();
    fmt::print("{}", prediction.summary());
    write_output(options.run.json, prediction.json(policy));
    write_output(options.csv, prediction.csv());
    if (const std::string failure = prediction.failure(policy); !failure.empty()) throw UserError(failure);
    if (prediction.damaged() > 0) throw UserError(prediction.damaged_text());
}

}  // namespace

void add_predict_command(CLI::App& app) {
    const auto options = std::make_shared<PredictCommand>();
    Command& command = Command::in(app, "predict", "Name what is on images, with a trained network");
    command.add("Options",
                {Row("images", &options->images, "JPEG or PNG files, or folders with all that they hold",
                     {.type = "IMAGE|DIR"}),
                 Row("--checkpoint", &options->checkpoint,
                     "Directory of the network, written by train --images", {.type = "DIR"}),
                 Row("--top", &options->top, "Classes to name for each image, likeliest first",
                     {.range = {1, "1 class or more"}}),
                 Row("--batch", &options->batch, "Images that are computed at a time",
                     {.range = {1, "1 image or more"}}),
                 policy_option(options->run)});
    add_machine_options(command, options->run);
    command.add("Reports",
                {Row("--csv", &options->csv,
                     "Write a line for each image: image, folder_class, class_1, probability_1 ...",
                     {.type = "FILE", .writes_file = true}),
                 quiet_option(options->run.quiet, "Print the predictions alone")});
    command.does([options] { run(*options); });
}

}  // namespace mantissa::cli
