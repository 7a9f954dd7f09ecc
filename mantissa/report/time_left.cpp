#include "mantissa/report/time_left.h"

#include <algorithm>

namespace mantissa::inline v0 {

void TimeLeft::took(std::size_t part, double seconds) {
    Part& ran = parts_[part];
    ran.spent += seconds;
    ++ran.done;
    --ran.left;
}

bool TimeLeft::is_measured() const {
    return std::ranges::any_of(parts_, [](const Part& part) { return part.done > 0; });
}

double TimeLeft::seconds() const {
    double spent = 0, estimated = 0;
    for (const Part& part : parts_) {
        spent += part.spent;
        estimated += static_cast<double>(part.done) * part.estimate;
    }
    const double factor = estimated > 0 ? spent / estimated : 1;
    double left = 0;
    for (const Part& part : parts_)
        left += static_cast<double>(part.left) *
                (part.done > 0 ? part.spent / static_cast<double>(part.done) : factor * part.estimate);
    return left;
}

}  // namespace mantissa
