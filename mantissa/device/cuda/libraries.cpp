#include "mantissa/device/cuda/libraries.h"

namespace mantissa::inline v0::cuda {

OrReason<Libraries> find_libraries(Alone alone) {
    OrReason<Driver> driver = load_driver();
    if (!driver) return NoValue{driver.reason()};
    OrReason<CublasLt> blas = load_cublaslt("libcublasLt.so.13");
    if (!blas) blas = load_cublaslt("libcublasLt.so.12");
    if (!blas) return NoValue{blas.reason()};
    Libraries found{std::move(*driver), std::move(*blas), load_cudnn("libcudnn.so.9")};
    if (alone == Alone::yes) return found;
    OrReason<Nccl> nccl = load_nccl();
    if (!nccl) return NoValue{nccl.reason()};
    found.nccl = std::move(*nccl);
    return found;
}

}  // namespace mantissa::cuda
