// PTX as its text has it: statements with their operands, nothing looked up yet but the scopes of names. The
// language: NVIDIA's Parallel Thread Execution ISA, chapters 4 and 5.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::inline v0::cuda::ptx {

/// The text cannot be taken: what the driver's compiler would refuse, or what is not emulated.
struct TextError {
    int line = 0;  ///< from 1; 0: of the module as a whole
    std::string message;
};

struct TextOperand {
    enum class Kind { name, integer, f32, f64, address, vector };
    Kind kind = Kind::name;
    std::string name;        ///< of a register, variable, label or function; of an address: empty if absolute
    std::uint64_t bits = 0;  ///< of a number
    std::int64_t offset = 0;              ///< of an address or of a name, in bytes
    bool negated = false;                 ///< !%p
    std::string second = {};              ///< of `d|p`
    std::vector<TextOperand> parts = {};  ///< of a vector
};

struct Statement {
    int line = 0;
    std::string guard = {};  ///< a predicate's name, or empty
    bool guard_negated = false;
    std::vector<std::string> op = {};  ///< "ld.global.f32" without its dots
    std::vector<TextOperand> operands = {};
};

enum class Space { reg, param, shared, global, constant, local };

struct Variable {
    std::string name;
    Space space = Space::global;
    std::int64_t align = 1;
    std::int64_t size = 0;                 ///< in bytes; 0: as many as the launch says
    std::vector<std::uint8_t> bytes = {};  ///< what it begins with, if anything
    int line = 0;
};

struct TextFunction {
    std::string name;
    bool entry = false;
    int line = 0;
    std::vector<Variable> parameters;  ///< of a function they may be registers, too
    std::vector<Variable> results;
    std::map<std::string, std::string> registers;  ///< by name: the type
    std::vector<Variable> variables;
    std::vector<Statement> statements;
    std::map<std::string, int> labels;  ///< by name: which statement comes next
    std::map<std::string, std::vector<std::string>> branch_targets;
    int required_threads[3] = {0, 0, 0};  ///< .reqntid; zeros: not said
    int max_threads[3] = {0, 0, 0};       ///< .maxntid
    bool has_body = false;
};

struct TextModule {
    int version = 0;  ///< 10 times the major one and the minor one
    std::string target;
    std::vector<Variable> variables;
    std::vector<TextFunction> functions;
    std::vector<std::string> lines;  ///< of the text
};

/// Bytes of a fundamental type; 0 for .pred, -1 for what is none.
int bytes_of_type(std::string_view type);

/// Throws TextError.
TextModule parse(std::string_view text);

}  // namespace mantissa::cuda::ptx
