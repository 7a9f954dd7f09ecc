#include "mantissa/data/image_batches.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/data/permutation.h"

namespace mantissa::inline v0 {

namespace {

// Separates these random numbers from initial weights, which use hashes of names, and from dropout.
constexpr std::uint32_t of_cuts = 0x63757473;

}  // namespace

ImageBatches::ImageBatches(const ImageSet& set, const ImageBatchOptions& options)
    : set_(&set),
      options_(options),
      per_step_(static_cast<std::uint64_t>(options.batches.batch * options.batches.accumulate)),
      reading_({.examples = set.count(),
                .per_step = per_step_,
                .epoch = fmt::format("{} pictures {}", set.count(), order_text(options.batches))}) {
    check(options.batches.batch > 0 && options.batches.accumulate > 0, "batches have positive sizes");
    check(set.count() > 0, "a set has an image");
    if (options.use == ImageBatchOptions::Use::training && set.count() < per_step_)
        throw UserError(fmt::format("a step takes {} images, but there {} {} to train on; lower the batch",
                                    per_step_, set.count() == 1 ? "is" : "are", set.count()));
}

std::uint64_t ImageBatches::steps_per_epoch() const {
    const bool all = options_.use == ImageBatchOptions::Use::validation;
    return (set_->count() + (all ? per_step_ - 1 : 0)) / per_step_;
}

CutPlace ImageBatches::place_of(std::uint64_t step, std::uint64_t row) const {
    if (options_.use == ImageBatchOptions::Use::validation) return {};
    const RandomStream random{
        .seed = options_.batches.seed, .step = static_cast<std::uint32_t>(step), .operation = of_cuts};
    const auto words = random.block(row);
    CutPlace place;
    if (options_.random_place) place = {.padding = options_.padding, .down = words[0], .right = words[1]};
    place.flipped = options_.random_flip && (words[2] & 1) != 0;
    return place;
}

std::int32_t ImageBatches::fill_from(std::uint64_t index, const CutPlace& place,
                                     std::span<float> pixels) const {
    cut_image(read_image(*set_, index, options_.cut.resize), options_.cut, place, pixels);
    return set_->images[index].label;
}

std::int32_t ImageBatches::fill_row(std::uint64_t step, std::uint64_t row, std::span<float> pixels) const {
    const std::uint64_t count = set_->count(), number = reading_.number_of(step, row);
    const bool validation = options_.use == ImageBatchOptions::Use::validation;
    const bool in_order = validation || options_.batches.order == BatchOrder::sequential;
    for (std::uint64_t tried = 0; tried < (validation ? 1 : count); ++tried) {
        if (validation && number >= count) break;
        const std::uint64_t place = (number + tried) % count;
        const std::uint64_t index =
            in_order ? place
                     : shuffled(place, count, {.seed = options_.batches.seed, .epoch = number / count});
        if (is_bad(index, step)) continue;
        try {
            return fill_from(index, place_of(step, row), pixels);
        } catch (const UserError& error) {
            if (options_.bad == BadImage::stop) throw;
            skip(index, step, error.what());
        }
    }
    if (!validation) {
        const std::lock_guard lock(mutex_);
        throw UserError(fmt::format("none of the {} images can be decoded; the first: {}", count,
                                    skipped_.begin()->second.why));
    }
    std::fill(pixels.begin(), pixels.end(), 0.0f);
    return no_class;
}

void ImageBatches::fill(std::uint64_t step, std::int64_t micro_batch,
                        std::span<const std::span<std::byte>> inputs) const {
    check(inputs.size() == 2, "a network for images takes images and their classes");
    const std::span pixels(reinterpret_cast<float*>(inputs[0].data()), inputs[0].size() / sizeof(float));
    const std::span classes(reinterpret_cast<std::int32_t*>(inputs[1].data()),
                            inputs[1].size() / sizeof(std::int32_t));
    const auto B = static_cast<std::size_t>(options_.batches.batch),
               size = static_cast<std::size_t>(values_per_row());
    check(pixels.size() == B * size && classes.size() == B, "inputs are [B, H, W, 3] and [B]");
    for (std::size_t row = 0; row < B; ++row)
        classes[row] = fill_row(step, static_cast<std::uint64_t>(micro_batch) * B + row,
                                pixels.subspan(row * size, size));
}

// Checkpoints store and compare these words, so earlier versions' wording stays.
std::string ImageBatches::description() const {
    const ImageCut& cut = options_.cut;
    std::string text =
        fmt::format("{}, {} order, resized to {}", set_->description(),
                    options_.batches.order == BatchOrder::random ? "random" : "their", cut.resize);
    text += fmt::format(", {} x {} cut {}", cut.image, cut.image,
                        options_.random_place ? "at random places" : "out of the middle");
    if (options_.random_place && options_.padding > 0)
        text += fmt::format(" with {} of black around", options_.padding);
    if (options_.random_flip) text += ", mirrored at random";
    return text + fmt::format(", means {} deviations {}", fmt::join(cut.pixels.mean, " "),
                              fmt::join(cut.pixels.standard_deviation, " "));
}

bool ImageBatches::is_bad(std::uint64_t index, std::uint64_t step) const {
    const std::lock_guard lock(mutex_);
    const auto found = skipped_.find(index);
    if (found == skipped_.end()) return false;
    found->second.step = std::min(found->second.step, step);
    return true;
}

void ImageBatches::skip(std::uint64_t index, std::uint64_t step, const std::string& why) const {
    const std::lock_guard lock(mutex_);
    Skipped& skipped = skipped_.try_emplace(index, Skipped{why, step}).first->second;
    skipped.step = std::min(skipped.step, step);
}

std::vector<std::string> ImageBatches::take_skipped(std::uint64_t steps) const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> reasons;
    for (auto& [index, skipped] : skipped_)
        if (skipped.step < steps && !std::exchange(skipped.told, true)) reasons.push_back(skipped.why);
    return reasons;
}

namespace {

std::uint64_t rows_of(const ImageBatches& batches, const ImageReaderOptions& options) {
    return options.rows > 0 ? options.rows : batches.rows_per_step();
}

/// The inputs of one step.
struct Slot {
    std::vector<float> pixels;         // [N B, H, W, 3]
    std::vector<std::int32_t> labels;  // [N B]
    std::uint64_t made = 0;            ///< finished rows
    std::exception_ptr error = {};     ///< of the first row that failed
    std::uint64_t failed_row = 0;
};

}  // namespace

/// Rows are handed out in step order, so a ring of slots holds all steps in progress. The slots of the last
/// taken steps belong to the caller.
struct ImageReader::State {
    const ImageBatches& batches;
    const std::uint64_t first_row, rows, end_row, kept;

    std::mutex mutex = {};
    std::condition_variable_any room = {};
    std::condition_variable ready = {};
    std::vector<Slot> slots = {};
    std::uint64_t taken;                     ///< the caller's next step
    std::uint64_t next_row;                  ///< next row to make, counted over all steps
    std::vector<std::jthread> threads = {};  // last member: they stop before the other members end

    State(const ImageBatches& source, const ImageReaderOptions& options)
        : batches(source),
          first_row(options.first_row),
          rows(rows_of(source, options)),
          end_row(options.end > std::numeric_limits<std::uint64_t>::max() / rows
                      ? std::numeric_limits<std::uint64_t>::max()
                      : options.end * rows),
          kept(static_cast<std::uint64_t>(options.kept)),
          taken(options.first),
          next_row(options.first * rows) {
        check(options.threads > 0 && options.ahead > 0 && options.kept > 0,
              "somebody reads, and has room for it");
        check(first_row + rows <= source.rows_per_step(), "rows that are read are those of a step");
        slots.resize(options.ahead + options.kept);
        for (Slot& slot : slots) {
            slot.pixels.resize(static_cast<std::size_t>(rows) *
                               static_cast<std::size_t>(source.values_per_row()));
            slot.labels.resize(rows);
        }
        for (int i = 0; i < options.threads; ++i)
            threads.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }

    Slot& slot_of(std::uint64_t step) { return slots[step % slots.size()]; }

    /// The slots of the steps right before `taken` are the caller's.
    bool has_room() const { return next_row < end_row && next_row / rows + kept < taken + slots.size(); }

    void work(const std::stop_token& stop) {
        std::unique_lock lock(mutex);
        while (room.wait(lock, stop, [this] { return has_room(); }) && !stop.stop_requested()) {
            const std::uint64_t step = next_row / rows, row = next_row % rows;
            ++next_row;
            lock.unlock();
            const std::exception_ptr error = make(step, row);
            lock.lock();
            Slot& slot = slot_of(step);
            if (error && (!slot.error || row < slot.failed_row)) {
                slot.error = error;
                slot.failed_row = row;
            }
            if (++slot.made == rows) ready.notify_one();
        }
    }

    std::exception_ptr make(std::uint64_t step, std::uint64_t row) {
        Slot& slot = slot_of(step);
        const auto size = static_cast<std::size_t>(batches.values_per_row()),
                   at = static_cast<std::size_t>(row);
        try {
            slot.labels[at] =
                batches.fill_row(step, first_row + row, std::span(slot.pixels).subspan(at * size, size));
            return {};
        } catch (...) {
            return std::current_exception();
        }
    }

    Batch next() {
        std::unique_lock lock(mutex);
        check(taken * rows < end_row, "no step is taken behind the last");
        Slot& slot = slot_of(taken);
        ready.wait(lock, [&] { return slot.made == rows; });
        if (slot.error) std::rethrow_exception(slot.error);
        // The caller's oldest slot is free for the last step ahead.
        Slot& returned = slot_of(taken + slots.size() - kept);
        returned.made = 0;
        ++taken;
        lock.unlock();
        room.notify_all();
        return {slot.pixels, slot.labels};
    }
};

ImageReader::ImageReader(const ImageBatches& batches, const ImageReaderOptions& options)
    : state_(std::make_unique<State>(batches, options)) {}

ImageReader::~ImageReader() = default;

Batch ImageReader::next() { return state_->next(); }

std::int64_t ImageReader::bytes(const ImageBatches& batches, const ImageReaderOptions& options) {
    const auto pixels = static_cast<std::int64_t>(sizeof(float)) * batches.values_per_row();
    return (options.ahead + options.kept) * static_cast<std::int64_t>(rows_of(batches, options)) *
           (pixels + static_cast<std::int64_t>(sizeof(std::int32_t)));
}

}  // namespace mantissa
