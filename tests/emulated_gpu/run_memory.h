// The execution of memory instructions.
#pragma once

#include "tests/emulated_gpu/program.h"

namespace mantissa::inline v0::cuda::ptx {

void run_load(Warp& warp, const Instruction& instruction);
void run_store(Warp& warp, const Instruction& instruction);
void run_atomic(Warp& warp, const Instruction& instruction);
void run_copy_async(Warp& warp, const Instruction& instruction);
void run_commit_group(Warp& warp, const Instruction& instruction);
void run_wait_group(Warp& warp, const Instruction& instruction);
void run_load_matrix(Warp& warp, const Instruction& instruction);
void run_store_matrix(Warp& warp, const Instruction& instruction);

/// How an element of so many bytes gets into a register of a width, or out of it.
ElementMove load_move(int bytes, int width, bool is_signed);
ElementMove store_move(int bytes, int width);

/// "and.b32", "add.f32": what an atomic instruction makes of memory and operand. Null if there is none.
using AtomicFunction = std::uint64_t (*)(std::uint64_t memory, std::uint64_t operand, std::uint64_t third);
AtomicFunction atomic_function(const std::string& name);
std::uint32_t number_of_atomic(const std::string& name);

}  // namespace mantissa::cuda::ptx
