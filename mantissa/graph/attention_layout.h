// Where attention finds its operands and leaves its result: the axes of each tensor, in the order of storage.
//
// A tensor's axes are a word of the letters b (sequences), h (heads), t (positions) and d (elements of a
// head); d is the last, so that rows of a head are one run of memory. Queries, keys and values, or two of
// them, may share a tensor, which then has one axis more, p, along which they follow one another. The
// attribute `operands` says so for each tensor: "q:bthd,k:bthd,v:bthd", or "qkv:btphd" for one [B, T, 3, H,
// D]; the attribute `result` has the axes of the result. Without them all tensors are [B, H, T, D].
#pragma once

#include <span>
#include <string>
#include <vector>

#include "mantissa/graph/attributes.h"
#include "mantissa/graph/type.h"

namespace mantissa::inline v0 {

struct AttentionTensor {
    std::string holds;  ///< which of q, k and v, in the order of the axis p
    std::string axes;   ///< as in "btphd"

    friend bool operator==(const AttentionTensor&, const AttentionTensor&) = default;
};

/// The order of axes without attributes.
inline constexpr const char* plain_attention_axes = "bhtd";

struct AttentionLayout {
    std::vector<AttentionTensor> operands = {
        {"q", plain_attention_axes}, {"k", plain_attention_axes}, {"v", plain_attention_axes}};
    std::string result = plain_attention_axes;

    friend bool operator==(const AttentionLayout&, const AttentionLayout&) = default;
};

/// Throws UserError if the words are none of the above.
AttentionLayout attention_layout(const Attributes& attributes);
/// The attributes with the words for this layout; a plain layout needs no words.
Attributes with_layout(const Attributes& attributes, const AttentionLayout& layout);

/// One of q, k and v: its tensor among the operands, and its place along p.
struct AttentionPart {
    std::size_t tensor = 0;
    std::int64_t index = 0;
};
AttentionPart part_of(const AttentionLayout& layout, char name);

/// B, H, T and D of a tensor with these axes, stored in this shape.
Shape heads_of_stored(const std::string& axes, const Shape& stored);
/// The stored shape of [B, H, T, D], or of `parts` such tensors in one.
Shape stored_shape(const std::string& axes, const Shape& heads, std::int64_t parts = 1);
/// Text as in "[B, T, 3, H, D]".
std::string axes_text(const AttentionTensor& tensor);

/// Elements from one sequence, head and position to the next, and to the first of a part.
struct AttentionStrides {
    std::int64_t start = 0, sequence = 0, head = 0, position = 0;
};
AttentionStrides strides_of(const std::string& axes, const Shape& stored, std::int64_t part = 0);

/// B, H, T (queries), S (keys), D, and G, the heads of keys and values: H / G neighbouring heads of queries
/// share one.
struct AttentionExtents {
    std::int64_t sequences = 0, heads = 0, queries = 0, keys = 0, head_size = 0, key_heads = 0;
};
/// Extents of an attention whose tensors of queries, keys and values have these types.
AttentionExtents attention_extents(const AttentionLayout& layout, std::span<const Type> operands);
/// The shape of a tensor of queries, keys and values in an attention of these extents.
Shape operand_shape(const AttentionTensor& tensor, const AttentionExtents& extents);

}  // namespace mantissa
