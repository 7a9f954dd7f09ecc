// The CPU, but with fused kernels as a GPU would run them (ptx_kernel.h), in blocks of few rows. Contractions
// with a tail stay the CPU's.
#pragma once

#include <map>

#include "mantissa/device/cpu/kernels/fused_sums.h"
#include "mantissa/passes/contraction_tail.h"
#include "tests/codegen/ptx_kernel.h"
#include "tests/support/run_graph.h"

namespace mantissa::testing {

class PtxDevice final : public Device {
  public:
    explicit PtxDevice(std::int64_t rows_per_block, int threads_per_block = 64)
        : rows_per_block_(rows_per_block),
          gpu_{.threads = threads_per_block},
          cpu_(device_at(levels().back())),
          pool_(1) {
        fused_.push_back({.name = "ptx on the host",
                          .refusal = [](const Problem& problem) -> std::string {
                              const Graph& body = problem.attributes.body("body").graph();
                              return contraction_of(body) >= 0 ? "a contraction" : "";
                          },
                          .prepare = [this](const Problem& problem) { return prepare(problem); }});
        for (const Kernel& kernel : cpu_->kernels("fused")) fused_.push_back(kernel);
    }

    const Target& target() const override { return cpu_->target(); }
    std::span<const Kernel> kernels(std::string_view op) const override {
        return op == "fused" ? std::span<const Kernel>(fused_) : cpu_->kernels(op);
    }
    std::unique_ptr<DeviceMemory> allocate(std::size_t bytes, const char* purpose) override {
        return cpu_->allocate(bytes, purpose);
    }
    void copy_to_device(std::byte* to, std::span<const std::byte> from) override {
        cpu_->copy_to_device(to, from);
    }
    void copy_to_host(std::span<std::byte> to, const std::byte* from) override {
        cpu_->copy_to_host(to, from);
    }
    void copy_on_device(std::byte* to, const std::byte* from, std::size_t bytes) override {
        cpu_->copy_on_device(to, from, bytes);
    }
    Peaks measure_peaks(DeviceMemory& scratch) override { return cpu_->measure_peaks(scratch); }
    void finish_kernels() override { cpu_->finish_kernels(); }
    FormatPeaks measure_formats() override { return cpu_->measure_formats(); }
    void launch(const Launch& launch, const Operands& operands) override { cpu_->launch(launch, operands); }
    std::unique_ptr<Event> record() override { return cpu_->record(); }
    void wait(const Event& event) override { cpu_->wait(event); }
    double seconds_between(const Event& first, const Event& second) override {
        return cpu_->seconds_between(first, second);
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
            cpu::finish_sums(pool_, kernel->nest(), sums.data(), rows.blocks(), operands.outputs);
        };
    }

    std::int64_t rows_per_block_;
    codegen::NvptxTarget gpu_;
    std::unique_ptr<Device> cpu_;
    ThreadPool pool_;
    std::vector<Kernel> fused_;
    std::map<std::string, std::shared_ptr<PtxKernel>> made_;
};

}  // namespace mantissa::testing
