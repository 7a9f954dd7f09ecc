// The loss of a linear layer's logits and its gradients, a chunk of rows at a time, so that N x V logits
// never exist. For each chunk a contraction makes logits, and its epilogue keeps their exponentials. These
// become gradients as two more contractions pack them, for dx and to add to dw. It knows nothing of graphs;
// it allocates nothing.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/device/cpu/contraction/contraction.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/numerics/dtype.h"

namespace mantissa::inline v0::on_cpu {

/// Rows whose exponentials exist at a time, unless a problem says otherwise. For BF16 and a vocabulary of
/// 50,257 they take 103 MB. Each chunk repeats the traffic of w and dw: in BF16 w is read, packed and read
/// again twice, dw read and written, 20 C V bytes beside 6 * 1,024 C V FLOP, so 300 FLOP a byte.
inline constexpr std::int64_t rows_of_loss_chunk = 1024;

/// Rows without a loss are left out in whole blocks of so many: products of other numbers of rows are
/// prepared for each multiple, and 64 fill the panels of every level.
inline constexpr std::int64_t rows_left_out = 64;

/// loss = mean over N of lse(x w^T) - (x w^T)[target]; dx and dw are its gradients times the seed. With
/// `by_rows` there are N losses, with a seed each, and a seed for the lse of each. Exponentials and gradients
/// of logits are stored as `dtype`, each rounded once from FP32; lse, losses, dw are FP32.
struct LinearCrossEntropy {
    std::int64_t rows = 0;      // N
    std::int64_t channels = 0;  // C
    std::int64_t classes = 0;   // V
    /// Rows of w and dw. Rows from `classes` on are padding: they are read and get no gradient. 0: no
    /// padding.
    std::int64_t columns = 0;
    DType dtype = DType::f32;  ///< of x, w and dx
    Multiply multiply = Multiply::as_stored;
    std::int64_t max_rows_of_chunk = rows_of_loss_chunk;
    bool gradients = false;        ///< else dx, dw and the seed mean nothing
    bool frozen = false;           ///< w is frozen: there is no dw
    bool ignore_negative = false;  ///< rows with a target below 0 have no loss and no gradient
    bool by_rows = false;          ///< no mean
    int threads = 1;               ///< that its products are cut for

    std::int64_t rows_of_w() const { return columns == 0 ? classes : columns; }
    std::int64_t element_bytes() const { return static_cast<std::int64_t>(size_of(dtype)); }
};

/// Data of one call. No output may overlap an input.
struct LinearCrossEntropyArguments {
    const void* x = nullptr;                // [N, C]
    const void* w = nullptr;                // [columns, C]
    const std::int32_t* targets = nullptr;  // [N], each in [0, V), or below 0 where such rows are ignored
    float seed = 1;
    // Seeds of losses by rows, [N]; null without gradients.
    const float* seeds = nullptr;
    const float* lse_seeds = nullptr;
    float* lse = nullptr;
    float* loss = nullptr;  // one number, or [N]
    void* dx = nullptr;     // [N, C]
    float* dw = nullptr;    // [columns, C]
};

/// Why the problem cannot be done; empty if it can.
std::string refusal(const LinearCrossEntropy& problem);

/// The division of classes: into the classes that one product makes, and these into groups. A group's
/// exponentials share a base; it reaches the epilogue in order, on one thread.
struct ClassGroups {
    std::int64_t columns = 0, product = 0, rows = 0, last_rows = 0;

    std::int64_t products() const { return ceil_div(columns, product); }
    std::int64_t rows_at(std::int64_t row) const {
        return row / product + 1 == products() ? last_rows : rows;
    }
    std::int64_t group_of(std::int64_t row) const {
        return row / product * ceil_div(product, rows) + row % product / rows_at(row);
    }
    std::int64_t begin_of(std::int64_t row) const { return row - row % product % rows_at(row); }
    std::int64_t end_of(std::int64_t row) const {
        return std::min(begin_of(row) + rows_at(row), (row / product + 1) * product);
    }
    std::int64_t groups() const { return group_of(columns - 1) + 1; }
};

/// The products of a chunk of so many tokens.
struct PreparedLossChunk {
    struct Gradients {
        PreparedContraction dx;
        std::optional<PreparedContraction> dw;        ///< of the first chunk; none: w is frozen
        std::optional<PreparedContraction> added_dw;  ///< of the other chunks, if there are any
    };

    PreparedLossChunk(const LinearCrossEntropy& problem, std::int64_t tokens, Isa isa);

    /// The product that makes the logits of some classes.
    const PreparedContraction& logits_of(std::int64_t product) const {
        return product + 1 == classes.products() ? last_logits : logits;
    }

    std::int64_t tokens;
    std::int64_t stride;  ///< elements between rows of exponentials
    PreparedContraction logits, last_logits;
    std::optional<Gradients> gradients;
    ClassGroups classes;
};

/// The beginnings of the workspace's parts. The exponentials are at its start. Sums exist as long as the
/// first product, whose own memory is before them. At the end lie copies of the kept rows, where others may
/// be left out: their order, targets, x and dx.
struct LossWorkspace {
    std::size_t bases, token_numbers, losses, contraction, sums, order, targets, x, dx, bytes;
};

struct LossKernels;

/// The loss with everything decided but the addresses, for any number of threads.
struct PreparedLinearCrossEntropy {
    LossWorkspace workspace(int threads) const;
    /// Bytes of scratch: one chunk of exponentials where there are gradients, some numbers a token and group
    /// of classes, and a contraction's workspace.
    std::size_t workspace_bytes(int threads) const { return workspace(threads).bytes; }
    const PreparedLossChunk& chunk_of(std::int64_t tokens) const;
    /// Rows to compute where so many have a loss: these rows, filled up with others to whole chunks and a
    /// last one that is prepared; or simply all.
    std::int64_t rows_of(std::int64_t with_loss) const;

    LinearCrossEntropy problem;
    const LossKernels& kernels;
    /// The largest first: chunks for all rows, and where rows may be left out, shorter last ones.
    std::vector<PreparedLossChunk> chunks;
};

/// Whether rows without a loss may be left out.
bool leaves_rows_out(const LinearCrossEntropy& problem);

/// Throws InternalError, with the reason, where the problem is refused.
PreparedLinearCrossEntropy prepare_linear_cross_entropy(const LinearCrossEntropy& problem, Isa isa);

/// `workspace` is aligned to 64 bytes. The same bits for any number of threads: chunks follow from the shape,
/// the first writes dw and the others add to it in order. Where blocks of rows are ignored, the other rows
/// are gathered, and products are as many fewer; their chunks follow from the count of targets. Throws
/// UserError naming the position and the value if a target is outside [0, V), InternalError where memory is
/// missing or misaligned.
void linear_cross_entropy(const PreparedLinearCrossEntropy& prepared,
                          const LinearCrossEntropyArguments& arguments, std::span<std::byte> workspace,
                          ThreadPool& pool);

}  // namespace mantissa::on_cpu
