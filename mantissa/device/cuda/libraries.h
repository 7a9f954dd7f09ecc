// What a program needs of NVIDIA's to use a GPU: the driver, and cuBLASLt; and cuDNN, where it convolves.
#pragma once

#include "mantissa/device/cuda/cublaslt.h"
#include "mantissa/device/cuda/cudnn.h"
#include "mantissa/device/cuda/driver.h"

namespace mantissa::inline v0::cuda {

struct Libraries {
    Driver driver;
    CublasLt blas;
    /// Or why there is none: then convolutions run by kernels of our own.
    OrReason<Cudnn> dnn = NoValue{"cuDNN was not looked for"};
};

/// All emulated where MANTISSA_EMULATE_GPU asks for it (UserError if that is not understood), else the
/// machine's; or one line that says what is missing.
OrReason<Libraries> find_libraries();

}  // namespace mantissa::cuda
