// cuBLASLt's checks, what it takes and refuses, with no GPU and no library: for plans that are made and not
// run, unless somebody runs the products. What is not planned for is refused as not supported.
#pragma once

#include <functional>

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/cuda/planned/matmul_job.h"

namespace mantissa::inline v0::cuda {

/// Runs a product in its order on a stream.
using RunMatmul = std::function<Result(Stream stream, const MatmulJob& job)>;

/// Not safe to be called by two threads. `max_offered`: algorithms for a product.
CublasLt make_planned_cublaslt(RunMatmul run, int max_offered = 1);

}  // namespace mantissa::cuda
