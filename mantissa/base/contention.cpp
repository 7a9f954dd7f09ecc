#include "mantissa/base/contention.h"

#include <algorithm>

namespace mantissa::inline v0 {

bool Contention::is_due(Duration loop) {
    since_ += loop;
    return since_ >= (threads_ < cores_ && !trying_ ? rest_ : window);
}

void Contention::judge(Duration taken) {
    const bool disturbed = threads_ > 1 && taken * threads_ > since_;
    since_ = {};
    if (disturbed) {
        // A thread that was tried in vain is tried again later and later.
        rest_ = trying_ ? std::min(2 * rest_, max_rest) : min_rest;
        --threads_;
    }
    trying_ = !disturbed && threads_ < cores_;
    if (trying_) ++threads_;
}

}  // namespace mantissa
