// How far a run has read its data: in examples and not in steps, so that it goes on there with steps of
// another size.
#pragma once

#include <cstdint>
#include <string>

namespace mantissa::inline v0 {

struct DataPlace {
    std::uint64_t step = 0;       ///< that comes next
    std::uint64_t examples = 0;   ///< windows of a text, pictures: read before it, from the first epoch on
    std::uint64_t per_step = 0;   ///< examples of a step when the run began
    std::uint64_t per_epoch = 0;  ///< 0: not known
    /// What an epoch is, in words that are equal where its examples and their order are; empty: not known.
    std::string epoch = {};

    bool operator==(const DataPlace&) const = default;
};

/// The examples of a source, numbered in the order in which a run reads them.
class ReadingOrder {
  public:
    struct Options {
        std::uint64_t examples = 1;  ///< that there are
        std::uint64_t per_step = 1;
        /// An epoch is as many whole steps, of the size that the run began with, as there are examples for.
        bool in_whole_steps = false;
        std::string epoch = {};  ///< as DataPlace::epoch
    };

    ReadingOrder() = default;
    explicit ReadingOrder(Options options);

    /// The number of example `within` of a step, counted on over all epochs.
    std::uint64_t number_of(std::uint64_t step, std::uint64_t within) const {
        return place_.examples + (step - place_.step) * options_.per_step + within;
    }
    std::uint64_t per_epoch() const;
    DataPlace place_at(std::uint64_t step) const;

    /// Steps from the place's on take what follows on it; where an epoch is another now, they begin the next
    /// one. Returns that in words; empty: they go on in the same.
    std::string go_on_from(const DataPlace& place);

  private:
    Options options_;
    DataPlace place_{.per_step = 1};
};

}  // namespace mantissa
