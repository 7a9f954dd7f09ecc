#include "mantissa/data/pictures.h"

#include <algorithm>
#include <span>

#include "mantissa/data/picture_batches.h"

namespace mantissa::inline v0 {

namespace {

PictureCut cut_of(const PicturesOptions& options) {
    const std::int64_t resize = options.resize > 0 ? options.resize : (options.image * 8 + 6) / 7;
    return {.image = options.image, .resize = resize};
}

}  // namespace

struct Pictures::Sets {
    PictureSplit split;
    PictureBatches training;
    PicturesOptions options;

    Sets(const std::filesystem::path& directory, const PicturesOptions& given)
        : split(open_pictures(directory, {.hold_out = true, .seed = given.hold_out_seed})),
          training(split.training, {.batches = given.batches,
                                    .cut = cut_of(given),
                                    .random_place = given.random_place,
                                    .random_flip = given.random_flip}),
          options(given) {}
};

Pictures::Pictures(const std::filesystem::path& directory, const PicturesOptions& options)
    : sets_(new Sets(directory, options)) {}

Pictures::~Pictures() = default;
Pictures::Pictures(Pictures&&) noexcept = default;

const std::vector<std::string>& Pictures::classes() const { return sets_->split.training.classes; }

const BatchSource& Pictures::training() const { return sets_->training; }

Pictures::HeldOut Pictures::held_out() const {
    using Use = PictureBatchOptions::Use;
    const PictureSet& set = sets_->split.validation;
    const PictureBatches all(
        set, {.batches = {.batch = 1}, .cut = cut_of(sets_->options), .use = Use::validation});
    const auto values = static_cast<std::size_t>(all.values_per_row());
    HeldOut held{.pixels = std::vector<float>(set.count() * values), .classes = {}};
    for (std::uint64_t i = 0; i < set.count(); ++i)
        held.classes.push_back(
            all.fill_row(i, 0, std::span(held.pixels).subspan(static_cast<std::size_t>(i) * values, values)));
    return held;
}

}  // namespace mantissa
