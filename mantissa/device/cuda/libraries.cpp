#include "mantissa/device/cuda/libraries.h"

#include "mantissa/device/cuda/emulator/emulated_gpu.h"

namespace mantissa::inline v0::cuda {

OrReason<Libraries> find_libraries() {
    if (const auto asked = emulated_gpu_asked()) {
        const EmulatedGpu gpu(*asked);
        return Libraries{gpu.driver(), gpu.cublaslt(), gpu.cudnn()};
    }
    OrReason<Driver> driver = load_driver();
    if (!driver) return NoValue{driver.reason()};
    OrReason<CublasLt> blas = load_cublaslt("libcublasLt.so.13");
    if (!blas) blas = load_cublaslt("libcublasLt.so.12");
    if (!blas) return NoValue{blas.reason()};
    return Libraries{std::move(*driver), std::move(*blas), load_cudnn("libcudnn.so.9")};
}

}  // namespace mantissa::cuda
