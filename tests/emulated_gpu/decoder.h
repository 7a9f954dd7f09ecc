// How statements become instructions. decode.cpp lays out a module, the others fill in the instructions of a
// family.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/emulated_gpu/program.h"

namespace mantissa::inline v0::cuda::ptx {

class Decoder {
  public:
    Decoder(const TextModule& module, const Architecture& gpu, const PlaceVariable& place_variable);
    Program whole();

  private:
    struct Symbol {
        Space space = Space::global;
        std::uint64_t address = 0;  ///< of a parameter: its offset
        std::int64_t size = 0;
        Place own;  ///< of a function's parameter: where it lies among the registers
    };

    // decode.cpp
    void check_target();
    void place_module_variables();
    void function(const TextFunction& text);
    void place_kernel_parameters(const TextFunction& text, Kernel& kernel);
    void place_function_parameters(const TextFunction& text, CalledFunction& made);
    void place_variable(const Variable& variable, Kernel* kernel);
    void finish_shared(const TextFunction& text, Kernel& kernel);
    void statement(const Statement& text);
    void check_available(const Statement& text) const;

    // decode_operands.cpp
    [[noreturn]] void refuse(const std::string& why) const;
    Place add_register(int width);
    Place constant(std::uint64_t bits, int width);
    /// A register of the name; nowhere for "_".
    Place destination(const TextOperand& operand, int width);
    /// A register, a special one, or a number, of so many bytes.
    Place source(const TextOperand& operand, int width, bool is_float = false);
    Place predicate(const std::string& name);
    /// Also sets `operand_negated` of the instruction.
    Place predicate_source(const TextOperand& operand, Instruction& made);
    Place number_of_type(const TextOperand& operand, int width, bool is_float);
    const Symbol* find_symbol(const std::string& name) const;
    std::uint64_t address_of(const std::string& name) const;
    /// Exactly so many, or up to `most`.
    void need_operands(std::size_t least, std::size_t most = 0) const;
    const TextOperand& operand(std::size_t index) const { return now_->operands[index]; }
    const std::vector<std::string>& op() const { return now_->op; }
    bool has(const char* word) const;
    /// The address's register into `a`, its offset.
    void address(const TextOperand& operand, Instruction& made);
    Instruction fresh() const;
    void add(Instruction made) { program_.code.push_back(std::move(made)); }

    // decode_arithmetic.cpp
    bool arithmetic();
    void three_operands(Instruction& made, const std::string& name);
    void lane_instruction(LaneFunction lanes, const std::vector<int>& widths);
    void convert();
    void move();
    void move_from_vector();
    void convert_address();
    void compare();
    void set_from_comparison();
    void select();
    void predicate_logic();
    void class_test();

    // decode_memory.cpp
    bool memory();
    void load_or_store(bool is_load);
    void where_of(const TextOperand& operand, Instruction& made, bool is_store);
    void parameter_access(const TextOperand& operand, Instruction& made, std::int64_t bytes, bool is_store);
    void atomic();
    void copy_async();
    void matrix_rows(bool is_load);

    // decode_warp.cpp
    bool control();
    bool across_lanes();
    void branch();
    void call();
    void barrier();
    void shuffle();
    void vote();
    void match();
    void reduce();
    void matrix_product();

    // decode_warpgroup.cpp
    bool warpgroup();
    void warpgroup_product();
    std::vector<TextOperand> registers_of(const TextOperand& vector, std::size_t count) const;

    const TextModule& module_;
    const Architecture& gpu_;
    const PlaceVariable& place_variable_;
    Program program_;
    std::map<std::string, Symbol> module_symbols_, symbols_;
    std::map<std::pair<std::uint64_t, int>, Place> constants_;
    std::map<std::string, Place> registers_;
    const TextFunction* function_ = nullptr;
    const Statement* now_ = nullptr;
    Kernel* kernel_ = nullptr;    ///< null within a function
    bool functions_add_ = false;  ///< atomically to global memory
    std::int64_t local_bytes_ = 0, function_local_bytes_ = 0, module_shared_bytes_ = 0;
    std::vector<std::pair<std::size_t, std::string>> branches_;  ///< instruction, label
    std::vector<std::pair<std::size_t, std::vector<std::string>>> branch_tables_;
    std::vector<std::uint32_t> starts_;  ///< of each statement of the function
};

}  // namespace mantissa::cuda::ptx
