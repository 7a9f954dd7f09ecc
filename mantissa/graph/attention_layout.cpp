#include "mantissa/graph/attention_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

namespace {

/// Whether each letter of `letters` is there once, and nothing else.
bool is_order_of(std::string word, std::string letters) {
    std::ranges::sort(word);
    std::ranges::sort(letters);
    return word == letters;
}

[[noreturn]] void refuse(const std::string& words) {
    throw UserError(fmt::format(
        "'{}' is no layout of attention: expected the letters b, h and t, p where queries, keys "
        "and values share a tensor, and d at the end, as in 'qkv:btphd' or 'q:bthd,k:bthd,v:bhtd'",
        words));
}

bool fits(const AttentionTensor& tensor) {
    return !tensor.holds.empty() && tensor.axes.ends_with('d') &&
           is_order_of(tensor.axes, tensor.holds.size() == 1 ? "bhtd" : "bhtpd");
}

std::vector<AttentionTensor> read_operands(const std::string& words) {
    std::vector<AttentionTensor> tensors;
    std::string held;
    for (std::size_t at = 0; at <= words.size();) {
        const std::size_t end = std::min(words.find(',', at), words.size());
        const std::string word = words.substr(at, end - at);
        const std::size_t colon = std::min(word.find(':'), word.size());
        tensors.push_back({word.substr(0, colon), word.substr(std::min(colon + 1, word.size()))});
        if (!fits(tensors.back())) refuse(words);
        held += tensors.back().holds;
        at = end + 1;
    }
    if (!is_order_of(held, "qkv")) refuse(words);
    return tensors;
}

int axis_at(const std::string& axes, char letter) { return static_cast<int>(axes.find(letter)); }

}  // namespace

AttentionLayout attention_layout(const Attributes& attributes) {
    AttentionLayout layout;
    if (attributes.has("operands")) layout.operands = read_operands(attributes.word("operands"));
    if (attributes.has("result")) layout.result = attributes.word("result");
    if (!fits({"o", layout.result})) refuse(layout.result);
    return layout;
}

Attributes with_layout(const Attributes& given, const AttentionLayout& layout) {
    Attributes attributes = given.without("operands").without("result");
    const AttentionLayout plain;
    if (layout.operands != plain.operands) {
        std::string words;
        for (const AttentionTensor& tensor : layout.operands)
            words += fmt::format("{}{}:{}", words.empty() ? "" : ",", tensor.holds, tensor.axes);
        attributes = attributes.with("operands", words);
    }
    if (layout.result != plain.result) attributes = attributes.with("result", layout.result);
    return attributes;
}

AttentionPart part_of(const AttentionLayout& layout, char name) {
    for (std::size_t i = 0; i < layout.operands.size(); ++i)
        if (const auto at = layout.operands[i].holds.find(name); at != std::string::npos)
            return {i, static_cast<std::int64_t>(at)};
    throw InternalError(fmt::format("attention has no operand '{}'", name));
}

Shape heads_of_stored(const std::string& axes, const Shape& stored) {
    return {stored[axis_at(axes, 'b')], stored[axis_at(axes, 'h')], stored[axis_at(axes, 't')],
            stored[axis_at(axes, 'd')]};
}

Shape stored_shape(const std::string& axes, const Shape& heads, std::int64_t parts) {
    std::vector<std::int64_t> extents;
    for (const char letter : axes)
        extents.push_back(letter == 'p' ? parts : heads[axis_at(plain_attention_axes, letter)]);
    return Shape(extents);
}

std::string axes_text(const AttentionTensor& tensor) {
    std::string text;
    for (const char letter : tensor.axes) {
        if (!text.empty()) text += ", ";
        text += letter == 'p' ? fmt::format("{}", tensor.holds.size())
                              : std::string(1, static_cast<char>(std::toupper(letter)));
    }
    return "[" + text + "]";
}

AttentionStrides strides_of(const std::string& axes, const Shape& stored, std::int64_t part) {
    const std::vector<std::int64_t> strides = stored.strides();
    const auto along = [&](char letter) { return strides[axis_at(axes, letter)]; };
    return {.start = axes.find('p') == std::string::npos ? 0 : part * along('p'),
            .sequence = along('b'),
            .head = along('h'),
            .position = along('t')};
}

AttentionExtents attention_extents(const AttentionLayout& layout, std::span<const Type> operands) {
    const auto heads = [&](char name) {
        const std::size_t tensor = part_of(layout, name).tensor;
        return heads_of_stored(layout.operands[tensor].axes, operands[tensor].shape);
    };
    const Shape q = heads('q'), k = heads('k');
    return {q[0], q[1], q[2], k[2], q[3], k[1]};
}

Shape operand_shape(const AttentionTensor& tensor, const AttentionExtents& e) {
    const bool has_queries = tensor.holds.find('q') != std::string::npos;
    const Shape heads{e.sequences, has_queries ? e.heads : e.key_heads, has_queries ? e.queries : e.keys,
                      e.head_size};
    return stored_shape(tensor.axes, heads, static_cast<std::int64_t>(tensor.holds.size()));
}

}  // namespace mantissa
