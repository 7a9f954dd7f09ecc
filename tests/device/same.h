// Whether a constant of ours is NVIDIA's, where a header of theirs is installed.
#pragma once

namespace mantissa::testing {

template <class Ours, class Theirs>
constexpr bool same(Ours ours, Theirs theirs) {
    return static_cast<long>(ours) == static_cast<long>(theirs);
}

}  // namespace mantissa::testing
