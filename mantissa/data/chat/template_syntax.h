// The syntax tree of a chat template: Jinja2 3.1 with trim_blocks, lstrip_blocks, break and continue, and
// transformers' {% generation %}. Inheritance, include, import and recursive loops are refused. Internal to
// data/chat.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "mantissa/data/chat/template_value.h"

namespace mantissa::inline v0::jinja {

/// A template is first cut into words, with white space removed by trim_blocks and lstrip_blocks.
enum class Word : std::uint8_t {
    data,
    output_begin,
    output_end,
    block_begin,
    block_end,
    name,
    text,
    integer,
    real,
    sign,
    end
};

struct Token {
    Word word;
    std::u32string text;  ///< of data and texts: the content
    int line;

    bool is(std::u32string_view sign) const { return word == Word::sign && text == sign; }
    bool is_name(std::u32string_view name) const { return word == Word::name && text == name; }
};

/// Throws TemplateError.
std::vector<Token> cut_template(std::string_view source);

/// UTF-8, for names and errors.
std::string utf8(std::u32string_view text);

struct Node;
using NodePointer = std::unique_ptr<Node>;
using Nodes = std::vector<NodePointer>;

enum class Syntax : std::uint8_t {
    // Expressions.
    constant,
    name,
    attribute,  ///< children[0].name
    item,       ///< children[0][children[1]]
    slice,      ///< children: sequence, begin, end, step; the last three may be null
    call,       ///< children[0](arguments)
    filter,     ///< children[0] | name(arguments); children[0] is null at the head of a block's filters
    test,       ///< children[0] is name(arguments)
    negative,
    positive,
    negation,
    both,
    either,
    arithmetic,  ///< name: + - * / // % **
    concatenation,
    comparison,   ///< children: operands; names: == != < <= > >= in notin
    conditional,  ///< children: condition, then, else or null
    list,
    tuple,
    dict,  ///< children: key, value, key, value ...
    // Statements.
    data,            ///< `constant` is written unchanged
    output,          ///< children[0] is written
    block,           ///< children, one after another
    branch,          ///< children: condition, block, condition, block, ..., block of else
    loop,            ///< children: items, condition or null, body, block of else or null; `target`
    assignment,      ///< children[0]; `target`
    assigned_block,  ///< children: body, filters or null; `target`
    macro,           ///< name, parameters; children[0]: body
    call_block,      ///< parameters; children: the call, the body
    filter_block,    ///< children: filters, body
    generation,
    with,  ///< children: values, then the body; `target` has one target per value
    break_loop,
    continue_loop,
};

/// Target of an assignment: a name, an attribute of a namespace, or several targets.
struct Target {
    std::string name = {}, attribute = {};
    std::vector<Target> several = {};
};

struct Node {
    Syntax syntax;
    int line = 0, depth = 1;
    std::string name = {};
    Value constant = {};
    Nodes children = {};
    // Arguments after children[0] of calls, filters and tests.
    Nodes arguments = {};
    std::vector<std::pair<std::string, NodePointer>> named = {};
    NodePointer rest = {}, named_rest = {};  // *rest, **named_rest
    std::vector<std::string> names = {};     // of a comparison, of a macro's parameters
    Nodes defaults = {};                     // of a macro's last parameters
    Target target = {};
};

/// Throws TemplateError, "line N: ...". Constants are kept in `store`.
NodePointer parse_template(std::string_view source, Store& store);

}  // namespace mantissa::inline v0::jinja
