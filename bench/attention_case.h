// Attention for the benchmarks: the kernels on operands of their own, and the eager graph of the same shape.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "mantissa/base/buffer.h"
#include "mantissa/base/random.h"
#include "mantissa/device/cpu/attention/attention.h"
#include "mantissa/device/cpu/attention/places.h"
#include "mantissa/graph/gradient.h"
#include "mantissa/graph/graph.h"
#include "mantissa/numerics/formats.h"
#include "mantissa/passes/simplify.h"

namespace mantissa::on_cpu {

struct AttentionShape {
    std::int64_t heads, positions, head_size;
    bool causal;
    DType dtype = DType::f32;
    bool with_plain = true;
    bool interleaved = false;

    AttentionSize size() const {
        return {.heads = heads,
                .queries = positions,
                .keys = positions,
                .head_size = head_size,
                .causal = causal,
                .scale = 1 / std::sqrt(static_cast<float>(head_size)),
                .dtype = dtype};
    }
    std::int64_t elements() const { return heads * positions * head_size; }
    double pairs() const {
        const auto T = static_cast<double>(positions);
        return static_cast<double>(heads) * (causal ? T * (T + 1) / 2 : T * T);
    }
};

inline Buffer attention_tensor(const AttentionShape& shape, std::uint32_t operation) {
    Buffer buffer(static_cast<std::size_t>(shape.elements()) * size_of(shape.dtype), "benchmark");
    const RandomStream random{.seed = 1, .operation = operation};
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
        const float value = random.normal(static_cast<std::uint64_t>(i % 65536));
        if (shape.dtype == DType::f32)
            buffer.as<float>()[static_cast<std::size_t>(i)] = value;
        else
            store_from_f64(buffer.data(), shape.dtype, i, static_cast<double>(value));
    }
    return buffer;
}

/// The textbook form in FP32: every step an operation, the scores in memory.
inline Graph eager_attention(const AttentionShape& shape, bool backward) {
    Graph graph;
    const std::int64_t T = shape.positions;
    std::vector<Tensor> x;
    for (int i = 0; i < 4; ++i)
        x.emplace_back(graph, graph.add_input("x" + std::to_string(i),
                                              {DType::f32, {1, shape.heads, T, shape.head_size}}));
    Tensor scores =
        matmul(x[0], x[1], {.transpose_b = true}) * (1 / std::sqrt(static_cast<double>(shape.head_size)));
    if (shape.causal)
        scores = select(less_equal(iota(graph, {T, T}, 1), iota(graph, {T, T}, 0)), scores,
                        constant(graph, -INFINITY));
    const Tensor o = matmul(softmax(scores), x[2]);
    graph.add_result("o", o.value());
    if (backward) {
        const auto gradients = backpropagate(graph, {&o, 1}, {&x[3], 1}, {x.data(), 3});
        for (const Tensor& gradient : gradients) graph.add_result("gradient", gradient.value());
    }
    return simplify(graph);
}

/// The kernels that the device chooses.
inline const AttentionKernels& kernels_for(const AttentionSize& size, Isa isa) {
    const AttentionKernels* const of_unit = attention_kernels(bf16_unit(isa));
    return of_unit && refusal(*of_unit, size).empty() ? *of_unit : attention_kernels(isa);
}

/// The kernels on operands of their own.
class AttentionRun {
  public:
    AttentionRun(const AttentionShape& shape, Isa isa, ThreadPool& pool)
        : size_(shape.size()),
          interleaved_(shape.interleaved),
          kernels_(kernels_for(size_, isa)),
          pool_(pool) {
        for (std::uint32_t i = 0; i < 8; ++i) {
            AttentionShape whole = shape;
            if (interleaved_ && (i == 0 || i == 5)) whole.heads *= 3;
            x_.push_back(attention_tensor(whole, i));
        }
        lse_ = Buffer(static_cast<std::size_t>(shape.heads * shape.positions) * 4, "log-sum-exp");
        const std::int64_t bytes = std::max(attention_workspace(kernels_, size_, pool.threads()),
                                            attention_grad_workspace(kernels_, size_, pool.threads()));
        workspace_ = Buffer(static_cast<std::size_t>(bytes), "workspace");
    }
    void run(bool backward) {
        float *const lse = lse_.as<float>().data(), *const work = workspace_.as<float>().data();
        attention(kernels_,
                  {.size = size_,
                   .q = at<ConstHeads>(0),
                   .k = at<ConstHeads>(1),
                   .v = at<ConstHeads>(2),
                   .o = at<Heads>(4),
                   .lse = lse,
                   .workspace = work},
                  pool_);
        if (!backward) return;
        attention_grad(kernels_,
                       {.size = size_,
                        .d_o = at<ConstHeads>(3),
                        .q = at<ConstHeads>(0),
                        .k = at<ConstHeads>(1),
                        .v = at<ConstHeads>(2),
                        .o = at<ConstHeads>(4),
                        .lse = lse,
                        .dq = at<Heads>(5),
                        .dk = at<Heads>(6),
                        .dv = at<Heads>(7),
                        .workspace = work},
                       pool_);
    }

    const AttentionKernels& kernels() const { return kernels_; }
    std::int64_t workspace_bytes() const { return static_cast<std::int64_t>(workspace_.size()); }
    /// Bytes of operands and results.
    std::int64_t tensor_bytes() const {
        std::size_t bytes = lse_.size();
        for (const Buffer& x : x_) bytes += x.size();
        return static_cast<std::int64_t>(bytes);
    }

  private:
    /// [B, H, T, D], one tensor after another; or [B, T, H, D], and [B, T, 3, H, D] for groups of three, the
    /// layout of GPT-2's linear layers.
    template <class T>
    T at(std::size_t i) {
        const std::int64_t H = size_.heads, D = size_.head_size;
        if (!interleaved_) return {x_[i].data(), dense_strides(H, size_.queries, D)};
        const bool of_three = i < 3 || i > 4;
        const std::int64_t width = (of_three ? 3 : 1) * H * D;
        const std::size_t first = i < 3 ? 0 : i > 4 ? 5 : i;
        const auto start = (i - first) * static_cast<std::size_t>(H * D) * size_of(size_.dtype);
        return {x_[first].data() + start, {.sequence = size_.queries * width, .head = D, .position = width}};
    }

    AttentionSize size_;
    bool interleaved_;
    const AttentionKernels& kernels_;
    ThreadPool& pool_;
    std::vector<Buffer> x_;  // q, k, v, do, o, dq, dk, dv
    Buffer lse_, workspace_;
};

}  // namespace mantissa::on_cpu
