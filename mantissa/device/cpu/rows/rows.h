// The row kernels that stay by hand, as pure functions of a problem. They know nothing of graphs. Rotary
// positions and embedding read and write elsewhere than at the element that a nest is at; movement computes
// nothing; sums of squares and running sums are made in FP64; the mean of cross-entropy follows its nest, and
// the softmax of kept keys has rows of any length. Sums over rows share their body with sums over pixels. Of
// the gradients of GELU, layer norm and cross-entropy compiled code was slower (bench/kernels.cpp).
//
// Each runs on all threads of the pool and gives the same bits for any number of them and at every level.
// Memory is the caller's: nothing is allocated. Sizes below 1, missing pointers, types that are not F32, BF16
// or F16, and partial overlap of an output with an input throw InternalError naming the kernel.
#pragma once

#include <span>

#include "mantissa/base/thread_pool.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/rows/kernel_table.h"
#include "mantissa/device/cpu/rows/problems.h"

namespace mantissa::inline v0::on_cpu {

/// The table of a level. AMX has nothing for rows: it uses AVX-512's. Where the CPU has AVX512_BF16, results
/// are rounded by its instruction, to the same bits.
const RowKernels& row_kernels(Isa isa = chosen_isa());

/// Bytes of workspace that layer_norm_grad needs.
std::int64_t layer_norm_grad_workspace(std::int64_t rows, std::int64_t channels);
void layer_norm_grad(const RowKernels&, const LayerNormGrad&, ThreadPool&, Stores = Stores::automatic);

void gelu_grad(const RowKernels&, const GeluGrad&, ThreadPool&, Stores = Stores::automatic);

void rotary(const RowKernels&, const Rotary&, ThreadPool&, Stores = Stores::automatic);

/// Throws UserError naming the row and the value if a target is outside [0, classes).
void cross_entropy(const RowKernels&, const CrossEntropy&, ThreadPool&);
void cross_entropy_grad(const RowKernels&, const CrossEntropyGrad&, ThreadPool&, Stores = Stores::automatic);

/// The mean of the losses of rows, added in FP64.
float mean_of(const float* values, std::int64_t count);

/// The targets that a loss may be given.
struct TargetRange {
    std::int64_t classes = 0;
    bool ignore_negative = false;
};

/// Throws UserError naming the first target outside [0, classes) that is not ignored, as the two above do.
void check_targets(const char* kernel, const std::int32_t* targets, std::int64_t rows, TargetRange range);

/// Throws UserError naming the token's position and the value if an id is outside [0, vocabulary).
void embedding(const RowKernels&, const Embedding&, ThreadPool&, Stores = Stores::automatic);
void embedding_grad(const RowKernels&, const EmbeddingGrad&, ThreadPool&, Stores = Stores::automatic);
/// Bytes of workspace that embedding_grad needs.
std::int64_t embedding_grad_workspace(std::int64_t tokens, std::int64_t vocabulary);

struct SquaredNormResult {
    double sum = 0;       ///< of squares; squares of FP32 numbers cannot overflow it
    bool finite = false;  ///< whether every element is
};
/// Elements of a block, whose squares are added up in their order. A tree adds the sums of blocks. So one
/// caller can sum some of the blocks, and another the rest.
inline constexpr std::int64_t norm_block = 1024;
std::int64_t squared_norm_workspace(std::int64_t count);
SquaredNormResult squared_norm(const RowKernels&, const SquaredNorm&, ThreadPool&);
/// The two halves of it: the sum of each block into the workspace; and of such sums, which are overwritten
/// and of which there is one or more, over the tree.
void block_norms(const RowKernels&, const SquaredNorm&, ThreadPool&);
SquaredNormResult sum_of_block_norms(std::span<double> norms);

std::int64_t column_sum_workspace(std::int64_t rows, std::int64_t channels);
void column_sum(const RowKernels&, const ColumnSum&, ThreadPool&);

/// Adds in FP64, and rounds each sum once.
void running_sums(const RowKernels&, const RunningSums&, ThreadPool&, Stores = Stores::automatic);

void copy(const RowKernels&, const Copy&, ThreadPool&, Stores = Stores::automatic);
void copy_rows(const RowKernels&, const CopyRows&, ThreadPool&, Stores = Stores::automatic);
/// Throws InternalError if `axes` is no permutation of 0 ... rank - 1.
void permute(const RowKernels&, const Permute&, ThreadPool&, Stores = Stores::automatic);

/// Over images.
void max_pool(const RowKernels&, const MaxPool&, ThreadPool&, Stores = Stores::automatic);
void max_pool_grad(const RowKernels&, const MaxPoolGrad&, ThreadPool&, Stores = Stores::automatic);
void average_pool(const RowKernels&, const AveragePool&, ThreadPool&, Stores = Stores::automatic);
void average_pool_grad(const RowKernels&, const AveragePoolGrad&, ThreadPool&, Stores = Stores::automatic);

/// Reads x once from memory. The variance of a block of rows is that of its centered values, which are then
/// in a cache. Blocks are joined by their means, in FP64 and in order (Chan, Golub, LeVeque 1979).
std::int64_t moments_workspace(std::int64_t rows, std::int64_t channels);
void moments(const RowKernels&, const Moments&, ThreadPool&);

void normalize(const RowKernels&, const Normalize&, ThreadPool&, Stores = Stores::automatic);

/// Reads dy and x twice: for the sums, and with them for dx.
std::int64_t batch_norm_grad_workspace(std::int64_t rows, std::int64_t channels);
void batch_norm_grad(const RowKernels&, const BatchNormGrad&, ThreadPool&, Stores = Stores::automatic);

}  // namespace mantissa::on_cpu
