// The CPU's kernel table: binds the pure functions of this room to operations of the graph.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mantissa/base/thread_pool.h"
#include "mantissa/codegen/compiler.h"
#include "mantissa/device/cpu/contraction/problem.h"
#include "mantissa/device/cpu/isa.h"
#include "mantissa/device/cpu/kernels/contraction_parts.h"
#include "mantissa/device/device.h"
#include "mantissa/ranks/ranks.h"

namespace mantissa::inline v0::on_cpu {

/// The threads and ranks that kernels run on, and their instructions.
struct Context {
    ThreadPool& pool;
    Isa isa;
    Ranks* ranks = nullptr;  ///< null: it is alone
    int threads = 1;         ///< that contractions are cut for
};

/// A unit that multiplies matrices: a level, with operands of one type, as they are stored or in another
/// format.
struct ContractionUnit {
    Isa isa;
    DType operands;
    Multiply multiply;
    std::string name;  ///< as in "gemm bf16*bf16+f32 amx"
    Arithmetic arithmetic;
    int threads = 1;  ///< that its contractions are cut for

    /// Why it cannot multiply a problem's tensors, whatever their shapes; empty if it can.
    std::string refusal(const Problem& problem) const;
    /// The parts of a problem, as the unit multiplies them.
    std::vector<ContractionPart> parts(const Problem& problem) const;
};

/// The units of this level and below, in order of preference.
std::vector<ContractionUnit> contraction_units(Isa best, int threads);

/// A kernel without workspace, that writes over no operand. `refuse` says why it cannot do a problem; empty:
/// it can.
inline Kernel kernel_of(std::string name, std::function<Launch(const Problem&)> launch,
                        std::function<std::string(const Problem&)> refuse = nullptr) {
    const auto prepare = [launch = std::move(launch),
                          refuse = std::move(refuse)](const Problem& problem) -> Expected<PreparedKernel> {
        std::string reason = refuse ? refuse(problem) : "";
        if (!reason.empty()) return Unexpected{std::move(reason)};
        return PreparedKernel{.launch = launch(problem)};
    };
    return {.name = std::move(name), .prepare = prepare};
}

inline std::int64_t no_workspace(const Problem&) { return 0; }

/// The attribute of operations that take or join parts of tensors.
inline int axis_of(const Problem& problem) { return static_cast<int>(problem.attributes.integer("axis")); }

/// By operation, in order of preference.
using KernelTable = std::map<std::string, std::vector<Kernel>, std::less<>>;

void add_contraction_kernels(KernelTable& table, const Context& context);
void add_grouped_contraction_kernels(KernelTable& table, const Context& context);
/// Puts its kernels before the contractions' kernels, which take any groups.
void add_grouped_convolution_kernels(KernelTable& table, const Context& context);
void add_loss_kernels(KernelTable& table, const Context& context);
void add_attention_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler);
void add_quantized_kernels(KernelTable& table, const Context& context);
void add_row_kernels(KernelTable& table, const Context& context);
void add_image_kernels(KernelTable& table, const Context& context);
void add_movement_kernels(KernelTable& table, const Context& context);
void add_reduction_kernels(KernelTable& table, const Context& context);
void add_order_kernels(KernelTable& table, const Context& context);
void add_random_kernels(KernelTable& table, const Context& context);
void add_collective_kernels(KernelTable& table, const Context& context);
/// Kernels of fused nodes and of composites. The compiler must outlive the table.
void add_nest_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler);
void add_elementwise_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler);
void add_fused_contraction_kernels(KernelTable& table, const Context& context, codegen::Compiler& compiler);

}  // namespace mantissa::on_cpu
