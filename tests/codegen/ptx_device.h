// The CPU, but with fused kernels as a GPU would run them (ptx_kernel.h), in blocks of few rows. Contractions
// with a tail stay the CPU's.
#pragma once

#include <map>

#include "mantissa/device/cpu/kernels/fused_sums.h"
#include "mantissa/passes/contraction_tail.h"
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
        fused_.push_back({.name = "ptx on the host",
                          .refusal = [](const Problem& problem) -> std::string {
                              const Graph& body = problem.attributes.body("body").graph();
                              return contraction_of(body) >= 0 ? "a contraction" : "";
                          },
                          .prepare = [this](const Problem& problem) { return prepare(problem); }});
        for (const Kernel& kernel : DeviceAround::kernels("fused")) fused_.push_back(kernel);
    }

    std::span<const Kernel> kernels(std::string_view op) const override {
        return op == "fused" ? fused_ : DeviceAround::kernels(op);
    }

  private:
    Launch prepare(const Problem& problem) {
        const Graph& body = problem.attributes.body("body").graph();
        std::vector<NodeId> nodes;
        for (std::size_t id = 0; id < body.size(); ++id)
            if (body.node(static_cast<NodeId>(id)).op->name != "input")
                nodes.push_back(static_cast<NodeId>(id));
        const Nest nest = *make_nest(body, nodes, [](Value) { return false; });
        const PtxKernel::Rows rows{.count = nest.flat ? nest.rows * nest.columns : nest.rows,
                                   .per_block = nest.flat ? 100 * rows_per_block_ : rows_per_block_};
        std::shared_ptr<PtxKernel>& kernel = made_[codegen::pseudo_code(codegen::lower(body))];
        if (!kernel) kernel = std::make_shared<PtxKernel>(body, gpu_);
        return [this, kernel, rows](const Operands& operands) {
            std::vector<float> sums = kernel->launch(operands.inputs, operands.outputs, rows);
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
