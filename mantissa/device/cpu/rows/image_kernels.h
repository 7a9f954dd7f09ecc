// Kernels over images: a table of serial functions per instruction-set level, and the drivers that run them
// on all threads. As rows.h says of its own: the same bits for any number of threads and at every level,
// memory is the caller's, and what does not fit throws InternalError naming the kernel.
#pragma once

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/rows/image_table.h"

namespace mantissa::inline v0::on_cpu {

/// The best for a CPU of this level.
const ImageKernels& image_kernels(Isa);

void max_pool(const ImageKernels&, const MaxPool&, ThreadPool&, Stores = Stores::automatic);
void max_pool_grad(const ImageKernels&, const MaxPoolGrad&, ThreadPool&, Stores = Stores::automatic);
void average_pool(const ImageKernels&, const AveragePool&, ThreadPool&, Stores = Stores::automatic);
void average_pool_grad(const ImageKernels&, const AveragePoolGrad&, ThreadPool&, Stores = Stores::automatic);

void relu_grad(const ImageKernels&, const ReluGrad&, ThreadPool&, Stores = Stores::automatic);

/// Reads x once from memory. The variance of a block of rows is that of its centered values, which are then
/// in a cache. Blocks are joined by their means, in FP64 and in order (Chan, Golub, LeVeque 1979).
std::int64_t moments_workspace(std::int64_t rows, std::int64_t channels);
void moments(const ImageKernels&, const Moments&, ThreadPool&);

void normalize(const ImageKernels&, const Normalize&, ThreadPool&, Stores = Stores::automatic);

/// Reads dy and x twice: for the sums, and with them for dx.
std::int64_t batch_norm_grad_workspace(std::int64_t rows, std::int64_t channels);
void batch_norm_grad(const ImageKernels&, const BatchNormGrad&, ThreadPool&, Stores = Stores::automatic);

}  // namespace mantissa::on_cpu
