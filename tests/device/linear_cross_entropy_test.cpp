// The joint loss as a pure function: its memory, chunks of any size, bad targets. Against the reference it is
// tested with all other operations, in tests/runtime.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/loss/linear_cross_entropy.h"

namespace mantissa::cpu {
namespace {

constexpr std::int64_t N = 101, C = 19, V = 53;

struct Outputs {
    float loss = 0;
    std::vector<float> dx = std::vector<float>(N * C, NAN), dw = std::vector<float>(V * C, NAN);

    friend bool operator==(const Outputs& a, const Outputs& b) {
        return a.loss == b.loss && a.dx == b.dx && a.dw == b.dw;
    }
};

std::vector<float> normal(std::size_t count, std::uint32_t which) {
    const RandomStream random{.seed = 3, .step = 0, .operation = which};
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>(random.normal(i));
    return values;
}

std::vector<std::int32_t> some_targets() {
    std::vector<std::int32_t> targets(N);
    for (std::int64_t i = 0; i < N; ++i)
        targets[static_cast<std::size_t>(i)] = static_cast<std::int32_t>(i * 7 % V);
    return targets;
}

Outputs run(std::int64_t chunk, int threads, const std::vector<std::int32_t>& targets = some_targets()) {
    const LinearCrossEntropy problem{
        .rows = N, .channels = C, .classes = V, .most_rows_of_chunk = chunk, .gradients = true};
    ThreadPool pool(threads);
    Buffer workspace(workspace_bytes(problem, best_isa(), threads), "workspace");
    std::memset(workspace.data(), 0xff, workspace.size());
    const std::vector<float> x = normal(N * C, 1), w = normal(V * C, 2);
    Outputs out;
    linear_cross_entropy(problem,
                         {.x = x.data(),
                          .w = w.data(),
                          .targets = targets.data(),
                          .seed = 2,
                          .loss = &out.loss,
                          .dx = out.dx.data(),
                          .dw = out.dw.data()},
                         {workspace.data(), workspace.size()}, pool, best_isa());
    return out;
}

TEST(LinearCrossEntropy, ChunksOfAnySizeGiveTheSameButForTheOrderOfSums) {
    const Outputs whole = run(N, 2);
    for (const std::int64_t chunk : {1, 7, 32, 50, 64, 100}) {
        const Outputs got = run(chunk, 2);
        // Sums of N terms of |dlogits| <= 2 / N times |x| < 5, or of V terms; each order errs by
        // 2^-24 a term. The losses of rows are the same numbers, added in the same order.
        EXPECT_FLOAT_EQ(got.loss, whole.loss) << chunk;
        for (std::size_t i = 0; i < whole.dx.size(); ++i)
            EXPECT_NEAR(got.dx[i], whole.dx[i], V * 0x1p-24 * 10.0 / N) << chunk;
        for (std::size_t i = 0; i < whole.dw.size(); ++i)
            EXPECT_NEAR(got.dw[i], whole.dw[i], N * 0x1p-24 * 10.0 / N) << chunk;
    }
}

TEST(LinearCrossEntropy, SameBitsForAnyNumberOfThreads) {
    for (const std::int64_t chunk : {32, 64, 1024}) {
        const Outputs one = run(chunk, 1);
        EXPECT_EQ(run(chunk, 2), one);
        EXPECT_EQ(run(chunk, 3), one);
    }
}

TEST(LinearCrossEntropy, HoldsOneChunkOfLogitsWhateverTheNumberOfRows) {
    LinearCrossEntropy problem{.rows = 4096, .channels = 768, .classes = 50257, .gradients = true};
    for (const DType dtype : {DType::f32, DType::bf16}) {
        problem.dtype = dtype;
        const std::size_t rows = static_cast<std::size_t>(problem.rows = 4096);
        const std::size_t bytes = workspace_bytes(problem, best_isa(), 2);
        const std::size_t chunk = 1024 * 50257 * size_of(dtype);
        EXPECT_GE(bytes, chunk);
        EXPECT_LE(bytes, chunk + chunk / 4);  // packed panels and partial sums of a contraction
        problem.rows *= 4;
        EXPECT_EQ(workspace_bytes(problem, best_isa(), 2), bytes + 3 * rows * sizeof(float));
    }
}

TEST(LinearCrossEntropy, ABadTargetIsNamedByItsPositionAmongAllRows) {
    std::vector<std::int32_t> targets = some_targets();
    targets[70] = V;
    try {
        run(32, 2, targets);
        FAIL() << "target 53 of 53 classes was accepted";
    } catch (const UserError& error) {
        EXPECT_EQ(std::string(error.what()).substr(0, 74),
                  "linear_cross_entropy: target 53 at position 70 is out of range, expected 0");
    }
}

}  // namespace
}  // namespace mantissa::cpu
