#include "tests/device/attention_oracle.h"

#include <algorithm>
#include <cmath>

#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {

namespace {

/// One head's rows in an array of all.
struct HeadView {
    const Numbers& x;
    std::int64_t first, width;

    const double* operator[](std::int64_t row) const { return x.data() + (first + row) * width; }
};

std::int64_t seen_by(const AttentionSize& s, std::int64_t query) {
    return s.causal ? query + s.keys - s.queries + 1 : s.keys;
}

double dot(const double* a, const double* b, std::int64_t count) {
    double sum = 0;
    for (std::int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
    return sum;
}

/// The size of partial sums of a product, whose terms have either sign: what its rounding errors are relative
/// to.
double size_of_sums(const double* a, const double* b, std::int64_t count) {
    double squares = 0;
    for (std::int64_t i = 0; i < count; ++i) squares += a[i] * b[i] * a[i] * b[i];
    return std::sqrt(squares);
}

void add_row(Bounded& to, std::int64_t row, std::int64_t width, double factor, double magnitude,
             const double* x) {
    for (std::int64_t d = 0; d < width; ++d) {
        const auto at = static_cast<std::size_t>(row * width + d);
        to.values[at] += factor * x[d];
        to.magnitudes[at] += magnitude * std::abs(x[d]);
    }
}

}  // namespace

ForwardOracle attention_oracle(const AttentionSize& s, const AttentionOperands& x) {
    const std::int64_t D = s.head_size;
    const double scale = static_cast<double>(s.scale);
    ForwardOracle oracle{Bounded(s.heads * s.queries * D), Bounded(s.heads * s.queries)};
    for (std::int64_t head = 0; head < s.heads; ++head) {
        const HeadView q{x.q, head * s.queries, D}, k{x.k, head / s.group * s.keys, D};
        const HeadView v{x.v, head / s.group * s.keys, D};
        for (std::int64_t i = 0; i < s.queries; ++i) {
            Numbers scores;
            double magnitude = 0, sum = 0;
            for (std::int64_t j = 0; j < seen_by(s, i); ++j) {
                scores.push_back(scale * dot(q[i], k[j], D));
                magnitude = std::max(magnitude, std::abs(scale) * size_of_sums(q[i], k[j], D));
            }
            const double highest = *std::ranges::max_element(scores);
            for (const double score : scores) sum += std::exp(score - highest);
            const std::int64_t row = head * s.queries + i;
            // An error of a score is a relative error of its weight.
            for (std::int64_t j = 0; j < seen_by(s, i); ++j) {
                const double weight = std::exp(scores[static_cast<std::size_t>(j)] - highest) / sum;
                add_row(oracle.o, row, D, weight, weight * (1 + magnitude), v[j]);
            }
            oracle.lse.values[static_cast<std::size_t>(row)] = highest + std::log(sum);
            oracle.lse.magnitudes[static_cast<std::size_t>(row)] = 1 + magnitude;
        }
    }
    return oracle;
}

BackwardOracle attention_grad_oracle(const AttentionSize& s, const AttentionOperands& x, const Numbers& o,
                                     const Numbers& lse) {
    const std::int64_t D = s.head_size;
    const double scale = static_cast<double>(s.scale);
    const std::int64_t of_keys = s.heads / s.group * s.keys * D;
    BackwardOracle oracle{Bounded(s.heads * s.queries * D), Bounded(of_keys), Bounded(of_keys)};
    for (std::int64_t head = 0; head < s.heads; ++head) {
        const std::int64_t first_key = head / s.group * s.keys;
        const HeadView q{x.q, head * s.queries, D}, d_o{x.d_o, head * s.queries, D}, k{x.k, first_key, D};
        const HeadView v{x.v, first_key, D}, result{o, head * s.queries, D};
        for (std::int64_t i = 0; i < s.queries; ++i) {
            const std::int64_t row = head * s.queries + i;
            const double delta = dot(d_o[i], result[i], D);
            const double delta_magnitude = size_of_sums(d_o[i], result[i], D);
            for (std::int64_t j = 0; j < seen_by(s, i); ++j) {
                const std::int64_t column = first_key + j;
                const double score = scale * dot(q[i], k[j], D);
                const double weight = std::exp(score - lse[static_cast<std::size_t>(row)]);
                const double relative = 1 + std::abs(scale) * size_of_sums(q[i], k[j], D) +
                                        std::abs(lse[static_cast<std::size_t>(row)]);
                const double gradient = weight * (dot(d_o[i], v[j], D) - delta);
                const double magnitude =
                    weight * relative * (size_of_sums(d_o[i], v[j], D) + delta_magnitude);
                add_row(oracle.dv, column, D, weight, weight * relative, d_o[i]);
                add_row(oracle.dk, column, D, scale * gradient, std::abs(scale) * magnitude, q[i]);
                add_row(oracle.dq, row, D, scale * gradient, std::abs(scale) * magnitude, k[j]);
            }
        }
    }
    return oracle;
}

PlainAttention plain_attention(const AttentionSize& s, const AttentionOperands& x) {
    const std::int64_t D = s.head_size;
    const auto stored = [&](double value) { return rounded_to(value, s.dtype); };
    const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
    PlainAttention plain;
    plain.o.resize(x.q.size());
    plain.dq.resize(x.q.size());
    plain.dk.resize(x.k.size());
    plain.dv.resize(x.k.size());
    const auto product = [&](const double* a, const double* b, std::int64_t count, std::int64_t step_a,
                             std::int64_t step_b) {
        float sum = 0;
        for (std::int64_t i = 0; i < count; ++i)
            sum = std::fma(static_cast<float>(a[i * step_a]), static_cast<float>(b[i * step_b]), sum);
        return stored(static_cast<double>(sum));
    };
    const std::int64_t T = s.queries, S = s.keys;
    for (std::int64_t head = 0; head < s.heads; ++head) {
        const std::int64_t first_key = head / s.group * S;
        const HeadView q{x.q, head * T, D}, d_o{x.d_o, head * T, D}, k{x.k, first_key, D};
        const HeadView v{x.v, first_key, D};
        Numbers weights(at(T * S)), gradients(at(T * S));
        for (std::int64_t i = 0; i < T; ++i) {
            Numbers scores(at(S)), dp(at(S));
            for (std::int64_t j = 0; j < S; ++j) {
                scores[at(j)] =
                    stored(static_cast<double>(static_cast<float>(product(q[i], k[j], D, 1, 1)) * s.scale));
                dp[at(j)] = product(d_o[i], v[j], D, 1, 1);
            }
            const std::int64_t seen = seen_by(s, i);
            const double highest = *std::max_element(scores.begin(), scores.begin() + seen);
            float sum = 0, mean = 0;
            const auto exponential = [&](std::int64_t j) {
                return std::exp(static_cast<float>(scores[at(j)]) - static_cast<float>(highest));
            };
            for (std::int64_t j = 0; j < seen; ++j) sum += exponential(j);
            for (std::int64_t j = 0; j < seen; ++j) {
                weights[at(i * S + j)] = stored(static_cast<double>(exponential(j) / sum));
                mean += static_cast<float>(weights[at(i * S + j)]) * static_cast<float>(dp[at(j)]);
            }
            for (std::int64_t j = 0; j < seen; ++j) {
                const float ds =
                    static_cast<float>(weights[at(i * S + j)]) * (static_cast<float>(dp[at(j)]) - mean);
                gradients[at(i * S + j)] = stored(
                    static_cast<double>(static_cast<float>(stored(static_cast<double>(ds))) * s.scale));
            }
            for (std::int64_t d = 0; d < D; ++d) {
                plain.o[at((head * T + i) * D + d)] = product(&weights[at(i * S)], v[0] + d, S, 1, D);
                plain.dq[at((head * T + i) * D + d)] = product(&gradients[at(i * S)], k[0] + d, S, 1, D);
            }
        }
        for (std::int64_t j = 0; j < S; ++j)
            for (std::int64_t d = 0; d < D; ++d) {
                double &dv = plain.dv[at((first_key + j) * D + d)],
                       &dk = plain.dk[at((first_key + j) * D + d)];
                dv = stored(dv + product(&weights[at(j)], d_o[0] + d, T, S, D));
                dk = stored(dk + product(&gradients[at(j)], q[0] + d, T, S, D));
            }
    }
    return plain;
}

}  // namespace mantissa::on_cpu
