// Copies, transposes and permutations: exact on every element.
#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <limits>

#include "mantissa/base/error.h"
#include "tests/device/rows_harness.h"

namespace mantissa::on_cpu {
namespace {

/// Distinct values, so that an element in a wrong place cannot pass.
void number_elements(Guarded& memory, int element_size) {
    for (std::int64_t i = 0; i < memory.count(); ++i) {
        if (element_size == 2)
            memory.as<std::uint16_t>()[i] = static_cast<std::uint16_t>(i);
        else
            memory.as<std::uint32_t>()[i] = static_cast<std::uint32_t>(i);
    }
}

TEST(RowsCopy, IsExact) {
    for (const std::int64_t bytes : {1, 63, 64, 65, 300001}) {
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, DType::u8, bytes), out(setting, DType::u8, bytes);
            for (std::int64_t i = 0; i < bytes; ++i)
                in.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 7);
            copy(setting.kernels, {.bytes = bytes, .source = in.as<void>(), .target = out.as<void>()},
                 setting.pool, setting.stores);
            EXPECT_TRUE(out.bytes() == in.bytes());
            return out.bytes();
        });
    }
}

TEST(RowsCopy, MovesRowsAtTheirDistances) {
    struct Case {
        std::int64_t rows, bytes, source_stride, target_stride;
    };
    for (const Case& c : {Case{1, 300, 300, 400}, Case{700, 128, 896, 128}, Case{333, 64, 64, 192},
                          Case{50, 70, 90, 77}, Case{3, 300001, 300003, 300001}})
        check_everywhere([&](const Setting& setting) {
            const auto extent = [&](std::int64_t stride) { return (c.rows - 1) * stride + c.bytes; };
            Guarded in(setting, DType::u8, extent(c.source_stride));
            Guarded out(setting, DType::u8, extent(c.target_stride));
            for (std::int64_t i = 0; i < extent(c.source_stride); ++i)
                in.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(i * 7);
            const std::vector<std::byte> source = in.bytes();
            std::vector<std::byte> wanted = out.bytes();
            for (std::int64_t row = 0; row < c.rows; ++row)
                std::copy_n(source.begin() + row * c.source_stride, c.bytes,
                            wanted.begin() + row * c.target_stride);
            copy_rows(setting.kernels,
                      {.rows = c.rows,
                       .bytes = c.bytes,
                       .source_stride = c.source_stride,
                       .target_stride = c.target_stride,
                       .source = in.as<void>(),
                       .target = out.as<void>()},
                      setting.pool, setting.stores);
            EXPECT_TRUE(out.bytes() == wanted);
            return out.bytes();
        });
}

TEST(RowsPermute, OfTwoAxesIsExact) {
    const std::int64_t sizes[][2] = {{1, 1}, {1, 37}, {16, 16}, {17, 15}, {31, 33}, {129, 48}, {200, 131}};
    for (const auto& [rows, columns] : sizes)
        for (const int size : {2, 4}) {
            SCOPED_TRACE(::testing::Message() << rows << " x " << columns << " of " << size << " bytes");
            check_everywhere([&, rows = rows, columns = columns](const Setting& setting) {
                const DType type = size == 2 ? DType::bf16 : DType::f32;
                Guarded in(setting, type, rows * columns), out(setting, type, rows * columns);
                number_elements(in, size);
                permute(setting.kernels,
                        {.rank = 2,
                         .extents = {rows, columns},
                         .axes = {1, 0},
                         .element_size = size,
                         .source = in.as<void>(),
                         .target = out.as<void>()},
                        setting.pool, setting.stores);
                for (std::int64_t c = 0; c < columns; ++c)
                    for (std::int64_t r = 0; r < rows; ++r) {
                        const std::int64_t got = size == 2 ? out.as<std::uint16_t>()[c * rows + r]
                                                           : out.as<std::uint32_t>()[c * rows + r];
                        const std::int64_t wanted = r * columns + c;
                        EXPECT_EQ(got, size == 2 ? wanted % 65536 : wanted) << r << " " << c;
                    }
                return joined({&out});
            });
        }
}

struct PermuteCase {
    int rank;
    std::int64_t extents[5];
    int axes[5];
};

TEST(RowsPermute, IsExact) {
    // Heads to the front and back, all axes reversed, axes of one, no change at all.
    const PermuteCase cases[] = {{4, {2, 5, 3, 16}, {0, 2, 1, 3}},
                                 {4, {2, 3, 19, 21}, {0, 1, 3, 2}},
                                 {3, {7, 17, 33}, {2, 1, 0}},
                                 {5, {2, 1, 3, 18, 4}, {4, 2, 0, 3, 1}},
                                 {4, {3, 4, 5, 6}, {0, 1, 2, 3}},
                                 {1, {13}, {0}},
                                 {2, {1, 40}, {1, 0}},
                                 {4, {2, 20, 3, 7}, {2, 0, 3, 1}}};
    for (const PermuteCase& k : cases)
        for (const int size : {2, 4}) {
            Permute problem = {.rank = k.rank, .element_size = size};
            std::int64_t count = 1;
            for (int a = 0; a < k.rank; ++a) {
                problem.extents[a] = k.extents[a];
                problem.axes[a] = k.axes[a];
                count *= k.extents[a];
            }
            check_everywhere([&](const Setting& setting) {
                const DType type = size == 2 ? DType::bf16 : DType::f32;
                Guarded in(setting, type, count), out(setting, type, count);
                number_elements(in, size);
                Permute p = problem;
                p.source = in.as<void>();
                p.target = out.as<void>();
                permute(setting.kernels, p, setting.pool, setting.stores);
                for (std::int64_t i = 0; i < count; ++i) {
                    // Take the target's index apart, and put the source's together.
                    std::int64_t index[5] = {};
                    std::int64_t rest = i;
                    for (int a = k.rank - 1; a >= 0; --a) {
                        index[k.axes[a]] = rest % k.extents[k.axes[a]];
                        rest /= k.extents[k.axes[a]];
                    }
                    std::int64_t wanted = 0;
                    for (int a = 0; a < k.rank; ++a) wanted = wanted * k.extents[a] + index[a];
                    const std::int64_t got =
                        size == 2 ? out.as<std::uint16_t>()[i] : out.as<std::uint32_t>()[i];
                    EXPECT_EQ(got, wanted) << i;
                }
                return joined({&out});
            });
        }
}

TEST(RowsPermute, RefusesWhatIsNoPermutation) {
    ThreadPool pool(1);
    std::vector<float> a(6), b(6);
    try {
        permute(row_kernels(Isa::generic),
                {.rank = 2, .extents = {2, 3}, .axes = {1, 1}, .source = a.data(), .target = b.data()}, pool);
        FAIL() << "axes 1, 1 were accepted";
    } catch (const InternalError& error) {
        EXPECT_NE(std::string(error.what()).find("permute: axes is no permutation of the axes"),
                  std::string::npos)
            << error.what();
    }
}

}  // namespace
}  // namespace mantissa::on_cpu
