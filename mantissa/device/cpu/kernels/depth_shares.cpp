#include "mantissa/device/cpu/kernels/depth_shares.h"

#include "mantissa/base/whole_units.h"

namespace mantissa::inline v0::on_cpu {

namespace {

constexpr std::int64_t min_shares = 8, max_shares = 16;
// The most that all shares of the sums may take: of caches, and of the plan's memory.
constexpr std::int64_t max_bytes = 16 << 20;
constexpr std::int64_t bytes_in_cache = 2 << 20;
constexpr std::int64_t rows_of_item = 16;

bool only_sums(const ContractionProblem& problem) {
    const MatrixLayout &a = problem.a, &b = problem.b;
    const bool epilogue = problem.epilogue.bias || problem.custom_epilogue;
    return problem.entries() == 1 && problem.store == Store::overwrite && !epilogue && !a.mapped &&
           !has_codes(b.codes) && (!b.window || a.window) && (!a.window || a.transpose == Transpose::yes);
}

/// Steps of the depth that stay together: an image's, where a is gathered from images, as b may be.
std::int64_t unit_of_depth(const ContractionProblem& problem) {
    return problem.a.window ? problem.a.window->rows_of_image() : 1;
}

// As many blocks keep threads busy, though their sums pass from one to another with each chunk of the depth.
constexpr std::int64_t enough_blocks = 16;

/// The least depth of a share: some products for each sum that is written, and read again. In the time that
/// memory takes for one sum, 12 bytes at 10 GB/s, tiles do some 1,500 products. Vectors do a third of that,
/// and wait for little where L2 holds all sums.
std::int64_t min_depth_of(const ContractionKernels& kernels, std::int64_t bytes) {
    if (kernels.interleaves()) return 1536;
    return bytes <= bytes_in_cache ? 96 : 512;
}

/// 0: it stays whole.
std::int64_t shares_of(const ContractionProblem& problem, const Blocking& blocking,
                       const ContractionKernels& kernels) {
    if (!only_sums(problem) || blocking.few_blocks >= enough_blocks) return 0;
    const std::int64_t units = problem.k / unit_of_depth(problem);
    for (std::int64_t shares = min_shares; shares <= max_shares; ++shares) {
        const std::int64_t bytes = shares * problem.m * problem.n * 4;
        if (units % shares == 0 && bytes <= max_bytes && problem.k / shares >= min_depth_of(kernels, bytes))
            return shares;
    }
    return 0;
}

ContractionProblem problem_of_shares(ContractionProblem problem, std::int64_t shares) {
    const std::int64_t images = problem.k / unit_of_depth(problem) / shares;
    problem.batch[1] = shares;
    problem.k /= shares;
    MatrixLayout &a = problem.a, &b = problem.b;
    a.batch_stride[1] = a.window                        ? images * a.window->image_pitch
                        : a.transpose == Transpose::yes ? problem.k * a.leading
                                                        : problem.k;
    b.batch_stride[1] = b.window                        ? images * b.window->image_pitch
                        : b.transpose == Transpose::yes ? problem.k
                                                        : problem.k * b.leading;
    problem.out = {.leading = problem.n, .batch_stride = {0, problem.m * problem.n}};
    return problem;
}

}  // namespace

std::optional<DepthShares> DepthShares::of(const PreparedContraction& whole) {
    const auto* const matrices = std::get_if<PreparedMatrices>(&whole.way);
    const std::int64_t shares = matrices ? shares_of(whole.problem, matrices->blocking, whole.kernels) : 0;
    if (shares == 0) return std::nullopt;
    return DepthShares(whole, shares);
}

DepthShares::DepthShares(const PreparedContraction& whole, std::int64_t shares)
    : contraction_(prepare_contraction(problem_of_shares(whole.problem, shares), whole.kernels)),
      out_(whole.problem.out) {}

std::size_t DepthShares::workspace_bytes(int threads) const {
    return static_cast<std::size_t>(in_lines(shares() * sums() * 4)) + contraction_.workspace_bytes(threads);
}

void DepthShares::run(const ContractionArguments& arguments, std::span<std::byte> workspace,
                      ThreadPool& pool) const {
    auto* const all_sums = reinterpret_cast<float*>(workspace.data());
    ContractionArguments of_shares = arguments;
    of_shares.out = all_sums;
    contract(contraction_, of_shares, workspace.subspan(in_lines(shares() * sums() * 4)), pool);
    const std::int64_t m = contraction_.problem.m, n = contraction_.problem.n;
    const auto element_bytes = static_cast<std::int64_t>(size_of(out_.dtype));
    pool.for_each_block(ceil_div(m, rows_of_item), [&](std::int64_t item, int) {
        const PanelRange rows = part_of(m, rows_of_item, item);
        add(all_sums + rows.begin * n, rows.size,
            static_cast<std::byte*>(arguments.out) + rows.begin * out_.leading * element_bytes);
    });
}

void DepthShares::add(float* first, std::int64_t rows, std::byte* out) const {
    const std::int64_t n = contraction_.problem.n;
    EpilogueBlock block;
    block.sums = first;
    block.ld = block.addend_ld = n;
    block.rows = rows;
    block.cols = n;
    for (std::int64_t share = 1; share < shares(); ++share) {
        const bool last = share + 1 == shares();
        block.addend = first + share * sums();
        block.out = last ? static_cast<void*>(out) : first;
        block.out_dtype = last ? out_.dtype : DType::f32;
        block.out_ld = last ? out_.leading : n;
        contraction_.kernels.finish(block);
    }
}

}  // namespace mantissa::on_cpu
