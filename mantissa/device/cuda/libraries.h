// NVIDIA's libraries that a program needs to use a GPU: the driver, and cuBLASLt; cuDNN, where it convolves;
// and, as one of several ranks, NCCL.
#pragma once

#include <optional>

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/cuda/cudnn.h"
#include "mantissa/device/cuda/driver.h"
#include "mantissa/device/cuda/nccl.h"

namespace mantissa::inline v0::cuda {

struct Libraries {
    Driver driver;
    CublasLt blas;
    /// Or the reason why there is none: then convolutions run by kernels of our own.
    Expected<Cudnn> dnn = Unexpected{"cuDNN was not looked for"};
    std::optional<Nccl> nccl = {};
};

enum class Alone : bool { no, yes };

/// The machine's, or one line that names the missing one. NCCL is looked for where the program is not alone.
Expected<Libraries> find_libraries(Alone alone = Alone::yes);

}  // namespace mantissa::cuda
