// Attention's kernels for GPUs as PTX: what they touch, what NVIDIA's assembler makes of them, and faults
// planted in them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "mantissa/codegen/grid_kernel.h"
#include "mantissa/graph/attention_score.h"
#include "mantissa/graph/graph.h"
#include "tests/device/emulated_gpu_harness.h"
#include "tests/device/nvidias_assembler.h"
#include "tests/support/compiling_test.h"

namespace mantissa {
namespace {

using codegen::AttentionKernel;
using cuda::Result;
using testing::GpuUnderTest;
using Makes = AttentionKernel::Makes;

const char* name_of(Makes makes) {
    return makes == Makes::output ? "o" : makes == Makes::query_gradient ? "dq" : "dk and dv";
}

constexpr Makes all_kernels[] = {Makes::output, Makes::query_gradient, Makes::key_gradients};

/// Heads of [B, T, 3, H, D], causal.
AttentionKernel of_gpt2(Makes makes, std::int64_t queries, std::int64_t heads, std::int64_t head_size) {
    const codegen::HeadPlaces q{
        .sequence = queries * 3 * heads * head_size, .head = head_size, .position = 3 * heads * head_size};
    codegen::HeadPlaces k = q, v = q;
    k.start = heads * head_size;
    v.start = 2 * heads * head_size;
    return {.makes = makes,
            .sequences = 1,
            .heads = heads,
            .queries = queries,
            .keys = queries,
            .head_size = head_size,
            .causal = true,
            .scale = 0.125,
            .q = q,
            .k = k,
            .v = v,
            .o = {.sequence = queries * heads * head_size, .head = head_size, .position = heads * head_size}};
}

std::string ptx_of(const AttentionKernel& kernel, const std::string& architecture = "sm_80") {
    return codegen::compile({.name = "k", .code = kernel}, {.architecture = architecture}).assembly;
}

const cuda::EmulatedGpuOptions by_default{.architecture = "sm_80", .threads = 1},
    with_warpgroups{.architecture = "sm_90a", .threads = 1};

AttentionKernel by_warpgroups(AttentionKernel kernel) {
    kernel.by_warpgroups = true;
    return kernel;
}

class CudaAttentionCode : public testing::CompilingTest {};

/// Runs text in place of a kernel's, on tensors of ones.
Result run_on_ones(GpuUnderTest& gpu, const AttentionKernel& kernel, const std::string& text,
                   const std::vector<std::uint64_t>& of_score = {}) {
    const auto rows = static_cast<std::size_t>(kernel.heads * kernel.queries);
    const auto elements = rows * static_cast<std::size_t>(kernel.head_size);
    const auto bf16 = [&](std::size_t count) {
        return gpu.upload(std::vector<std::uint16_t>(count, 0x3f80));
    };
    const auto f32 = [&](std::size_t count) { return gpu.upload(std::vector<float>(count, 0.0F)); };
    const cuda::DevicePtr qkv = bf16(3 * elements), o = bf16(elements), lse = f32(2 * rows);
    const cuda::DevicePtr out = gpu.allocate(6 * elements), d_o = bf16(elements),
                          more = gpu.allocate(8 * rows);
    std::vector<std::uint64_t> parameters =
        kernel.makes == Makes::output           ? std::vector<std::uint64_t>{qkv, qkv, qkv, out, more}
        : kernel.makes == Makes::query_gradient ? std::vector{d_o, qkv, qkv, qkv, o, lse, out, more}
                                                : std::vector{d_o, qkv, qkv, qkv, lse, out, out};
    parameters.insert(parameters.end(), of_score.begin(), of_score.end());
    const GpuUnderTest::Launch launch{.blocks = static_cast<unsigned>(codegen::blocks_of(kernel)),
                                      .threads = static_cast<unsigned>(codegen::tiles_of(kernel).threads())};
    return gpu.run(text, "k", launch, parameters);
}

/// The text without the first statement of these words, or the last.
enum class Which : bool { first, last };
std::string without(std::string text, const std::string& statement, Which which) {
    const std::size_t at = which == Which::first ? text.find(statement) : text.rfind(statement);
    EXPECT_NE(at, std::string::npos) << statement;
    return text.erase(at, statement.size());
}

/// A statement that the kernel cannot do without, and words of what is then reported.
struct Fault {
    const char* statement;
    Which which;
    const char* words;
};

void expect_faults_are_caught(const cuda::EmulatedGpuOptions& options, const AttentionKernel& kernel,
                              const std::vector<Fault>& faults) {
    const std::string text = ptx_of(kernel, options.architecture);
    {
        GpuUnderTest gpu(options);
        ASSERT_EQ(run_on_ones(gpu, kernel, text), Result::success) << gpu.report();
    }
    for (const Fault& fault : faults) {
        GpuUnderTest gpu(options);
        EXPECT_NE(run_on_ones(gpu, kernel, without(text, fault.statement, fault.which)), Result::success)
            << name_of(kernel.makes) << " without " << fault.statement;
        EXPECT_NE(gpu.report().find(fault.words), std::string::npos) << gpu.report();
    }
}

TEST_F(CudaAttentionCode, PlantedFaultsAreCaught) {
    for (const Makes makes : all_kernels) {
        const AttentionKernel kernel = of_gpt2(makes, 150, 1, 64);
        expect_faults_are_caught(by_default, kernel,
                                 {{"bar.sync \t0;", Which::first, "race"},
                                  {"bar.sync \t0;", Which::last, "race"},
                                  {"cp.async.wait_all;", Which::first, "has yet to write"},
                                  {"cp.async.wait_all;", Which::last, "has yet to write"}});
        // A row more than there are is read where the tensor ends.
        GpuUnderTest gpu;
        EXPECT_NE(run_on_ones(gpu, kernel, ptx_of(of_gpt2(makes, 151, 1, 64))), Result::success);
        EXPECT_NE(gpu.report(), "");
    }
}

/// Fences of products, and what shows them the tiles.
TEST_F(CudaAttentionCode, PlantedFaultsByWarpgroupsAreCaught) {
    for (const Makes makes : all_kernels) {
        const AttentionKernel kernel = by_warpgroups(of_gpt2(makes, 150, 1, 64));
        expect_faults_are_caught(
            with_warpgroups, kernel,
            {{"fence.proxy.async.shared::cta;", Which::last, "with no fence.proxy.async behind it"},
             {"cp.async.wait_all;", Which::last, "has yet to write"},
             {"wgmma.fence.sync.aligned;", Which::first, "wgmma.fence"},
             {"wgmma.commit_group.sync.aligned;", Which::first, "under way"},
             {"wgmma.wait_group.sync.aligned 0;", Which::first, "under way"},
             {"wgmma.wait_group.sync.aligned 0;", Which::last, "under way"}});
    }
}

/// Blocks read their rows, and the tiles that these see, once, and write each byte once.
void expect_little_memory_touched(const std::vector<AttentionKernel>& kernels,
                                  const cuda::EmulatedGpuOptions& options) {
    const std::int64_t T = 256, D = 64;
    const auto sectors = [&](std::int64_t rows) { return static_cast<double>(rows * D * 2) / 32; };
    for (const AttentionKernel& kernel : kernels) {
        const Makes makes = kernel.makes;
        const std::int64_t rows = codegen::tiles_of(kernel).rows();
        GpuUnderTest gpu(options);
        gpu.gpu().count(true);
        ASSERT_EQ(run_on_ones(gpu, kernel, ptx_of(kernel, options.architecture)), Result::success)
            << gpu.report();
        const std::vector<cuda::LaunchCount> counts = gpu.gpu().take_counts();
        for (const cuda::BlockTraffic& block : counts.back().traffic) {
            // Keys that the rows see, the last of which come first; or queries that see the first rows.
            const std::int64_t seen = T - std::int64_t{block.block} * rows;
            const double own = makes == Makes::output ? sectors(rows)
                               : makes == Makes::query_gradient
                                   ? 3 * sectors(rows) + static_cast<double>(rows) / 8
                                   : 2 * sectors(rows) + static_cast<double>(seen) / 4;
            const double loaded = own + 2 * sectors(seen);
            const double stored = makes == Makes::output ? sectors(rows) + static_cast<double>(rows) / 8
                                  : makes == Makes::query_gradient
                                      ? sectors(rows) + static_cast<double>(rows) / 4
                                      : 2 * sectors(rows);
            EXPECT_LE(static_cast<double>(block.loads), 1.15 * loaded) << static_cast<int>(makes);
            EXPECT_LE(static_cast<double>(block.stores), 1.15 * stored) << static_cast<int>(makes);
            EXPECT_GE(static_cast<double>(block.loads), loaded) << static_cast<int>(makes);
            EXPECT_GE(static_cast<double>(block.stores), stored) << static_cast<int>(makes);
        }
    }
}

TEST_F(CudaAttentionCode, TouchesNoMoreMemoryThanItMust) {
    std::vector<AttentionKernel> plain, warpgroups;
    for (const Makes makes : all_kernels) {
        plain.push_back(of_gpt2(makes, 256, 1, 64));
        warpgroups.push_back(by_warpgroups(plain.back()));
    }
    expect_little_memory_touched(plain, {.architecture = "sm_80", .threads = 1});
    expect_little_memory_touched(warpgroups, with_warpgroups);
}

/// Scores as a body makes them of s; operands: of 8 numbers by head, or documents of each position.
struct Scored {
    const char* name;
    std::vector<std::string> axes = {};
    std::function<void(Graph& body, Tensor s, const std::vector<Tensor>& x)> build = {};
};

Scored window(double keys) {
    return {"window", {}, [=](Graph& body, Tensor s, const std::vector<Tensor>&) {
                body.add_result("score", s.value());
                body.add_result("visible",
                                less(iota(body, s.shape(), 2), iota(body, s.shape(), 3) + keys).value());
            }};
}

std::vector<Scored> scored() {
    std::vector<Scored> all{window(256)};
    all.push_back({"documents", {"bt", "bs"}, [](Graph& body, Tensor s, const std::vector<Tensor>& x) {
                       body.add_result("score", s.value());
                       body.add_result("visible", equal(x[0], x[1]).value());
                   }});
    all.push_back({"capped", {}, [](Graph& body, Tensor s, const std::vector<Tensor>&) {
                       body.add_result("score", (tanh(s * (1.0 / 30)) * 30.0).value());
                   }});
    all.push_back({"linear biases", {"h"}, [](Graph& body, Tensor s, const std::vector<Tensor>& x) {
                       const Tensor distance = iota(body, s.shape(), 3) - iota(body, s.shape(), 2);
                       body.add_result("score", (s + x[0] * cast(distance, DType::f32)).value());
                   }});
    all.push_back({"a bias by pairs", {"hts"}, [](Graph& body, Tensor s, const std::vector<Tensor>& x) {
                       body.add_result("score", (s + x[0]).value());
                   }});
    all.push_back({"dropped", {"", ""}, [](Graph& body, Tensor s, const std::vector<Tensor>& x) {
                       const Tensor drawn =
                           random_uniform(reshape(x[0], {}), reshape(x[1], {}), 9, s.shape());
                       body.add_result("score", s.value());
                       body.add_result("multiplier", select(less(drawn, constant(body, 0.25)),
                                                            constant(body, 0.0), constant(body, 1 / 0.75))
                                                         .value());
                   }});
    return all;
}

/// The kernel with that score, as its binding makes it.
AttentionKernel with_score(AttentionKernel kernel, const Scored& form) {
    const AttentionExtents e{kernel.sequences, kernel.heads,     kernel.queries,
                             kernel.keys,      kernel.head_size, kernel.heads};
    Graph body;
    const Shape pairs{e.sequences, e.heads, e.queries, e.keys};
    const Tensor s(body, body.add_input("s", {DType::f32, pairs}));
    codegen::PairScore score;
    codegen::ScoreRequest request{.body = body, .rounded = true};
    std::vector<Tensor> operands;
    for (const std::string& axes : form.axes) {
        const DType dtype = axes.empty() ? DType::i64 : axes.starts_with('b') ? DType::i32 : DType::f32;
        const ScorePlace at = place_of_score_operand(axes, stored_score_operand(axes, e), e);
        operands.emplace_back(body, body.add_input("x" + axes + std::to_string(operands.size()),
                                                   {dtype, score_operand_shape(axes, e)}));
        score.operands.push_back({dtype, {at.first, at.sequence, at.head, at.query, at.key}});
        request.operands.push_back({at.query, at.key});
    }
    form.build(body, s, operands);
    const auto made = codegen::score_form(request);
    EXPECT_TRUE(made) << made.reason();
    const bool forward = kernel.makes == Makes::output;
    if (!made->is_score) score.remade = forward ? made->forward : made->backward;
    if (made->hides) score.mask = forward ? made->forward_mask : made->backward_mask;
    kernel.score = std::make_shared<const codegen::PairScore>(std::move(score));
    return kernel;
}

/// Blocks of a window read what it shows their rows and no more, and the rows of which nothing is seen are
/// not even there.
TEST_F(CudaAttentionCode, TouchesOnlyWhatAWindowShows) {
    const std::int64_t T = 512, D = 64, keys = 48;
    for (const Makes makes : all_kernels) {
        const AttentionKernel kernel = with_score(of_gpt2(makes, T, 1, D), window(keys));
        const codegen::SeenTilesKernel seen{kernel};
        const codegen::AttentionTiles tiles = codegen::tiles_of(kernel);
        GpuUnderTest gpu;
        const cuda::DevicePtr table = gpu.allocate(static_cast<std::size_t>(seen.bytes()));
        const codegen::GridKernel named{.name = "k", .code = seen};
        ASSERT_EQ(gpu.run(codegen::compile(named, {.architecture = "sm_80"}).assembly, "k",
                          {.blocks = static_cast<unsigned>(codegen::blocks_of(named)),
                           .threads = static_cast<unsigned>(codegen::grid_threads)},
                          {table}),
                  Result::success)
            << gpu.report();
        gpu.gpu().count(true);
        ASSERT_EQ(run_on_ones(gpu, kernel, ptx_of(kernel), {table}), Result::success) << gpu.report();
        const std::int64_t rows = tiles.rows(), columns = tiles.columns;
        const std::vector<cuda::LaunchCount> counts = gpu.gpu().take_counts();
        for (const cuda::BlockTraffic& block : counts.back().traffic) {
            // Columns that the rows see, and the rest of the tiles at both ends.
            const std::int64_t most = std::min(T, rows + keys - 1 + 2 * (columns - 1));
            const auto sectors = [&](std::int64_t of) { return static_cast<double>(of * D * 2) / 32; };
            const double table_sectors = static_cast<double>(seen.column_tiles());
            const double own = makes == Makes::output ? sectors(rows)
                               : makes == Makes::query_gradient
                                   ? 3 * sectors(rows) + static_cast<double>(rows) / 8
                                   : 2 * sectors(rows) + static_cast<double>(most) / 4;
            EXPECT_LE(static_cast<double>(block.loads), 1.15 * (own + 2 * sectors(most)) + table_sectors)
                << name_of(makes);
            EXPECT_LT(static_cast<double>(block.loads), own + 2 * sectors(T) * 0.75) << name_of(makes);
        }
    }
}

using CudaAttentionCodeSlow = CudaAttentionCode;

TEST_F(CudaAttentionCodeSlow, NvidiasAssemblerSpillsNothing) {
    if (!testing::has_assembler()) GTEST_SKIP() << "no ptxas: CUDA's toolkit is not installed";
    const auto assembled = [&](const AttentionKernel& kernel, const std::string& architecture) {
        return testing::assembled({.name = "k", .code = kernel}, architecture);
    };
    for (const Makes makes : all_kernels)
        for (const std::int64_t head_size : {16, 32, 48, 64, 80, 96, 112, 128})
            for (const char* const architecture : {"sm_80", "sm_90", "sm_90a", "sm_100"}) {
                if (head_size % 64 != 0 && std::string(architecture) != "sm_80") continue;
                if (!testing::has_assembler(architecture)) continue;
                const AttentionKernel kernel = of_gpt2(makes, 1024, 12, head_size);
                fmt::print("{:<7} heads of {:>3}, {} threads, {}: {}\n", architecture, head_size,
                           codegen::tiles_of(kernel).threads(), name_of(makes),
                           assembled(kernel, architecture));
            }
    for (const Makes makes : all_kernels)
        for (const std::int64_t head_size : {64, 128}) {
            const AttentionKernel plain = of_gpt2(makes, 1024, 12, head_size);
            fmt::print("sm_90a  by warpgroups, heads of {:>3}, {} threads, {}: {}\n", head_size,
                       codegen::tiles_of(by_warpgroups(plain)).threads(), name_of(makes),
                       assembled(by_warpgroups(plain), "sm_90a"));
            for (const Scored& form : scored()) {
                const AttentionKernel kernel = with_score(plain, form);
                fmt::print("sm_80   {}, heads of {:>3}, {}: {}\n", form.name, head_size, name_of(makes),
                           assembled(kernel, "sm_80"));
                fmt::print("sm_90a  {} by warpgroups, heads of {:>3}, {}: {}\n", form.name, head_size,
                           name_of(makes), assembled(with_score(by_warpgroups(plain), form), "sm_90a"));
            }
        }
}

}  // namespace
}  // namespace mantissa
