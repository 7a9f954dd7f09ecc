// The order of sums on tiles: a depth of up to 1,536 is one loop, a deeper one is chunks of 768 whose sums
// are added one after another. Whatever the caches, the blocks that follow from them and the threads are, a
// sum has the bits of that order.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>
#include <optional>
#include <span>
#include <stdexcept>

#include "mantissa/base/whole_units.h"
#include "mantissa/numerics/formats.h"
#include "tests/device/contraction_reference.h"
#include "tests/device/contraction_twins.h"
#include "tests/support/random_draws.h"

namespace mantissa::on_cpu {
namespace {

using KernelsOfCaches = ContractionKernels (*)(const CacheSizes&);

struct Unit {
    const char* name;
    KernelsOfCaches kernels;
};

std::vector<Unit> units() {
    std::vector<Unit> all{{"the twin of tiles", contraction_kernels_tile_twin}};
    if (best_isa() >= Isa::amx) all.push_back({"tiles", contraction_kernels_amx});
    return all;
}

constexpr CacheSizes measured_caches{.l1d = 48 << 10, .l2 = 2 << 20};

struct Sizes {
    std::int64_t m, n, k;
};

struct Bias {
    Bias(DType type, std::int64_t n) : dtype(type), data(static_cast<std::size_t>(n) * size_of(type)) {
        const std::span<const float> drawn = normals(4, static_cast<std::size_t>(n));
        for (std::int64_t i = 0; i < n; ++i)
            store_from_f64(data.data(), dtype, i, static_cast<double>(drawn[static_cast<std::size_t>(i)]));
    }
    float operator[](std::int64_t i) const { return static_cast<float>(load_as_f64(data.data(), dtype, i)); }

    DType dtype;
    Buffer data;
};

struct TileOperands {
    explicit TileOperands(const Sizes& sizes)
        : a(DType::bf16, Transpose::no, sizes.m, sizes.k, {1, 1}, 0),
          b(DType::bf16, Transpose::no, sizes.k, sizes.n, {1, 1}, 0),
          before(DType::f32, Transpose::no, sizes.m, sizes.n, {1, 1}, 0) {
        a.fill(Values::normal, 1);
        b.fill(Values::normal, 2);
        before.fill(Values::normal, 3);
    }
    Operand a, b, before;
    std::optional<Bias> bias = {};
};

/// Sums over a part of the depth, [m, n], by the unit's products one after another: no blocks, no threads.
std::vector<float> sums_of_one_loop(const TileOperands& operands, const Sizes& sizes, std::int64_t begin,
                                    std::int64_t depth, const ContractionKernels& kernels) {
    constexpr std::int64_t panel = 32;
    const std::int64_t padded = align_up(depth, kernels.depth_unit);
    const auto pack = [&](PanelKernel kernel, const Operand& operand, bool is_a, std::int64_t first,
                          std::int64_t lines) {
        std::vector<std::uint16_t> source(static_cast<std::size_t>(panel * depth));
        for (std::int64_t line = 0; line < lines; ++line)
            for (std::int64_t k = 0; k < depth; ++k)
                source[static_cast<std::size_t>(line * depth + k)] =
                    bf16_bits(static_cast<float>(is_a ? operand.get(0, first + line, begin + k)
                                                      : operand.get(0, begin + k, first + line)));
        Buffer packed(static_cast<std::size_t>(panel * padded * 2));
        kernel({.source = source.data(),
                .stride = depth,
                .lines = lines,
                .depth = depth,
                .panel = packed.data(),
                .panel_bytes = panel * padded * 2});
        return packed;
    };
    std::vector<float> out(static_cast<std::size_t>(sizes.m * sizes.n));
    Buffer tile_sums(panel * panel * 4);
    SumsBehind nothing;
    if (kernels.begin) kernels.begin();
    for (std::int64_t i = 0; i < sizes.m; i += panel)
        for (std::int64_t j = 0; j < sizes.n; j += panel) {
            const std::int64_t rows = std::min(panel, sizes.m - i), cols = std::min(panel, sizes.n - j);
            const Buffer a = pack(kernels.pack_a[0][1], operands.a, true, i, rows);
            const Buffer b = pack(kernels.pack_b[0][1], operands.b, false, j, cols);
            kernels.multiply({.a = a.data(),
                              .b = b.data(),
                              .depth = depth,
                              .c = tile_sums.as<float>().data(),
                              .ldc = panel,
                              .behind = &nothing,
                              .resident_depth = depth});
            for (std::int64_t r = 0; r < rows; ++r)
                std::copy_n(tile_sums.as<float>().data() + r * panel, cols,
                            out.data() + (i + r) * sizes.n + j);
        }
    if (kernels.end) kernels.end();
    return out;
}

/// The contents that `out` is to have: of chunks ((c0 + c1) + c2) ..., and first of all what it held before,
/// if that is added to.
std::vector<float> expected_sums(const TileOperands& operands, const Sizes& sizes, Store store,
                                 const ContractionKernels& kernels) {
    const std::int64_t chunks = sizes.k <= 1536 ? 1 : ceil_div(sizes.k, 768);
    const std::int64_t chunk = align_up(ceil_div(sizes.k, chunks), 32);
    std::vector<float> sums;
    if (store == Store::accumulate)
        for (std::int64_t i = 0; i < sizes.m * sizes.n; ++i)
            sums.push_back(static_cast<float>(operands.before.get(0, i / sizes.n, i % sizes.n)));
    for (std::int64_t k = 0; k < sizes.k; k += chunk) {
        const std::vector<float> part =
            sums_of_one_loop(operands, sizes, k, std::min(chunk, sizes.k - k), kernels);
        if (sums.empty())
            sums = part;
        else
            for (std::size_t i = 0; i < sums.size(); ++i) sums[i] = part[i] + sums[i];
    }
    return sums;
}

/// Rows that begin on cache lines, where their length allows it, are finished by the tile kernel itself.
enum class Rows : std::uint8_t { on_lines, askew };

std::vector<float> contracted(TileOperands& operands, const Sizes& sizes, Store store, DType type,
                              const ContractionKernels& kernels, int threads, Rows rows = Rows::on_lines) {
    ThreadPool pool(threads, threads);
    const std::optional<Bias>& bias = operands.bias;
    const std::int64_t elements = sizes.m * sizes.n;
    const std::size_t size = size_of(type);
    const Buffer memory(static_cast<std::size_t>(elements + 1) * size);
    std::byte* const out = memory.data() + (rows == Rows::askew ? size : 0);
    for (std::int64_t i = 0; i < elements; ++i)
        store_from_f64(out, type, i,
                       store == Store::accumulate ? operands.before.get(0, i / sizes.n, i % sizes.n) : NAN);
    contract_in_new_workspace({.m = sizes.m,
                               .n = sizes.n,
                               .k = sizes.k,
                               .a = operands.a.layout(),
                               .b = operands.b.layout(),
                               .out = {.dtype = type, .leading = sizes.n},
                               .store = store,
                               .epilogue = bias ? StandardEpilogue{true, bias->dtype} : StandardEpilogue{},
                               .threads = threads},
                              {.a = operands.a.data(),
                               .b = operands.b.data(),
                               .out = out,
                               .bias = bias ? bias->data.data() : nullptr},
                              pool, kernels);
    std::vector<float> sums;
    for (std::int64_t i = 0; i < elements; ++i) sums.push_back(static_cast<float>(load_as_f64(out, type, i)));
    return sums;
}

/// How many of `sums` have other bits.
std::int64_t others(const std::vector<float>& sums, const std::vector<float>& expected) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
        count += std::memcmp(&sums[i], &expected[i], sizeof(float)) != 0;
    return count + std::abs(std::ssize(sums) - std::ssize(expected));
}

TEST(ContractionTiles, SumsAreOfOneLoopOverTheDepthOrOfChunksInOrder) {
    // Depths at the edge of what stays in L1 (576 of 48 KB), of one chunk (1,536), and with a last chunk that
    // is short; rows and columns that leave a panel open; a block of one panel.
    for (const Unit& unit : units())
        for (const std::int64_t k :
             testing::some_of<std::int64_t>({33, 544, 608, 576, 1504, 1920, 1536, 2700, 2311, 1537}, 3))
            for (const auto& [m, n] : {std::pair{32, 32}, {33, 47}, {101, 70}, {70, 96}}) {
                const Sizes sizes{m, n, k};
                TileOperands operands(sizes);
                const ContractionKernels kernels = unit.kernels(measured_caches);
                for (const Store store : {Store::overwrite, Store::accumulate}) {
                    const std::vector<float> expected = expected_sums(operands, sizes, store, kernels);
                    for (const Rows rows : {Rows::on_lines, Rows::askew}) {
                        const auto compare = [&](DType type, const std::vector<float>& wanted) {
                            EXPECT_EQ(
                                others(contracted(operands, sizes, store, type, kernels, 2, rows), wanted), 0)
                                << unit.name << ", m " << m << " n " << n << " k " << k << ", to "
                                << name_of(type) << (rows == Rows::askew ? ", askew" : "")
                                << (store == Store::accumulate ? ", added" : "");
                        };
                        compare(DType::f32, expected);
                        if (store == Store::accumulate) continue;
                        for (const DType type : {DType::bf16, DType::f16}) {
                            std::vector<float> rounded = expected;
                            for (float& sum : rounded)
                                sum = static_cast<float>(rounded_to(static_cast<double>(sum), type));
                            compare(type, rounded);
                        }
                    }
                }
            }
}

TEST(ContractionTiles, ABiasIsAddedToTheSumsOfAllChunks) {
    // FP16 and rows askew are what the tile kernel does not finish itself.
    for (const Unit& unit : units())
        for (const Sizes& sizes : {Sizes{45, 96, 96}, Sizes{37, 64, 1568}}) {
            TileOperands operands(sizes);
            const ContractionKernels kernels = unit.kernels(measured_caches);
            const std::vector<float> sums = expected_sums(operands, sizes, Store::overwrite, kernels);
            for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
                const Bias& bias = operands.bias.emplace(type, sizes.n);
                for (const DType to : {DType::f32, DType::bf16}) {
                    std::vector<float> expected;
                    for (std::int64_t i = 0; i < std::ssize(sums); ++i) {
                        const float sum = sums[static_cast<std::size_t>(i)] + bias[i % sizes.n];
                        expected.push_back(static_cast<float>(rounded_to(static_cast<double>(sum), to)));
                    }
                    for (const Rows rows : {Rows::on_lines, Rows::askew})
                        EXPECT_EQ(others(contracted(operands, sizes, Store::overwrite, to, kernels, 2, rows),
                                         expected),
                                  0)
                            << unit.name << ", k " << sizes.k << ", a bias in " << name_of(type) << ", to "
                            << name_of(to) << (rows == Rows::askew ? ", askew" : "");
                }
            }
        }
}

TEST(ContractionTiles, BlocksFollowFromTheCaches) {
    const auto resident = [](std::int64_t l1) {
        return contraction_kernels_tile_twin({.l1d = l1, .l2 = 2 << 20}).resident_depth;
    };
    EXPECT_EQ(resident(48 << 10), 576);
    EXPECT_EQ(resident(32 << 10), 320);
    EXPECT_EQ(resident(64 << 10), 832);
    EXPECT_EQ(resident(8 << 10), 32);  // one product at least
    EXPECT_EQ(resident(0), 576);       // unknown: as measured
    const auto blocks = [](const Sizes& sizes, std::int64_t l2) {
        const MatrixLayout a{.dtype = DType::bf16, .leading = sizes.k};
        const MatrixLayout b{.dtype = DType::bf16, .leading = sizes.n};
        const Blocking blocking = blocking_of({.m = sizes.m,
                                               .n = sizes.n,
                                               .k = sizes.k,
                                               .a = a,
                                               .b = b,
                                               .out = {.dtype = DType::bf16, .leading = sizes.n}},
                                              contraction_kernels_tile_twin({.l1d = 48 << 10, .l2 = l2}));
        return std::array{blocking.rows, blocking.split_columns, blocking.depth, blocking.depths_inside};
    };
    using Block = std::array<std::int64_t, 4>;
    EXPECT_EQ(blocks({4096, 3072, 768}, 2 << 20), (Block{512, 1536, 768, 1}));
    EXPECT_EQ(blocks({4096, 3072, 768}, 0), (Block{512, 1536, 768, 1}));
    EXPECT_EQ(blocks({4096, 768, 768}, 2 << 20), (Block{256, 768, 768, 1}));
    EXPECT_EQ(blocks({4096, 768, 3072}, 2 << 20), (Block{256, 768, 768, 4}));
    EXPECT_EQ(blocks({4096, 3072, 1536}, 2 << 20), (Block{256, 3072, 1536, 1}));
    EXPECT_EQ(blocks({4096, 3072, 768}, 1 << 20), (Block{256, 3072, 768, 1}));
    EXPECT_EQ(blocks({4096, 768, 3072}, 1 << 20), (Block{128, 768, 768, 4}));
}

/// How many chunks of the depth a block goes through, and its rows.
TEST(ContractionTiles, WhatStaysInL2FollowsFromTheSums) {
    const auto blocks = [](const Sizes& sizes, int threads) {
        const MatrixLayout operand{.dtype = DType::bf16, .leading = std::max(sizes.n, sizes.k)};
        const Blocking blocking = blocking_of({.m = sizes.m,
                                               .n = sizes.n,
                                               .k = sizes.k,
                                               .a = operand,
                                               .b = operand,
                                               .out = {.dtype = DType::bf16, .leading = sizes.n},
                                               .threads = threads},
                                              contraction_kernels_tile_twin());
        return std::array{blocking.depths_inside, blocking.rows};
    };
    using Block = std::array<std::int64_t, 2>;
    EXPECT_EQ(blocks({256, 1024, 3136}, 2), (Block{1, 128})) << "sums of 1 MB";
    EXPECT_EQ(blocks({4096, 768, 3072}, 2), (Block{4, 256})) << "of 12 MB, all of b packed";
    EXPECT_EQ(blocks({1024, 768, 50304}, 2), (Block{1, 256})) << "of 3 MB, b too large";
    EXPECT_EQ(blocks({1024, 768, 50304}, 3), (Block{1, 192})) << "six blocks for three threads";
    EXPECT_EQ(blocks({1056, 768, 50304}, 2), (Block{7, 192})) << "of more, b in parts";
    EXPECT_EQ(blocks({2304, 768, 4096}, 2), (Block{6, 192})) << "nine of 256 rows are not even for two";
    EXPECT_EQ(blocks({768, 768, 4096}, 2), (Block{6, 192})) << "nor three";
    EXPECT_EQ(blocks({768, 768, 4096}, 4), (Block{6, 128})) << "too few of any height";
}

TEST(ContractionTiles, CachesAndThreadsChangeNoBit) {
    for (const Unit& unit : units())
        for (const Sizes& sizes : {Sizes{300, 200, 769}, Sizes{700, 100, 1920}}) {
            TileOperands operands(sizes);
            const std::vector<float> expected =
                contracted(operands, sizes, Store::overwrite, DType::f32, unit.kernels(measured_caches), 1);
            for (const CacheSizes& caches :
                 {CacheSizes{}, CacheSizes{.l1d = 32 << 10, .l2 = 256 << 10},
                  CacheSizes{.l1d = 64 << 10, .l2 = 4 << 20}, CacheSizes{.l1d = 8 << 10, .l2 = 64 << 10}})
                for (const int threads : {1, 3})
                    EXPECT_EQ(others(contracted(operands, sizes, Store::overwrite, DType::f32,
                                                unit.kernels(caches), threads),
                                     expected),
                              0)
                        << unit.name << ", L1 of " << caches.l1d << ", L2 of " << caches.l2 << ", " << threads
                        << " threads, k " << sizes.k;
        }
}

/// An epilogue that copies sums, and throws at the call of a number.
struct Copied {
    float* out;
    std::int64_t n;
    std::atomic<int> calls_left;
};

void copy_until(float* sums, std::int64_t ld, std::int64_t row0, std::int64_t col0, std::int64_t rows,
                std::int64_t cols, const void* args) {
    auto& copied = *const_cast<Copied*>(static_cast<const Copied*>(args));
    if (--copied.calls_left == 0) throw std::runtime_error("it was abandoned");
    for (std::int64_t i = 0; i < rows; ++i)
        std::copy_n(sums + i * ld, cols, copied.out + (row0 + i) * copied.n + col0);
}

TEST(ContractionTiles, ARunThatIsAbandonedLeavesNothingToTheNext) {
    // The epilogue throws at its first rows, inside of a tile, and where only the last tile is left; in one
    // chunk and in several. The same workspace then serves a whole run.
    for (const Unit& unit : units())
        for (const Sizes& sizes : {Sizes{300, 170, 609}, Sizes{300, 170, 1921}}) {
            TileOperands operands(sizes);
            const ContractionKernels kernels = unit.kernels(measured_caches);
            const std::vector<float> expected = expected_sums(operands, sizes, Store::overwrite, kernels);
            const PreparedContraction prepared = prepare_contraction({.m = sizes.m,
                                                                      .n = sizes.n,
                                                                      .k = sizes.k,
                                                                      .a = operands.a.layout(),
                                                                      .b = operands.b.layout(),
                                                                      .custom_epilogue = true},
                                                                     kernels);
            ThreadPool pool(3, 3);
            Buffer workspace(prepared.workspace_bytes(pool.threads()));
            std::ranges::fill(workspace.as<std::byte>(), std::byte{0xff});
            const auto run = [&](int calls) {
                std::vector<float> out(expected.size(), NAN);
                const Copied copied{out.data(), sizes.n, calls + 1};
                contract(prepared,
                         {.a = operands.a.data(),
                          .b = operands.b.data(),
                          .epilogue = copy_until,
                          .epilogue_args = &copied},
                         workspace.as<std::byte>(), pool);
                EXPECT_GT(copied.calls_left, 1);
                const int calls_made = calls + 1 - copied.calls_left;
                EXPECT_EQ(others(out, expected), 0) << unit.name << ", k " << sizes.k;
                return calls_made;
            };
            const int calls = run(1 << 20);
            for (const int last : {0, 5, calls / 2, calls - 1}) {
                EXPECT_THROW(run(last), std::runtime_error) << unit.name << " at call " << last;
                run(1 << 20);
            }
        }
}

}  // namespace
}  // namespace mantissa::on_cpu
