#include "tests/support/compare.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>

#include "mantissa/base/error.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::inline v0 {

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

double difference_of(double got, double expected) {
    if (std::isinf(got) && got == expected) return 0;
    if (std::isinf(got) || std::isinf(expected))
        return std::isnan(got) || std::isnan(expected) ? nan : infinity;
    return std::fabs(got - expected);
}

/// Fails for NaN on either side; an infinite difference fails even an infinite tolerance.
bool within(double difference, double tolerance) { return difference <= tolerance && difference < infinity; }

/// The ratio of an element's difference to its tolerance; infinite for NaN.
double ratio_of(double difference, double tolerance) {
    if (!(difference < infinity) || std::isnan(tolerance)) return infinity;
    if (difference == 0) return 0;
    return tolerance > 0 ? difference / tolerance : infinity;
}

double element_tolerance(const Tolerance& tolerance, DType type, double expected, std::int64_t index) {
    if (std::isinf(expected)) return 0;
    switch (tolerance.kind) {
        case Tolerance::Class::exact:
            return 0;
        case Tolerance::Class::ulp:
            return tolerance.ulps * ulp_at(expected, type);
        case Tolerance::Class::bound: {
            const auto& all = tolerance.magnitudes;
            const double magnitude = all.size() == 1 ? all[0] : all[index];
            return tolerance.factor * magnitude + 0.5 * ulp_at(expected, type);
        }
        case Tolerance::Class::low_precision:
            return infinity;  // judged over the whole tensor
    }
    return nan;
}

std::string describe(const Tolerance& tolerance, DType type) {
    switch (tolerance.kind) {
        case Tolerance::Class::exact:
            return "class exact";
        case Tolerance::Class::ulp:
            return fmt::format("class ULP: {} of {}", tolerance.ulps, name_of(type));
        case Tolerance::Class::bound:
            return fmt::format("class derived bound: {:.4g} * sum|a||b|", tolerance.factor);
        case Tolerance::Class::low_precision:
            return fmt::format("class low precision: {} times the plain version", tolerance.factor);
    }
    return "class unknown";
}

std::string element_text(const char* which, std::int64_t index, double expected, double got,
                         double tolerance) {
    return fmt::format("{} at element {}: expected {}, got {}, difference {:.4g}, tolerance {:.4g}", which,
                       index, expected, got, difference_of(got, expected), tolerance);
}

struct Errors {
    double greatest = 0;
    double root_mean_square = 0;
    std::int64_t where = -1;
};

/// NaN anywhere makes both figures NaN.
template <class Value>
Errors errors_of(std::int64_t count, std::span<const double> expected, Value value) {
    Errors errors;
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        const double difference = difference_of(value(i), expected[i]);
        squares += difference * difference;
        if (std::isnan(errors.greatest) || difference <= errors.greatest) continue;
        errors.greatest = difference;
        errors.where = i;
    }
    errors.root_mean_square = count ? std::sqrt(squares / static_cast<double>(count)) : 0;
    return errors;
}

Comparison compare_low_precision(const ComparedTensor& got, std::span<const double> expected,
                                 const Tolerance& tolerance) {
    const auto count = static_cast<std::int64_t>(expected.size());
    check(tolerance.plain.size() == expected.size(), "compare: the plain version has another size");
    const auto value = [&](std::int64_t i) { return load_as_f64(got.data, got.type, i); };
    const Errors ours = errors_of(count, expected, value);
    const Errors plain = errors_of(count, expected, [&](std::int64_t i) { return tolerance.plain[i]; });
    const double greatest = tolerance.factor * plain.greatest;
    const double root_mean_square = tolerance.factor * plain.root_mean_square;

    Comparison result;
    result.worst = ours.where;
    result.worst_ratio =
        std::fmax(ratio_of(ours.greatest, greatest), ratio_of(ours.root_mean_square, root_mean_square));
    result.ok = within(ours.greatest, greatest) && within(ours.root_mean_square, root_mean_square);
    if (result.ok) return result;
    result.failures = 1;
    result.first = ours.where;
    result.message = fmt::format(
        "{}: greatest error {:.4g}, allowed {:.4g}; rms error {:.4g}, allowed {:.4g}",
        describe(tolerance, got.type), ours.greatest, greatest, ours.root_mean_square, root_mean_square);
    if (ours.where >= 0)
        result.message +=
            "; " + element_text("worst", ours.where, expected[ours.where], value(ours.where), greatest);
    return result;
}

}  // namespace

Tolerance Tolerance::exact() { return {}; }

Tolerance Tolerance::ulp(double ulps) {
    Tolerance tolerance;
    tolerance.kind = Class::ulp;
    tolerance.ulps = ulps;
    return tolerance;
}

Tolerance Tolerance::bound(double c, double n, double eps, std::span<const double> magnitudes) {
    Tolerance tolerance;
    tolerance.kind = Class::bound;
    tolerance.factor = c * n * eps;
    tolerance.magnitudes = magnitudes;
    return tolerance;
}

Tolerance Tolerance::low_precision(double factor, std::span<const double> plain) {
    Tolerance tolerance;
    tolerance.kind = Class::low_precision;
    tolerance.factor = factor;
    tolerance.plain = plain;
    return tolerance;
}

Comparison compare(const ComparedTensor& got, std::span<const double> expected,
                   std::span<const std::int64_t> expected_shape, const Tolerance& tolerance) {
    Comparison result;
    const std::vector<std::int64_t> wanted(expected_shape.begin(), expected_shape.end());
    std::int64_t count = 1;
    for (const std::int64_t extent : wanted) count *= extent;
    if (got.shape != wanted || count != static_cast<std::int64_t>(expected.size())) {
        result.worst_ratio = infinity;
        result.message = fmt::format("shapes differ: expected [{}] with {} values, got [{}]",
                                     fmt::join(wanted, ", "), expected.size(), fmt::join(got.shape, ", "));
        return result;
    }
    if (tolerance.kind == Tolerance::Class::low_precision)
        return compare_low_precision(got, expected, tolerance);
    if (tolerance.kind == Tolerance::Class::bound)
        check(tolerance.magnitudes.size() == 1 || tolerance.magnitudes.size() == expected.size(),
              "compare: magnitudes must be one, or one for each element");

    for (std::int64_t i = 0; i < count; ++i) {
        const double wants = expected[i];
        const double difference = difference_of(load_as_f64(got.data, got.type, i), wants);
        const double allowed = element_tolerance(tolerance, got.type, wants, i);
        const double ratio = ratio_of(difference, allowed);
        if (result.worst < 0 || ratio > result.worst_ratio) {
            result.worst = i;
            result.worst_ratio = ratio;
        }
        if (!within(difference, allowed) && result.failures++ == 0) result.first = i;
    }
    result.ok = result.failures == 0;
    if (result.ok) return result;
    const auto text = [&](const char* which, std::int64_t i) {
        const double wants = expected[i];
        return element_text(which, i, wants, load_as_f64(got.data, got.type, i),
                            element_tolerance(tolerance, got.type, wants, i));
    };
    result.message = fmt::format("{} of {} elements fail ({}); {}", result.failures, count,
                                 describe(tolerance, got.type), text("first", result.first));
    if (result.worst != result.first) result.message += "; " + text("worst", result.worst);
    return result;
}

Comparison compare(std::span<const float> got, std::span<const double> expected, const Tolerance& tolerance) {
    const std::int64_t shape[] = {static_cast<std::int64_t>(expected.size())};
    return compare({DType::f32, got.data(), {static_cast<std::int64_t>(got.size())}}, expected, shape,
                   tolerance);
}

}  // namespace mantissa
