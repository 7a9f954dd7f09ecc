#include "mantissa/data/images.h"

#include <span>

#include "mantissa/data/image_batches.h"

namespace mantissa::inline v0 {

namespace {

ImageCut cut_of(const ImagesOptions& options) {
    const std::int64_t resize = options.resize > 0 ? options.resize : (options.image * 8 + 6) / 7;
    return {.image = options.image, .resize = resize};
}

}  // namespace

struct Images::Sets {
    ImageSplit split;
    ImageBatches training;
    ImagesOptions options;

    Sets(const std::filesystem::path& directory, const ImagesOptions& given)
        : split(open_images(directory, {.hold_out = HoldOut::by_name})),
          training(split.training, {.batches = given.batches,
                                    .cut = cut_of(given),
                                    .random_place = given.random_place,
                                    .random_flip = given.random_flip}),
          options(given) {}
};

Images::Images(const std::filesystem::path& directory, const ImagesOptions& options)
    : sets_(new Sets(directory, options)) {}

Images::~Images() = default;
Images::Images(Images&&) noexcept = default;

const std::vector<std::string>& Images::classes() const { return sets_->split.training.classes; }

const BatchSource& Images::training() const { return sets_->training; }

Images::HeldOut Images::held_out() const {
    using Use = ImageBatchOptions::Use;
    const ImageSet& set = sets_->split.validation;
    const ImageBatches all(set,
                           {.batches = {.batch = 1}, .cut = cut_of(sets_->options), .use = Use::validation});
    const auto values = static_cast<std::size_t>(all.values_per_row());
    HeldOut held{.pixels = std::vector<float>(set.count() * values), .classes = {}};
    for (std::uint64_t i = 0; i < set.count(); ++i)
        held.classes.push_back(
            all.fill_row(i, 0, std::span(held.pixels).subspan(static_cast<std::size_t>(i) * values, values)));
    return held;
}

}  // namespace mantissa
