// Orders of axes in files: shapes, elements there and back, and orders that are none.
#include "mantissa/formats/axis_order.h"

#include <gtest/gtest.h>

#include "mantissa/base/error.h"

namespace mantissa {
namespace {

/// The elements of a tensor, one byte each, as an order lays them.
std::vector<std::byte> laid(const OrderedTensor& tensor, const std::vector<std::byte>& from) {
    std::vector<std::byte> to(from.size());
    // In two pieces, as large files are written.
    const std::size_t middle = tensor.rows() / 2;
    copy_ordered(tensor, 0, middle, from.data(), to.data());
    copy_ordered(tensor, middle, tensor.rows(), from.data(), to.data() + middle * tensor.row_bytes());
    return to;
}

std::vector<std::byte> counted(std::size_t count) {
    std::vector<std::byte> bytes(count);
    for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
    return bytes;
}

TEST(AxisOrder, AMatrixIsTransposed) {
    EXPECT_EQ(shape_in_file(transposed(), {2, 3}), (std::vector<std::int64_t>{3, 2}));
    const std::vector<std::byte> file = laid(into_file(transposed(), {2, 3}, 1), counted(6));
    const std::vector<int> expected = {0, 3, 1, 4, 2, 5};
    for (std::size_t i = 0; i < file.size(); ++i) EXPECT_EQ(std::to_integer<int>(file[i]), expected[i]) << i;
}

TEST(AxisOrder, WhatWasLaidComesBack) {
    const std::vector<std::int64_t> shape = {4, 3, 5, 2};
    for (const AxisOrder& order :
         {AxisOrder{{0, 3, 1, 2}}, AxisOrder{{3, 2, 1, 0}}, AxisOrder{{2, 0, 3, 1}}}) {
        const std::vector<std::byte> memory = counted(120);
        const std::vector<std::byte> file = laid(into_file(order, shape, 1), memory);
        EXPECT_NE(file, memory);
        EXPECT_EQ(laid(out_of_file(order, shape, 1), file), memory);
    }
}

TEST(AxisOrder, ATensorSeenWithOtherExtentsKeepsItsShape) {
    const AxisOrder order{.axes = {1, 0, 2}, .seen_as = {2, 3, 4}};
    EXPECT_EQ(shape_in_file(order, {6, 4}), (std::vector<std::int64_t>{6, 4}));
    const std::vector<std::byte> file = laid(into_file(order, {6, 4}, 1), counted(24));
    EXPECT_EQ(std::to_integer<int>(file[4]), 12);  // [0, 1] in the file is [1, 0] in memory
}

TEST(AxisOrder, AnOrderNamesEachAxisOnce) {
    EXPECT_THROW(shape_in_file({.axes = {0, 0}}, {2, 3}), InternalError);
    EXPECT_THROW(shape_in_file({.axes = {0, 1, 2}}, {2, 3}), InternalError);
    EXPECT_THROW(shape_in_file({.axes = {1, 0}, .seen_as = {2, 4}}, {2, 3}), InternalError);
}

}  // namespace
}  // namespace mantissa
