// The CPU, but with fused kernels on the emulated GPU (ptx_kernel.h), in blocks of few rows. Contractions
// with an epilogue stay the CPU's.
#pragma once

#include <map>

#include "mantissa/device/cpu/kernels/fused_stores.h"
#include "mantissa/graph/graph.h"
#include "mantissa/passes/analysis/contraction_epilogue.h"
#include "tests/codegen/ptx_kernel.h"
#include "tests/support/device_around.h"
#include "tests/support/run_graph.h"

namespace mantissa::testing {

class PtxDevice final : public DeviceAround {
  public:
    explicit PtxDevice(std::int64_t rows_per_block, int threads_per_block = 64)
        : DeviceAround(device_at(levels().back())),
          rows_per_block_(rows_per_block),
          gpu_{.threads = threads_per_block},
          pool_(1) {
        const auto prepare_nest = [this](const Problem& problem) -> Expected<PreparedKernel> {
            if (contraction_of(problem.attributes.body("body").graph()) >= 0)
                return Unexpected{"a contraction"};
            return PreparedKernel{.launch = prepare(problem)};
        };
        fused_.push_back({.name = "ptx on the emulated GPU", .prepare = prepare_nest});
        for (const Kernel& kernel : DeviceAround::kernels("fused")) fused_.push_back(kernel);
    }

    std::span<const Kernel> kernels(std::string_view op) const override {
        return op == "fused" ? fused_ : DeviceAround::kernels(op);
    }

  private:
    Launch prepare(const Problem& problem) {
        const Graph& body = problem.attributes.body("body").graph();
        const Nest nest = *make_nest(body);
        const PtxKernel::Rows rows{.count = nest.flat ? nest.rows * nest.columns : nest.rows,
                                   .per_block = nest.flat ? 100 * rows_per_block_ : rows_per_block_};
        std::shared_ptr<PtxKernel>& kernel = made_[codegen::pseudo_code(codegen::lower(body))];
        if (!kernel) kernel = std::make_shared<PtxKernel>(body, gpu_);
        const auto sizes = [](std::span<const Type> types) {
            std::vector<std::size_t> bytes;
            for (const Type& type : types)
                bytes.push_back(static_cast<std::size_t>(type.shape.elements()) * size_of(type.dtype));
            return bytes;
        };
        return [this, kernel, rows, in = sizes(problem.inputs),
                out = sizes(problem.outputs)](const Operands& operands) {
            std::vector<std::span<const std::byte>> inputs;
            std::vector<std::span<std::byte>> outputs;
            for (std::size_t i = 0; i < in.size(); ++i) inputs.emplace_back(operands.inputs[i], in[i]);
            for (std::size_t i = 0; i < out.size(); ++i) outputs.emplace_back(operands.outputs[i], out[i]);
            std::vector<float> sums = kernel->launch(inputs, outputs, rows);
            on_cpu::finish_sums(pool_, kernel->nest(), sums.data(), rows.blocks(), operands.outputs);
        };
    }

    std::int64_t rows_per_block_;
    codegen::NvptxTarget gpu_;
    ThreadPool pool_;
    std::vector<Kernel> fused_;
    std::map<std::string, std::shared_ptr<PtxKernel>> made_;
};

}  // namespace mantissa::testing
