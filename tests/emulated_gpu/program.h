// A module of PTX made ready to run: each instruction with the function that executes it and the places of
// its registers.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "mantissa/device/cuda/planned/planned_gpu.h"
#include "tests/emulated_gpu/lane_functions.h"
#include "tests/emulated_gpu/ptx_text.h"
#include "tests/emulated_gpu/races.h"

namespace mantissa::inline v0::cuda::ptx {

struct Warp;

/// Where 32 numbers lie: in a warp's registers, among the module's constants, or in the special registers.
struct Place {
    enum Base : std::uint8_t { registers, constants, specials, nowhere };
    std::uint32_t offset = 0;
    Base base = nowhere;
    std::uint8_t width = 0;  ///< bytes of a lane; 0: a predicate, one bit each
};

/// Moves one element of each lane between memory and a register.
using ElementMove = void (*)(std::byte* lanes, std::byte* const* places, std::int64_t offset,
                             std::uint32_t mask);

/// Facts that memory instructions know beyond their operands.
struct MemoryAccess {
    enum class Where : std::uint8_t {
        generic,
        global,
        shared,
        local,
        parameters,
        own_parameters,
        constants,
        parameters_at
    };
    Where where = Where::generic;
    std::uint8_t bytes = 0;  ///< of an element
    Touch touch = Touch::read;
    ElementMove move = nullptr;
    bool volatile_ = false;
};

struct Instruction {
    using Run = void (*)(Warp& warp, const Instruction& instruction);
    Run run = nullptr;
    LaneFunction lanes = nullptr;
    LaneTest test = nullptr;
    Place d, a, b, c, e;
    Place guard;
    bool guard_negated = false;
    bool operand_negated = false;  ///< of a predicate that is read: !%p
    std::uint32_t number = 0;
    std::uint32_t rounding = 0;  ///< the processor's mode, if not to nearest
    std::int64_t offset = 0;     ///< added to an address
    std::uint32_t target = 0;    ///< of a branch or a call
    std::int32_t line = 0;
    std::int32_t flops = 0;  ///< of a lane
    MemoryAccess memory;
    std::vector<Place> many;
    std::vector<std::uint32_t> targets;
};

struct Parameter {
    std::string name;
    std::int64_t offset = 0, size = 0;
};

/// A function's own places, which calls need, as no function calls itself.
struct CalledFunction {
    std::uint32_t first = 0;  ///< instruction
    Place returns_to;         ///< by lane, 32 bits
    std::vector<Place> parameters, results;
    std::vector<std::int64_t> parameter_bytes, result_bytes;  ///< a lane
};

struct Kernel {
    std::string name;
    std::uint32_t first = 0;
    std::vector<Parameter> parameters;
    std::int64_t parameter_bytes = 0;
    std::int64_t static_shared = 0;  ///< bytes; dynamic ones lie behind
    std::int64_t local = 0;          ///< bytes a thread
    int registers = 0;               ///< of 32 bits, by name: more than a compiler would need
    int required_threads[3] = {0, 0, 0};
    int max_threads = 0;          ///< of a block, if the text says
    bool adds_to_global = false;  ///< atomics whose order would show
};

struct Program {
    std::string target;
    int version = 0;
    std::vector<Instruction> code;
    std::vector<std::byte> constants;
    std::int64_t register_bytes = 0;  ///< of a warp
    bool by_warpgroups = false;       ///< has wgmma
    std::map<std::string, Kernel> kernels;
    std::map<std::string, CalledFunction> functions;
    std::vector<std::string> lines;
};

/// A variable of the module gets memory: gives its address.
using PlaceVariable = std::function<std::uint64_t(const Variable& variable)>;

/// Throws TextError for what this GPU's driver would not take, and for what is not emulated.
Program decode(const TextModule& module, const Architecture& gpu, const PlaceVariable& place_variable);

// Special registers, each 32 numbers of 32 bits, in this order.
enum class Special {
    tid_x,
    tid_y,
    tid_z,
    ntid_x,
    ntid_y,
    ntid_z,
    ctaid_x,
    ctaid_y,
    ctaid_z,
    nctaid_x,
    nctaid_y,
    nctaid_z,
    laneid,
    warpid,
    nwarpid,
    smid,
    nsmid,
    gridid,
    lanemask_eq,
    lanemask_le,
    lanemask_lt,
    lanemask_ge,
    lanemask_gt,
    dynamic_smem_size,
    total_smem_size,
    count_of_them
};

// Where generic addresses are shared or local memory.
constexpr std::uint64_t shared_window = std::uint64_t{1} << 32, local_window = std::uint64_t{2} << 32;
constexpr std::uint64_t window_bytes = std::uint64_t{1} << 32;

}  // namespace mantissa::cuda::ptx
