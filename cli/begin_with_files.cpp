#include "cli/begin_with_files.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "mantissa/runtime/state_block.h"
#include "mantissa/train/model_file.h"
#include "mantissa/train/weights.h"

namespace mantissa::cli {

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
    std::string why;  // the head is made anew; empty: it is kept
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
    return fmt::format("{}; the head for {} classes, {}, is made anew: {}", begun(options),
                       network.sizes.classes,
                       fmt::join(nn::head_of(network.model.name, network.sizes), " and "), why);
}

}  // namespace mantissa::cli
