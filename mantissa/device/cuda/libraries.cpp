#include "mantissa/device/cuda/libraries.h"

namespace mantissa::inline v0::cuda {

Expected<Libraries> find_libraries(Alone alone) {
    Expected<Driver> driver = load_driver();
    if (!driver) return Unexpected{driver.reason()};
    Expected<CublasLt> blas = load_cublaslt("libcublasLt.so.13");
    if (!blas) blas = load_cublaslt("libcublasLt.so.12");
    if (!blas) return Unexpected{blas.reason()};
    Libraries found{std::move(*driver), std::move(*blas), load_cudnn("libcudnn.so.9")};
    if (alone == Alone::yes) return found;
    Expected<Nccl> nccl = load_nccl();
    if (!nccl) return Unexpected{nccl.reason()};
    found.nccl = std::move(*nccl);
    return found;
}

}  // namespace mantissa::cuda
