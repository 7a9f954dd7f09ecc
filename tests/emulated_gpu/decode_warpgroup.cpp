// Products of four warps: wgmma, and the fence that shows it what threads have written.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>

#include "tests/emulated_gpu/decoder.h"
#include "tests/emulated_gpu/run_warp.h"

namespace mantissa::inline v0::cuda::ptx {

bool Decoder::warpgroup() {
    Instruction made = fresh();
    if (op()[0] == "fence" && has("proxy") && has("async")) {
        made.run = has("global") ? run_nothing : run_proxy_fence;
        return add(std::move(made)), true;
    }
    if (op()[0] != "wgmma") return false;
    if (!has("sync") || !has("aligned")) refuse("it is wgmma.*.sync.aligned");
    program_.by_warpgroups = true;
    if (has("mma_async")) return warpgroup_product(), true;
    if (has("fence")) {
        made.run = run_product_fence;
    } else if (has("commit_group")) {
        made.run = run_commit_products;
    } else if (has("wait_group")) {
        need_operands(1);
        made.run = run_wait_products;
        made.number = static_cast<std::uint32_t>(operand(0).bits);
    } else {
        return false;
    }
    add(std::move(made));
    return true;
}

std::vector<TextOperand> Decoder::registers_of(const TextOperand& vector, std::size_t count) const {
    if (vector.parts.size() != count)
        refuse(fmt::format("{} registers were expected, not {}", count, vector.parts.size()));
    return vector.parts;
}

/// wgmma.mma_async.sync.aligned.m64nNk16.f32.type.type d, a, b-desc, scale-d, 1, 1{, trans-a}, trans-b
void Decoder::warpgroup_product() {
    const bool is_bf16 = op().back() == "bf16";
    int columns = 0, terms = 0;
    if (op().size() != 8 || std::sscanf(op()[4].c_str(), "m64n%dk%d", &columns, &terms) != 2 || terms != 16 ||
        op()[5] != "f32" || op()[6] != op()[7] || (!is_bf16 && op().back() != "f16"))
        refuse(fmt::format("'{}' is not emulated", fmt::join(op(), ".")));
    if (columns % 8 != 0 || columns < 8 || columns > 256) refuse("it has 8 to 256 columns, a multiple of 8");
    const bool in_registers = operand(1).kind == TextOperand::Kind::vector;
    need_operands(in_registers ? 7 : 8);
    if (operand(4).bits != 1 || operand(5).bits != 1) refuse("operands with another sign are not emulated");
    const auto flag = [&](std::size_t at, std::uint32_t is) {
        if (operand(at).kind != TextOperand::Kind::integer || operand(at).bits > 1)
            refuse("whether an operand is transposed is said by 0 or 1");
        return operand(at).bits == 1 ? is : 0;
    };
    Instruction made = fresh();
    made.run = run_warpgroup_product;
    made.target = static_cast<std::uint32_t>(columns);
    made.number = (is_bf16 ? product_of_bf16 : 0) | flag(in_registers ? 6 : 7, right_is_transposed);
    for (const TextOperand& one : registers_of(operand(0), static_cast<std::size_t>(columns) / 2))
        made.many.push_back(destination(one, 4));
    if (in_registers) {
        for (const TextOperand& one : registers_of(operand(1), 4)) made.many.push_back(source(one, 4));
    } else {
        made.number |= flag(6, left_is_transposed);
        made.a = source(operand(1), 8);
    }
    made.b = source(operand(2), 8);
    made.c = predicate_source(operand(3), made);
    made.flops = 2 * 16 * columns * terms / warp_lanes;
    add(std::move(made));
}

}  // namespace mantissa::cuda::ptx
