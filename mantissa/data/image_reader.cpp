#include "mantissa/data/image_reader.h"

#include <condition_variable>
#include <exception>
#include <thread>
#include <vector>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

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
