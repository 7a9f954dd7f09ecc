// The order of axes in which attention's heads lie in a tensor, as AttentionTensor's word says it. The heads
// are made from the tensor, or the tensor from them, by reshapes, transpositions and cuts into equal parts.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "mantissa/graph/graph.h"
#include "mantissa/passes/attention/axis_map.h"

namespace mantissa::inline v0 {

struct StoredAxes {
    std::string axes;         ///< as in "btphd"; empty if attention cannot read or write them there
    std::int64_t parts = 1;   ///< extent of p
    std::int64_t index = 0;   ///< along p
    std::string reason = {};  ///< why it cannot
};

/// Whether the node only moves elements, in a way that StoredAxesReader may follow.
bool is_followed(const Node& node);

/// Follows a tensor through movements.
class StoredAxesReader {
  public:
    explicit StoredAxesReader(const Shape& shape) : shape_(shape), map_(shape) {}

    /// On to this output of the node that reads the tensor at hand.
    void follow(const Node& node, std::int32_t output);

    /// Where the tensor at hand, whose axes are `letters` (`index` along p), lies in the first.
    StoredAxes in_first(std::string_view letters, std::int64_t index);
    /// The order of axes of the tensor at hand, where the first had the axes `letters`, without p.
    StoredAxes at_hand(std::string_view letters) const;

  private:
    /// A part of the first tensor outside of which the tensor at hand has nothing.
    struct Cut {
        AxisAtom part;
        std::int64_t index = 0;
    };
    /// Keeps part `index` of `parts` equal ones of an axis.
    void cut(int axis, std::int64_t parts, std::int64_t index);
    void slice(const Node& node);

    Shape shape_;  // of the tensor at hand
    AxisMap map_;  // of the tensor at hand, in axes of the first
    std::vector<Cut> cuts_;
    std::string reason_;
};

}  // namespace mantissa
