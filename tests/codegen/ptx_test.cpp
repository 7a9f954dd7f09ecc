// Fused kernels for NVIDIA GPUs: their text, and their numbers on the emulated GPU.
#include <gtest/gtest.h>

#include <fstream>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/graph/call.h"
#include "mantissa/graph/graph.h"
#include "mantissa/train/trainer.h"
#include "mantissa/train/training_plan.h"
#include "tests/codegen/golden_text.h"
#include "tests/codegen/ptx_device.h"
#include "tests/codegen/random_case.h"
#include "tests/support/compiling_test.h"
#include "tests/support/fused_graph.h"
#include "tests/support/gpt2_training.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/trains_alike.h"

namespace mantissa {
namespace {

using codegen::Compiler;
using codegen::FusedKernel;
using codegen::NvptxTarget;
using testing::device_at;
using testing::fused;
using testing::given;
using testing::levels;
using testing::loaded;
using testing::PtxDevice;
using testing::PtxKernel;
using testing::run;

ReferenceFeed normal_feed(const Graph& graph) {
    ReferenceFeed feed;
    for (NodeId id : graph.inputs()) {
        const RandomStream random{.seed = 9, .step = 0, .operation = static_cast<std::uint32_t>(feed.size())};
        std::vector<double>& values = feed[graph.node(id).attributes.word("name")];
        for (std::int64_t i = 0; i < graph.node(id).outputs[0].shape.elements(); ++i)
            values.push_back(static_cast<double>(random.normal(static_cast<std::uint64_t>(i))));
    }
    return feed;
}

/// The bodies of a graph's fused nodes.
std::vector<const Graph*> bodies_of(const Graph& graph) {
    std::vector<const Graph*> bodies;
    for (std::size_t id = 0; id < graph.size(); ++id)
        if (const Node& node = graph.node(static_cast<NodeId>(id)); node.op->name == "fused")
            bodies.push_back(&node.attributes.body("body").graph());
    return bodies;
}

/// Layer norm of a sum, as each block of GPT-2 begins: forward, its statistics kept.
Graph layer_norm_of_sum() {
    Graph graph;
    const Tensor x =
        given(graph, "x", {40, 768}) + cast(given(graph, "dx", {40, 768}, DType::bf16), DType::f32);
    const auto y =
        call(graph, "layer_norm", std::vector{x, given(graph, "gamma", {768}), given(graph, "beta", {768})},
             {{"epsilon", 1e-5}});
    graph.add_result("x", x.value());
    graph.add_result("y", cast(y[0], DType::bf16).value());
    for (std::size_t i = 1; i < y.size(); ++i) graph.add_result("saved" + std::to_string(i), y[i].value());
    return fused(graph);
}

/// GELU behind a linear layer, as the epilogue of its contraction: bias, rounding to BF16, GELU, what its
/// gradient needs.
Graph gelu_of_linear() {
    Graph graph;
    const Tensor x = given(graph, "x", {20, 16}, DType::bf16), w = given(graph, "w", {24, 16}, DType::bf16);
    const Tensor u = matmul(x, w, {.transpose_b = true, .bias = given(graph, "bias", {24}, DType::bf16)});
    graph.add_result("y", gelu(u).value());
    graph.add_result("u", u.value());
    return fused(graph);
}

/// A flat nest: everything that is computed from an element alone, with 16-bit formats in and out.
Graph of_elements() {
    Graph graph;
    const Tensor x = given(graph, "x", {7, 333}), low = given(graph, "low", {7, 333}, DType::bf16),
                 half = given(graph, "half", {7, 333}, DType::f16);
    const Tensor y = gelu(x) + cast(low, DType::f32) * cast(half, DType::f32);
    graph.add_result("y", (tanh(y) + log(x * x + 1.0) + erf(y) - exp(-(y * y))).value());
    graph.add_result("low", cast(select(less(x, y), x, sqrt(y * y + 0.5)), DType::bf16).value());
    graph.add_result("half", cast(maximum(x, y) / (x * x + 1.0), DType::f16).value());
    return fused(graph);
}

class Ptx : public testing::CompilingTest {};

std::vector<std::string> texts(const std::string& architecture) {
    Compiler compiler(NvptxTarget{.architecture = architecture});
    std::vector<std::shared_ptr<const FusedKernel>> held;
    for (const Graph& graph : {of_elements(), layer_norm_of_sum(), gelu_of_linear()})
        for (const Graph* body : bodies_of(graph)) held.push_back(compiler.add(*body));
    std::vector<std::string> all;
    for (const auto& kernel : compiler.kernels()) all.push_back(compiler.list(*kernel).assembly);
    return all;
}

TEST_F(Ptx, IsThisToTheLetter) {
    std::string found;
    for (const std::string& text : texts("sm_90a")) found += text;
    testing::expect_text_of("ptx_kernels.txt", found);
}

using PtxSlow = Ptx;

/// NVIDIA's assembler takes it, where it is installed; it ignores the environment's architecture.
TEST_F(PtxSlow, IsTakenByNvidiasAssembler) {
    if (std::system("command -v ptxas >/dev/null || command -v /usr/local/cuda/bin/ptxas >/dev/null") != 0)
        GTEST_SKIP() << "no ptxas: CUDA's toolkit is not installed";
    const TemporaryDirectory directory;
    for (const std::string& architecture : codegen::nvptx_architectures()) {
        int index = 0;
        for (const std::string& text : texts(architecture)) {
            const std::string path =
                (directory.path() / (architecture + "-" + std::to_string(index++))).string();
            std::ofstream(path + ".ptx") << text;
            const std::string command = "PATH=$PATH:/usr/local/cuda/bin ptxas -arch=" + architecture +
                                        " -o '" + path + ".cubin' '" + path + ".ptx'";
            EXPECT_EQ(std::system(command.c_str()), 0) << text;
        }
    }
}

TEST_F(Ptx, SaysHowItIsLaunched) {
    const std::string text = texts("sm_80")[0];
    EXPECT_TRUE(
        text.starts_with("// fused_0 for sm_80.\n"
                         "// Blocks of 256 threads, each block the next elements. Parameters: in0, in1, in2, "
                         "out0, out1, out2, elements, elements a block, partial sums, scratch.\n"))
        << text.substr(0, 400);
    EXPECT_NE(text.find(".target sm_80\n"), std::string::npos);
    EXPECT_NE(text.find(".reqntid 256, 1, 1\n"), std::string::npos);
}

TEST_F(Ptx, OfAnUnknownArchitectureIsRefused) {
    try {
        Compiler compiler(NvptxTarget{.architecture = "sm_12"});
        FAIL();
    } catch (const UserError& error) {
        EXPECT_STREQ(error.what(),
                     "no code can be made for 'sm_12'; known are sm_80, sm_86, sm_89, sm_90, sm_90a");
    }
}

TEST_F(Ptx, IsNotRunHere) {
    Compiler compiler(NvptxTarget{});
    const Graph graph = of_elements();
    const auto held = compiler.add(*bodies_of(graph)[0]);
    ThreadPool pool(1);
    EXPECT_THROW(compiler.compile_pending(pool), InternalError);
}

TEST_F(Ptx, ElementsHaveTheBitsOfTheCpu) {
    const Graph graph = of_elements();
    ASSERT_EQ(bodies_of(graph).size(), 1u);
    ASSERT_TRUE(codegen::lower(*bodies_of(graph)[0]).flat);
    const ReferenceFeed feed = normal_feed(graph);
    PtxDevice gpu(3);
    EXPECT_EQ(run(graph, feed, gpu), run(graph, feed, *device_at(levels().back())));
}

/// The host's function for the body of a fused node.
std::shared_ptr<const FusedKernel> on_the_host(Compiler& compiler, const Graph& body) {
    std::shared_ptr<const FusedKernel> kernel = compiler.add(body);
    ThreadPool pool(1);
    compiler.compile_pending(pool);
    return kernel;
}

/// An epilogue takes the sums as a whole matrix, one row after the other.
TEST_F(Ptx, EpiloguesHaveTheBitsOfTheCpu) {
    constexpr std::int64_t rows = 20, columns = 24;
    const Graph graph = gelu_of_linear();
    ASSERT_EQ(bodies_of(graph).size(), 1u);
    const PtxKernel gpu(*bodies_of(graph)[0], {.threads = 64});
    ASSERT_TRUE(gpu.nest().epilogue);
    Compiler compiler{codegen::HostFeatures{}};
    const auto host = on_the_host(compiler, *bodies_of(graph)[0]);
    std::vector<float> sums;
    for (std::int64_t i = 0; i < rows * columns; ++i) sums.push_back(static_cast<float>(i % 97) / 16 - 3);
    std::vector<std::uint16_t> bias(columns, 0x3e80), y[2], u[2];
    for (int i : {0, 1}) {
        y[i].assign(sums.size(), 0xffff);
        u[i].assign(sums.size(), 0xffff);
        const std::span<const std::byte> inputs[] = {std::as_bytes(std::span(sums)),
                                                     std::as_bytes(std::span(bias))};
        const std::span<std::byte> outputs[] = {std::as_writable_bytes(std::span(y[i])),
                                                std::as_writable_bytes(std::span(u[i]))};
        if (i == 0) {
            gpu.launch(inputs, outputs, {.count = rows, .per_block = 7});
            continue;
        }
        const std::byte* of_inputs[] = {inputs[0].data(), inputs[1].data()};
        std::byte* of_outputs[] = {outputs[0].data(), outputs[1].data()};
        const codegen::FusedArguments arguments{.inputs = of_inputs,
                                                .outputs = of_outputs,
                                                .last = rows,
                                                .sums = sums.data(),
                                                .leading = columns,
                                                .last_column = columns};
        host->function(&arguments);
    }
    EXPECT_EQ(y[0], y[1]);
    EXPECT_EQ(u[0], u[1]);
}

/// The rows of a block change no bit, nor does it need more than one warp.
TEST_F(Ptx, RowsHaveTheSameBitsInBlocksOfAnySize) {
    const Graph graph = layer_norm_of_sum();
    const ReferenceFeed feed = normal_feed(graph);
    PtxDevice three(3), eleven(11);
    EXPECT_EQ(run(graph, feed, three), run(graph, feed, eleven));
}

/// Zeros for the operands of a fused node's body, and memory for its results.
struct BodyMemory {
    explicit BodyMemory(const Graph& body) {
        const auto bytes_of = [](const Type& type) {
            return static_cast<std::size_t>(type.shape.elements()) * size_of(type.dtype);
        };
        for (const NodeId input : body.inputs()) memory.emplace_back(bytes_of(body.node(input).outputs[0]));
        for (const Result& result : body.results()) memory.emplace_back(bytes_of(body.type(result.value)));
        for (std::size_t i = 0; i < memory.size(); ++i)
            if (i < body.inputs().size())
                inputs.emplace_back(memory[i]);
            else
                outputs.emplace_back(memory[i]);
    }
    std::vector<std::vector<std::byte>> memory;
    std::vector<std::span<const std::byte>> inputs;
    std::vector<std::span<std::byte>> outputs;
};

/// Layer norm on the emulated GPU after a change of its text: what is judged wrong, or nothing.
std::string judged(const std::function<void(std::string& text)>& change) {
    const Graph graph = layer_norm_of_sum();
    const Graph& body = *bodies_of(graph)[0];
    BodyMemory memory(body);
    try {
        PtxKernel(body, {.threads = 64}, change)
            .launch(memory.inputs, memory.outputs, {.count = 40, .per_block = 40});
    } catch (const UserError& error) {
        return error.what();
    }
    return "";
}

/// A block touches little more of global memory than its rows and what all rows share: within 1.15, in
/// sectors.
TEST_F(Ptx, TrafficIsThatOfOperandsAndResults) {
    const Graph graph = layer_norm_of_sum();
    const Graph& body = *bodies_of(graph)[0];
    BodyMemory memory(body);
    PtxKernel kernel(body, {});
    kernel.launch(memory.inputs, memory.outputs, {.count = 40, .per_block = 8});
    const auto counts = kernel.take_counts();
    ASSERT_EQ(counts.size(), 1u);
    ASSERT_EQ(counts[0].traffic.size(), 3u);
    EXPECT_GT(counts[0].flops, 40u * 768 * 6);
    // Bytes of 8 rows of 768: x in FP32 and dx in BF16, gamma and beta; the sum, y in BF16, two numbers a
    // row.
    constexpr double loaded = 8 * 768 * 6 + 2 * 768 * 4, stored = 8 * 768 * 6 + 2 * 8 * 4;
    for (const cuda::BlockTraffic& one : counts[0].traffic) {
        EXPECT_GE(static_cast<double>(one.loaded) * 32, loaded);
        EXPECT_LE(static_cast<double>(one.loaded) * 32, 1.15 * loaded);
        EXPECT_GE(static_cast<double>(one.stored) * 32, stored);
        EXPECT_LE(static_cast<double>(one.stored) * 32, 1.15 * stored);
        // Each of three walks over a row loads it again, from the caches.
        EXPECT_GT(one.loads, 2 * one.loaded);
    }
}

void replace_first(std::string& text, const std::string& from, const std::string& to) {
    const std::size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << text;
    text.replace(at, from.size(), to);
}

/// Faults as a change of the code generator could make them.
TEST_F(Ptx, PlantedFaultsAreJudged) {
    EXPECT_EQ(judged([](std::string&) {}), "");
    const auto with = [](const char* from, const char* to) {
        return judged([&](std::string& text) { replace_first(text, from, to); });
    };
    const auto expect = [](const std::string& words, const char* part) {
        EXPECT_NE(words.find(part), std::string::npos) << part << " in: " << words;
    };
    // Without a barrier the second warp's sum is read before it is there: of memory that nobody wrote, or a
    // race.
    expect(with("bar.sync", "// bar.sync"), "of shared memory");
    expect(judged([](std::string& text) {
               const std::size_t first = text.find("bar.sync"), second = text.find("bar.sync", first + 1);
               text.replace(second, 4, "//  ");
           }),
           "a race with thread");
    expect(with("shfl.sync.bfly.b32", "setp.lt.u32 %p1, %r1, 7;\n@%p1 shfl.sync.bfly.b32"),
           "which do not come here");
    expect(with("bar.sync", "setp.lt.u32 %p1, %r1, 32;\n@%p1 bar.sync"), "a race with thread 0");
    expect(with("[fused_0_param_0]", "[fused_0_param_0+8]"), "8 bytes at 8 of the parameter fused_0_param_0");
    expect(with("[fused_0_param_6]", "[fused_0_param_1]"), "read as what nobody writes (.nc)");
    expect(with("[fused_0_param_6]", "[fused_0_param_11]"), "across the end of allocation");
    expect(with(".reqntid 64", ".reqntid 128"), "CUDA_ERROR_INVALID_VALUE");
    expect(with(".target sm_80", ".target sm_90"), "does not run on sm_80");
    expect(with("st.global.f32", "st.global.v4.f32"), "4 elements were expected");
    expect(with("767;", "768;"), "bytes behind allocation");
}

/// Rows that do not fit a block's shared memory are kept in global memory.
TEST_F(Ptx, LongRowsAreKeptInGlobalMemory) {
    for (const std::int64_t columns : {12000, 13000}) {
        Graph plain;
        const Tensor x = given(plain, "x", {3, columns});
        plain.add_result("y", (softmax(x * 2.0)).value());
        const Graph graph = fused(plain);
        Compiler compiler(NvptxTarget{});
        const std::string text = compiler.list(*compiler.add(*bodies_of(graph)[0])).assembly;
        EXPECT_EQ(text.find("st.shared.f32 \t[%rd") == std::string::npos, false);  // of warps, at least
        EXPECT_EQ(text.find(".shared .align 16 .b8 scratch") != std::string::npos, columns == 12000) << text;
        const ReferenceFeed feed = normal_feed(graph);
        const ReferenceRun reference(plain, feed);
        PtxDevice gpu(2);
        const auto got = loaded(run(graph, feed, gpu)[0], DType::f32);
        const auto& expected = reference[plain.results()[0].value].values;
        // A term passes through columns / 64 additions of one thread, 5 of its warp, one of the block's.
        const double bound = static_cast<double>(columns / 64 + 6 + 8) * 0x1p-24;
        for (std::size_t i = 0; i < got.size(); ++i)
            ASSERT_NEAR(got[i], expected[i], bound * expected[i]) << "element " << i;
    }
}

/// 64 threads a block: of at most 130 columns a term passes through 3 additions of its thread, 5 of its warp,
/// one of the block's, and those of 4 rows and a tree of blocks: fewer than a bound for the CPU's code
/// allows.
TEST_F(Ptx, RandomNestsEqualTheReference) {
    PtxDevice gpu(2);
    int caught = 0;
    for (std::uint64_t seed = 0; seed < 25; ++seed) {
        const testing::Case known(seed);
        ASSERT_LE(worst_ratio(fuse(known.plain, testing::everything).graph, known, gpu), 1.0)
            << "seed " << seed;
        if (seed < 10)
            caught += worst_ratio(fuse(testing::with_error(known.plain), testing::everything).graph, known,
                                  gpu) > 1.0;
    }
    EXPECT_GE(caught, 9);  // a result may happen to be zero
}

/// A few steps of GPT-2, its nests as a GPU would run them. The tolerance is that of
/// Gpt2Kernels.TrainAsTheEagerStepDoes, for its reason.
TEST_F(Ptx, TrainsGpt2AsTheCpuDoes) {
    Gpt2Training options;
    options.model = nn::gpt2_config("gpt2-tiny");
    options.batch = 2;
    options.sequence = 16;
    options.passes = {"simplify", "fuse"};
    PtxDevice gpu(5);
    const auto cpu = device_at(levels().back());
    Trainer on_gpu = gpt2_trainer(gpu, options), on_cpu = gpt2_trainer(*cpu, options);
    int on_ptx = 0;
    for (const PlannedNode& node : on_gpu.plan().step().nodes())
        on_ptx += node.kernel == "ptx on the emulated GPU";
    EXPECT_GT(on_ptx, 5);
    expect_trains_alike(on_gpu, on_cpu, SomeTokens(2 * 16), 3);
}

}  // namespace
}  // namespace mantissa
