#include "cli/training_data.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/base/printable.h"
#include "mantissa/data/synthetic_images.h"
#include "mantissa/runtime/state_block.h"
#include "mantissa/train/model_file.h"

namespace mantissa::cli {

TrainingData open_training_data(const RunOptions& options, const nn::Model& model, std::int64_t batch,
                                CorpusOptions::Untokenized untokenized) {
    TrainingData data{.model = model};
    if (nn::is_image_model(options.model)) {
        data.made =
            std::make_unique<SyntheticImages>(nn::image_sizes(options.model, options.images), options.seed);
        data.description = data.made->description();
    } else {
        data.corpus = std::make_unique<Corpus>(open_corpus(options, untokenized));
        data.description = data.corpus->description;
        data.made =
            text_batches(*data.corpus, data.corpus->stream.all(), model.units_per_example, {.batch = batch});
    }
    data.batches = data.made.get();
    return data;
}

TrainingData open_training_data(const RunOptions& options, const ImageDataOptions& images, std::int64_t batch,
                                HoldOut hold_out) {
    if (images.directory.empty())
        return open_training_data(options, model_to_train(options), batch, CorpusOptions::Untokenized::bytes);
    TrainingData data;
    data.images = open_image_data(
        images, options, {.batch = batch, .order = BatchOrder::random, .seed = options.seed}, hold_out);
    data.model = data.images->network.model;
    data.description = data.images->description;
    data.batches = data.images->training.get();
    return data;
}

void begin_with_files(const RunOptions& options, const TrainingData& data, StateBlock& weights) {
    if (data.images) {
        begin_with_files(options, data.images->network, &data.images->split.training.classes, weights);
    } else if (const auto network = image_network(options)) {
        begin_with_files(options, *network, nullptr, weights);
    } else {
        begin_with_files(options, weights);
    }
}

namespace {

std::string begun(const RunOptions& options) {
    return fmt::format("begun with the weights of {}", options.from);
}

}  // namespace

std::string begin_with_files(const RunOptions& options, StateBlock& weights) {
    ModelFile(options.from).load(weights);
    return begun(options);
}

std::string begin_with_files(const RunOptions& options, const nn::ImageModel& network,
                             const std::vector<std::string>* classes, StateBlock& weights) {
    std::string why;  // why the head is made anew; empty: it is kept
    if (const ImageModelFile* file = options.from_images.get()) {
        const std::int64_t there = file->network().sizes.classes;
        if (there != network.sizes.classes)
            why = fmt::format("that network tells {} apart", there);
        else if (classes && file->classes() != *classes)
            why = "those of that network have other names";
        why.empty() ? file->load(weights) : file->load_trunk(weights);
    } else if (load_weights(network.model, options.from, weights, Match::by_name).count() > 0) {
        load_trunk(network, options.from, weights);
        why = "the file has none, or one for other classes";
    }
    if (why.empty()) return begun(options);
    return fmt::format("{}; the head for {}, {}, is made anew: {}", begun(options),
                       count_text(network.sizes.classes, "class", "classes"),
                       fmt::join(nn::head_of(network.model.name, network.sizes), " and "), why);
}

}  // namespace mantissa::cli
