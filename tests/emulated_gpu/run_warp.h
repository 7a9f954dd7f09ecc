// Instructions that are neither arithmetic within a lane nor memory: control, predicates, exchange between
// the lanes of a warp, barriers, matrix products.
#pragma once

#include "tests/emulated_gpu/program.h"

namespace mantissa::inline v0::cuda::ptx {

void run_lanes(Warp& warp, const Instruction& instruction);
/// With the processor's rounding mode set.
void run_rounded_lanes(Warp& warp, const Instruction& instruction);
void run_compare(Warp& warp, const Instruction& instruction);
void run_set(Warp& warp, const Instruction& instruction);
void run_select(Warp& warp, const Instruction& instruction);
void run_select_by_sign(Warp& warp, const Instruction& instruction);
void run_class_test(Warp& warp, const Instruction& instruction);
void run_predicate_logic(Warp& warp, const Instruction& instruction);
void run_pack(Warp& warp, const Instruction& instruction);
void run_unpack(Warp& warp, const Instruction& instruction);
void run_copy_arguments(Warp& warp, const Instruction& instruction);

void run_nothing(Warp& warp, const Instruction& instruction);
void run_branch(Warp& warp, const Instruction& instruction);
void run_branch_by_index(Warp& warp, const Instruction& instruction);
void run_call(Warp& warp, const Instruction& instruction);
void run_return(Warp& warp, const Instruction& instruction);
void run_exit(Warp& warp, const Instruction& instruction);
void run_trap(Warp& warp, const Instruction& instruction);

void run_barrier(Warp& warp, const Instruction& instruction);
void run_warp_barrier(Warp& warp, const Instruction& instruction);
void run_shuffle(Warp& warp, const Instruction& instruction);
void run_vote(Warp& warp, const Instruction& instruction);
void run_active_mask(Warp& warp, const Instruction& instruction);
void run_match(Warp& warp, const Instruction& instruction);
void run_reduce(Warp& warp, const Instruction& instruction);
void run_elect(Warp& warp, const Instruction& instruction);

/// The product that `mma.sync` computes; `number` of the instruction is its place in the list.
struct MatrixShape {
    const char* shape;  ///< "m16n8k16"
    const char* types;  ///< of d, a, b, c
    int k;
    int a_registers, b_registers, c_registers;
    int min_architecture, min_version;
};
/// -1 if there is none such.
int find_matrix_product(const std::string& shape, const std::string& types);
const MatrixShape& matrix_shape(int index);
void run_matrix_product(Warp& warp, const Instruction& instruction);

/// wgmma.mma_async: many: the sums, then four registers of the left operand, where it has any, else `a` is
/// its descriptor; b: the right one's; c: whether to add to the sums; target: columns; number: as below.
void run_warpgroup_product(Warp& warp, const Instruction& instruction);
constexpr std::uint32_t left_is_transposed = 1, right_is_transposed = 2, product_of_bf16 = 4;
void run_product_fence(Warp& warp, const Instruction& instruction);
void run_commit_products(Warp& warp, const Instruction& instruction);
void run_wait_products(Warp& warp, const Instruction& instruction);
void run_proxy_fence(Warp& warp, const Instruction& instruction);

}  // namespace mantissa::cuda::ptx
