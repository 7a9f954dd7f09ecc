// Computations that a device makes as one nest: a composite by its definition, an element-wise operation, a
// reduction; or why one is no nest.
#pragma once

#include "mantissa/base/expected.h"
#include "mantissa/device/device.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/nest.h"

namespace mantissa::inline v0 {

struct NestBody {
    Graph graph;
    Nest nest;
};

/// The nest of a graph of primitives, whose results a kernel can write.
Expected<NestBody> nest_of_body(Graph body);

/// The same of a graph with composites, in primitives.
Expected<NestBody> nest_of_definition(const Graph& definition);

/// The computation of an operation, in primitives.
Expected<NestBody> nest_of_operation(const Problem& problem);

}  // namespace mantissa
