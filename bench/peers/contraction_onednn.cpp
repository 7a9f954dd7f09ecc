// oneDNN's matmul at one of the shapes of bench/contraction.cpp, as the distribution packages it (libdnnl-dev
// on Debian). bench/peers/contraction.py compiles and runs it:
//   contraction_onednn PASS TYPE OUT IN CALLS, with PASS one of forward dX dW and TYPE one of f32 bf16
// prints the implementation that oneDNN chose, then the seconds of each call: from plain row-major operands,
// and from operands in the layout that oneDNN prefers, reordered before the clock runs.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <exception>
#include <random>
#include <string>
#include <vector>

namespace {

using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;
using Layout = dnnl::memory::desc;

constexpr std::int64_t tokens = 4096;

/// out [m, n] = a [m, k] b [k, n], each operand as it is stored.
struct Problem {
    Layout a, b, out;
};

Layout row_major(std::int64_t rows, std::int64_t columns, Type type) {
    return {Dims{rows, columns}, type, Dims{columns, 1}};
}
Layout transposed(std::int64_t rows, std::int64_t columns, Type type) {
    return {Dims{rows, columns}, type, Dims{1, rows}};
}

Problem problem_of(const std::string& pass, Type type, std::int64_t out, std::int64_t in) {
    if (pass == "forward")
        return {row_major(tokens, in, type), transposed(in, out, type), row_major(tokens, out, type)};
    if (pass == "dX")
        return {row_major(tokens, out, type), row_major(out, in, type), row_major(tokens, in, type)};
    // Gradients of weights are written in FP32.
    return {transposed(out, tokens, type), row_major(tokens, in, type), row_major(out, in, Type::f32)};
}

/// Normal values; those of FP32 are rounded by oneDNN's own reorder.
void fill(dnnl::memory& memory, const dnnl::engine& engine, dnnl::stream& stream) {
    Layout plain = memory.get_desc();
    plain.data.data_type = dnnl_f32;
    dnnl::memory values(plain, engine);
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    auto* const begin = static_cast<float*>(values.get_data_handle());
    const std::size_t count = plain.get_size() / sizeof(float), distinct = 1 << 16;
    for (std::size_t i = 0; i < count; ++i) begin[i] = i < distinct ? normal(random) : begin[i - distinct];
    dnnl::reorder(values, memory).execute(stream, values, memory);
    stream.wait();
}

/// Memory that a call reads and writes; two of them take turns, so that none lies in a cache from the call
/// before.
struct Operands {
    dnnl::memory a, b, out;
};

Operands operands(const Problem& stored, const dnnl::matmul::primitive_desc& wanted,
                  const dnnl::engine& engine, dnnl::stream& stream) {
    const auto filled = [&](const Layout& from, const Layout& to) {
        dnnl::memory plain(from, engine), ready(to, engine);
        fill(plain, engine, stream);
        dnnl::reorder(plain, ready).execute(stream, plain, ready);
        stream.wait();
        return ready;
    };
    return {filled(stored.a, wanted.src_desc()), filled(stored.b, wanted.weights_desc()),
            dnnl::memory(wanted.dst_desc(), engine)};
}

void measure(const char* name, const Problem& stored, const Problem& asked, int calls,
             const dnnl::engine& engine) {
    dnnl::stream stream(engine);
    const dnnl::matmul::primitive_desc description(dnnl::matmul::desc(asked.a, asked.b, asked.out), engine);
    const dnnl::matmul matmul(description);
    std::vector<Operands> sets;
    for (int i = 0; i < 2; ++i) sets.push_back(operands(stored, description, engine, stream));
    std::printf("%s %s", name, description.impl_info_str());
    for (int call = -1; call < calls; ++call) {  // the first is not counted
        const Operands& set = sets[call & 1];
        const auto start = std::chrono::steady_clock::now();
        matmul.execute(stream, {{DNNL_ARG_SRC, set.a}, {DNNL_ARG_WEIGHTS, set.b}, {DNNL_ARG_DST, set.out}});
        stream.wait();
        const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
        if (call >= 0) std::printf(" %.6f", passed.count());
    }
    std::printf("\n");
}

/// Layouts left to oneDNN.
Layout any(const Layout& layout) {
    return {layout.dims(), layout.data_type(), dnnl::memory::format_tag::any};
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 6) {
        std::fprintf(stderr, "usage: contraction_onednn forward|dX|dW f32|bf16 OUT IN CALLS\n");
        return 2;
    }
    try {
        const Type type = std::string(argv[2]) == "bf16" ? Type::bf16 : Type::f32;
        const Problem plain = problem_of(argv[1], type, std::atoll(argv[3]), std::atoll(argv[4]));
        const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
        const int calls = std::atoi(argv[5]);
        measure("plain", plain, plain, calls, engine);
        measure("own", plain, {any(plain.a), any(plain.b), plain.out}, calls, engine);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "oneDNN: %s\n", error.what());
        return 1;
    }
}
