#include "mantissa/data/data_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0 {

ReadingOrder::ReadingOrder(Options options)
    : options_(std::move(options)), place_{.per_step = options_.per_step} {}

std::uint64_t ReadingOrder::per_epoch() const {
    if (!options_.in_whole_steps) return options_.examples;
    return std::max<std::uint64_t>(1, options_.examples / place_.per_step) * place_.per_step;
}

DataPlace ReadingOrder::place_at(std::uint64_t step) const {
    return {.step = step,
            .examples = number_of(step, 0),
            .per_step = place_.per_step,
            .per_epoch = per_epoch(),
            .epoch = options_.epoch};
}

std::string ReadingOrder::go_on_from(const DataPlace& place) {
    place_ = {.step = place.step, .examples = place.examples, .per_step = place.per_step};
    if (place_.per_step == 0) place_.per_step = options_.per_step;
    if (place.epoch.empty() || place.epoch == options_.epoch) return "";
    place_.per_step = options_.per_step;
    const std::uint64_t before = place.per_epoch > 0 ? place.per_epoch : options_.examples;
    place_.examples = ceil_div(place.examples, before) * per_epoch();
    return fmt::format("an epoch was {} and is {} now, so a new one begins", place.epoch, options_.epoch);
}

}  // namespace mantissa
