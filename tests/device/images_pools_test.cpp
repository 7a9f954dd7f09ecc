// Pools and their gradients, at awkward sizes, on whole numbers, of which every sum is exact.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "mantissa/base/error.h"
#include "mantissa/base/random.h"
#include "mantissa/graph/pooling.h"
#include "mantissa/graph/type.h"
#include "tests/device/rows_harness.h"
#include "tests/support/error_of.h"

namespace mantissa::on_cpu {
namespace {

using List = std::vector<std::int64_t>;

/// A pool and what it is made on.
struct PoolCase {
    List image;  // N, H, W, C
    List window, stride, padding;
    DType type = DType::f32;

    Attributes attributes() const { return {{"window", window}, {"stride", stride}, {"padding", padding}}; }
    std::string text() const {
        return Shape(image).text() + " window " + Shape(window).text() + " stride " + Shape(stride).text() +
               " padding " + Shape(padding).text() + " " + std::string(name_of(type));
    }
};

/// 1, primes, N - 1, N and N + 1 of sixteen channels; windows larger than their strides and smaller; all of
/// an image.
const std::vector<PoolCase>& pool_cases() {
    static const std::vector<PoolCase> all = [] {
        const List none = {0, 0, 0, 0};
        std::vector<PoolCase> list = {
            {{1, 1, 1, 1}, {1, 1}, {1, 1}, none},
            {{2, 7, 5, 3}, {3, 3}, {2, 2}, {1, 1, 1, 1}},
            {{1, 13, 11, 15}, {3, 2}, {1, 3}, {2, 0, 0, 1}, DType::bf16},
            {{3, 8, 8, 16}, {2, 2}, {2, 2}, none, DType::f16},
            {{1, 9, 4, 17}, {2, 1}, {3, 2}, none},
            {{2, 6, 7, 31}, {6, 7}, {1, 1}, none, DType::bf16},
            {{1, 16, 16, 1}, {16, 16}, {5, 5}, {15, 15, 15, 15}},
            {{5, 3, 3, 64}, {3, 3}, {1, 1}, {2, 2, 2, 2}, DType::bf16},
            {{2, 30, 31, 67}, {3, 3}, {2, 2}, {0, 1, 0, 1}},
        };
        return list;
    }();
    return all;
}

struct Spans {
    std::vector<PoolSpan> rows, columns;
    std::vector<PoolOutputs> row_outputs, column_outputs;
    PoolShape shape;
};

Spans spans_of(const Attributes& attributes, const List& image) {
    Spans spans;
    spans.rows = pool_spans(attributes, 0, image[1]);
    spans.columns = pool_spans(attributes, 1, image[2]);
    spans.row_outputs = pool_outputs(spans.rows, image[1]);
    spans.column_outputs = pool_outputs(spans.columns, image[2]);
    spans.shape = {.images = image[0],
                   .rows = image[1],
                   .columns = image[2],
                   .output_rows = static_cast<std::int64_t>(spans.rows.size()),
                   .output_columns = static_cast<std::int64_t>(spans.columns.size()),
                   .channels = image[3],
                   .row_spans = spans.rows.data(),
                   .column_spans = spans.columns.data(),
                   .row_outputs = spans.row_outputs.data(),
                   .column_outputs = spans.column_outputs.data(),
                   .window_columns = attributes.has("window") ? attributes.list("window")[1] : 1};
    return spans;
}

std::int64_t elements(const PoolShape& s) { return s.images * s.rows * s.columns * s.channels; }
std::int64_t outputs(const PoolShape& s) { return s.images * s.output_rows * s.output_columns * s.channels; }

/// Few whole numbers, so that there are ties; among them, where asked, NaN and both infinities.
std::vector<double> whole_numbers(std::int64_t count, bool special, std::uint32_t operation) {
    const RandomStream random{.seed = 5, .operation = operation};
    std::vector<double> values;
    for (std::int64_t i = 0; i < count; ++i) {
        const std::uint32_t bits = random.bits(static_cast<std::uint64_t>(i));
        double value = static_cast<double>(bits % 5) - 2;
        if (special && bits % 31 == 0) value = std::numeric_limits<double>::quiet_NaN();
        if (special && bits % 31 == 1) value = std::numeric_limits<double>::infinity();
        if (special && bits % 7 == 2) value = -std::numeric_limits<double>::infinity();
        values.push_back(value);
    }
    return values;
}

/// body(output, element of the image, element of the window), window by window in order. By sizes alone.
template <class Body>
void for_each_pair(const PoolCase& k, Body&& body) {
    const std::int64_t H = k.image[1], W = k.image[2], C = k.image[3];
    const auto count = [&](std::int64_t extent, std::size_t axis) {
        return (extent + k.padding[2 * axis] + k.padding[2 * axis + 1] - k.window[axis]) / k.stride[axis] + 1;
    };
    const std::int64_t P = count(H, 0), Q = count(W, 1);
    for (std::int64_t n = 0; n < k.image[0]; ++n)
        for (std::int64_t p = 0; p < P; ++p)
            for (std::int64_t q = 0; q < Q; ++q)
                for (std::int64_t r = 0; r < k.window[0]; ++r)
                    for (std::int64_t s = 0; s < k.window[1]; ++s) {
                        const std::int64_t h = p * k.stride[0] - k.padding[0] + r;
                        const std::int64_t w = q * k.stride[1] - k.padding[2] + s;
                        if (h < 0 || h >= H || w < 0 || w >= W) continue;
                        for (std::int64_t c = 0; c < C; ++c)
                            body(static_cast<std::size_t>(((n * P + p) * Q + q) * C + c),
                                 static_cast<std::size_t>(((n * H + h) * W + w) * C + c),
                                 r * k.window[1] + s);
                    }
}

/// The bytes of numbers in a type.
std::vector<std::byte> bytes_in(const Setting& setting, DType type, const std::vector<double>& values) {
    Guarded stored(setting, type, static_cast<std::int64_t>(values.size()));
    stored.assign(values);
    return stored.bytes();
}

/// NaN in the same places, all else equal.
void expect_equal(const Guarded& got, const std::vector<double>& expected) {
    const std::vector<double> values = got.values();
    ASSERT_EQ(values.size(), expected.size());
    for (std::size_t i = 0; i < values.size(); ++i)
        ASSERT_TRUE(values[i] == expected[i] || (std::isnan(values[i]) && std::isnan(expected[i])))
            << "element " << i << " is " << values[i] << ", expected " << expected[i];
}

TEST(ImagesMaxPool, TakesTheFirstOfEqualsWhateverIsAmongThem) {
    for (const PoolCase& k : pool_cases())
        for (const bool special : {false, true}) {
            SCOPED_TRACE(k.text() + (special ? " with NaN and infinities" : ""));
            const Spans spans = spans_of(k.attributes(), k.image);
            const std::int64_t size = elements(spans.shape), results = outputs(spans.shape);
            const std::vector<double> x = whole_numbers(size, special, 1);
            std::vector<double> y(static_cast<std::size_t>(results)), index(y.size(), -1);
            for_each_pair(k, [&](std::size_t output, std::size_t at, std::int64_t element) {
                const bool first = index[output] < 0;
                if (!first && (std::isnan(y[output]) || x[at] <= y[output])) return;
                y[output] = x[at];
                index[output] = static_cast<double>(element);
            });
            check_everywhere([&](const Setting& setting) {
                Guarded in(setting, k.type, size), out(setting, k.type, results),
                    which(setting, DType::u8, results);
                in.assign(x);
                max_pool(
                    setting.kernels,
                    {.shape = spans.shape, .x = in.in(), .y = out.out(), .index = which.as<std::uint8_t>()},
                    setting.pool, setting.stores);
                expect_equal(out, y);
                for (std::size_t i = 0; i < index.size(); ++i)
                    EXPECT_EQ(which.as<std::uint8_t>()[i], index[i]) << "element " << i;
                return joined({&out, &which});
            });
        }
}

TEST(ImagesMaxPool, ItsGradientGoesToTheMaximaAlone) {
    for (const PoolCase& k : pool_cases()) {
        SCOPED_TRACE(k.text());
        const Spans spans = spans_of(k.attributes(), k.image);
        const std::int64_t size = elements(spans.shape), results = outputs(spans.shape);
        const std::vector<double> dy = whole_numbers(results, false, 2);
        std::vector<std::uint8_t> index(static_cast<std::size_t>(results));
        std::vector<bool> chosen(index.size());
        // Any element of each window: the one whose turn it is.
        for_each_pair(k, [&](std::size_t output, std::size_t, std::int64_t element) {
            if (chosen[output]) return;
            index[output] = static_cast<std::uint8_t>(element);
            chosen[output] = output % 3 == static_cast<std::size_t>(element) % 3;
        });
        std::vector<double> dx(static_cast<std::size_t>(size));
        for_each_pair(k, [&](std::size_t output, std::size_t at, std::int64_t element) {
            if (index[output] == element) dx[at] += dy[output];
        });
        check_everywhere([&](const Setting& setting) {
            Guarded in(setting, k.type, results), which(setting, DType::u8, results),
                out(setting, k.type, size);
            in.assign(dy);
            std::memcpy(which.as<void>(), index.data(), index.size());
            max_pool_grad(
                setting.kernels,
                {.shape = spans.shape, .dy = in.in(), .index = which.as<std::uint8_t>(), .dx = out.out()},
                setting.pool, setting.stores);
            expect_equal(out, dx);
            return out.bytes();
        });
    }
}

TEST(ImagesAveragePool, DividesExactSumsOnce) {
    for (const PoolCase& k : pool_cases())
        for (const bool counts_padding : {false, true}) {
            SCOPED_TRACE(k.text() + (counts_padding ? " counting padding" : ""));
            const Attributes attributes = k.attributes().with("count_padding", counts_padding);
            const Spans spans = spans_of(attributes, k.image);
            const std::int64_t size = elements(spans.shape), results = outputs(spans.shape);
            const std::vector<double> x = whole_numbers(size, false, 3),
                                      dy = whole_numbers(results, false, 4);
            std::vector<double> sums(static_cast<std::size_t>(results)), counts(sums.size());
            for_each_pair(k, [&](std::size_t output, std::size_t at, std::int64_t) {
                sums[output] += x[at];
                counts[output] += 1;
            });
            const auto divided = [&](const std::vector<double>& numbers, std::size_t output) {
                const auto whole = static_cast<double>(k.window[0] * k.window[1]);
                const double count = counts_padding ? whole : counts[output];
                return static_cast<float>(numbers[output]) / static_cast<float>(count);
            };
            std::vector<double> y, dx(static_cast<std::size_t>(size));
            for (std::size_t i = 0; i < sums.size(); ++i) y.push_back(static_cast<double>(divided(sums, i)));
            std::vector<float> gathered(dx.size());
            for_each_pair(k, [&](std::size_t output, std::size_t at, std::int64_t) {
                gathered[at] += divided(dy, output);
            });
            for (std::size_t i = 0; i < dx.size(); ++i) dx[i] = static_cast<double>(gathered[i]);
            check_everywhere([&](const Setting& setting) {
                Guarded in(setting, k.type, size), out(setting, k.type, results);
                Guarded gradient(setting, k.type, results), of_image(setting, k.type, size);
                in.assign(x);
                gradient.assign(dy);
                average_pool(setting.kernels, {.shape = spans.shape, .x = in.in(), .y = out.out()},
                             setting.pool, setting.stores);
                average_pool_grad(setting.kernels,
                                  {.shape = spans.shape, .dy = gradient.in(), .dx = of_image.out()},
                                  setting.pool, setting.stores);
                EXPECT_TRUE(out.bytes() == bytes_in(setting, k.type, y));
                EXPECT_TRUE(of_image.bytes() == bytes_in(setting, k.type, dx));
                return joined({&out, &of_image});
            });
        }
}

TEST(ImagesAveragePool, PartsThatShareElementsAreAveragedEach) {
    const List image = {2, 7, 5, 19};
    const Spans spans = spans_of({{"extents", List{3, 4}}}, image);
    const std::int64_t size = elements(spans.shape), results = outputs(spans.shape);
    const std::vector<double> x = whole_numbers(size, false, 6);
    std::vector<double> y;
    for (std::int64_t n = 0; n < 2; ++n)
        for (std::int64_t p = 0; p < 3; ++p)
            for (std::int64_t q = 0; q < 4; ++q)
                for (std::int64_t c = 0; c < 19; ++c) {
                    float sum = 0, count = 0;
                    for (std::int64_t h = 7 * p / 3; h * 3 < 7 * (p + 1); ++h)
                        for (std::int64_t w = 5 * q / 4; w * 4 < 5 * (q + 1); ++w, ++count)
                            sum += static_cast<float>(
                                x[static_cast<std::size_t>(((n * 7 + h) * 5 + w) * 19 + c)]);
                    y.push_back(static_cast<double>(sum / count));
                }
    check_everywhere([&](const Setting& setting) {
        Guarded in(setting, DType::f32, size), out(setting, DType::f32, results);
        in.assign(x);
        average_pool(setting.kernels, {.shape = spans.shape, .x = in.in(), .y = out.out()}, setting.pool,
                     setting.stores);
        expect_equal(out, y);
        return out.bytes();
    });
}

TEST(ImagesPools, WhatDoesNotFitIsNamed) {
    ThreadPool pool(1);
    const PoolCase& k = pool_cases()[1];
    const Spans spans = spans_of(k.attributes(), k.image);
    std::vector<float> x(static_cast<std::size_t>(elements(spans.shape))), y(x.size());
    std::vector<std::uint8_t> index(x.size());
    const MaxPool good{.shape = spans.shape, .x = {x.data()}, .y = {y.data()}, .index = index.data()};
    const auto message = [&](const MaxPool& p) {
        return testing::error_of<InternalError>([&] { max_pool(row_kernels(Isa::generic), p, pool); });
    };
    EXPECT_EQ(message(good), "no error");
    MaxPool bad = good;
    bad.y.type = DType::bf16;
    EXPECT_NE(message(bad).find("max_pool: y is bf16, expected f32"), std::string::npos) << message(bad);
    bad = good;
    bad.shape.channels = 0;
    EXPECT_NE(message(bad).find("channels is 0"), std::string::npos) << message(bad);
    bad = good;
    bad.shape.row_spans = nullptr;
    EXPECT_NE(message(bad).find("spans are missing"), std::string::npos) << message(bad);
    bad = good;
    bad.index = nullptr;
    EXPECT_NE(message(bad).find("index is a null pointer"), std::string::npos) << message(bad);
}

}  // namespace
}  // namespace mantissa::on_cpu
