// The range of the ids that a model is given: rows of tables, and classes. It is read off the trace and
// checked on the host, since kernels that are fused, or run on a GPU, compare ids and refuse none.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "mantissa/data/batch.h"
#include "mantissa/graph/graph.h"

namespace mantissa::inline v0 {

struct IdRange {
    std::string input = {};
    std::int64_t limit = 0;                    ///< ids are below it
    bool may_be_negative = false;              ///< a target below 0 is none
    std::optional<std::int64_t> ignored = {};  ///< an id besides, which is put aside before
    bool is_target = false;                    ///< of a cross-entropy; else ids of an embedding
};

/// Those of the inputs of a traced forward pass that name rows or classes.
std::vector<IdRange> id_ranges(const Graph& traced);

/// Throws UserError, naming what is asked of the id and its position, for one out of its range.
void check_ids(const std::vector<IdRange>& ranges, const nn::Model& model, const Batch& batch);

}  // namespace mantissa
