// cuBLASLt's checks, what it takes and refuses. What the emulated GPU does not offer is refused as not
// supported.
#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <span>

#include "mantissa/base/error.h"
#include "tests/emulated_gpu/matmul_job.h"
#include "tests/emulated_gpu/run_libraries.h"

namespace mantissa::inline v0::cuda {

struct MatmulPreferenceOf {
    std::uint64_t max_workspace = 0;
    std::uint32_t reduction_schemes = 7;
    std::array<std::uint32_t, 4> alignment = {256, 256, 256, 256};  // of a, b, c and d
};

namespace {

bool is_known(BlasType type) {
    using enum BlasType;
    constexpr std::array known = {f32, f16, bf16, s8, i32, e4m3, e5m2};
    return std::ranges::find(known, type) != known.end();
}

/// The problem that an algorithm was chosen for, in the words that nobody else looks into.
struct Chosen {
    std::array<std::uint32_t, 4> alignment = {};
    std::uint64_t workspace = 0;
    std::int64_t parts = 1;
    bool in_place = false;

    static constexpr std::uint64_t mark = 0x6d616e7469737361;

    MatmulAlgorithm packed() const {
        MatmulAlgorithm algorithm{.data = {mark, workspace}};
        for (std::size_t i = 0; i < alignment.size(); ++i) algorithm.data[2 + i] = alignment[i];
        algorithm.data[6] = static_cast<std::uint64_t>(parts);
        algorithm.data[7] = in_place ? 1 : 0;
        return algorithm;
    }
    /// Empty for an algorithm that this library did not give out.
    static std::optional<Chosen> of(const MatmulAlgorithm& algorithm) {
        if (algorithm.data[0] != mark) return {};
        Chosen chosen{.workspace = algorithm.data[1],
                      .parts = static_cast<std::int64_t>(algorithm.data[6]),
                      .in_place = algorithm.data[7] != 0};
        for (std::size_t i = 0; i < chosen.alignment.size(); ++i)
            chosen.alignment[i] = static_cast<std::uint32_t>(algorithm.data[2 + i]);
        return chosen;
    }
};

constexpr DevicePtr kept_alignment = 16;
/// The unit that extents of bytes, and addresses, are multiples of.
constexpr std::int64_t bytes_unit = 4;
/// The bytes that extents and addresses of FP8 are multiples of.
constexpr std::int64_t fp8_unit = 16;
/// As many ways there are to add up a sum: at once, and in two and three parts.
constexpr std::int64_t max_parts = 3;
/// Parts of long sums are kept in memory and added up: where a real one would cut the sum, too, since the
/// results alone would keep few of its multiprocessors busy.
constexpr std::int64_t longest_sum_at_once = 4096, max_results_in_parts = std::int64_t{1} << 22;

std::uint64_t workspace_of(const MatrixLayoutOf& d, std::int64_t terms, std::int64_t parts) {
    const std::int64_t results = d.rows * d.columns * d.batch;
    const bool is_long = terms > longest_sum_at_once && results <= max_results_in_parts;
    const std::int64_t kept = parts > 1 ? parts : is_long ? 1 : 0;
    return static_cast<std::uint64_t>(kept * results) * sizeof(float);
}

struct Matrices {
    const MatmulDescriptionOf* description = nullptr;
    const MatrixLayoutOf *a = nullptr, *b = nullptr, *c = nullptr, *d = nullptr;

    bool transposes_a() const { return description->a == BlasOperation::transposed; }
    bool transposes_b() const { return description->b == BlasOperation::transposed; }
    std::int64_t terms() const { return transposes_a() ? a->rows : a->columns; }

    /// As the library answers: invalid_value for what cannot be, not_supported for what it does not offer.
    BlasStatus check() const {
        for (const MatrixLayoutOf* one : {a, b, c, d})
            if (one->rows < 1 || one->columns < 1 || one->leading < one->rows || one->batch < 1)
                return BlasStatus::invalid_value;
        const std::int64_t rows = transposes_a() ? a->columns : a->rows;
        const std::int64_t columns = transposes_b() ? b->rows : b->columns;
        const std::int64_t terms_of_b = transposes_b() ? b->columns : b->rows;
        if (rows != d->rows || columns != d->columns || terms() != terms_of_b || c->rows != d->rows ||
            c->columns != d->columns)
            return BlasStatus::invalid_value;
        for (const MatrixLayoutOf* one : {a, b, c})
            if (one->batch != d->batch) return BlasStatus::invalid_value;
        if (description->is_of_bytes()) return check_bytes();
        if (is_fp8(a->type) || is_fp8(b->type)) return check_fp8();
        if (description->scale_of_a != 0 || description->scale_of_b != 0) return BlasStatus::invalid_value;
        for (const MatrixLayoutOf* one : {a, d})
            if (is_fp8(one->type) || one->type == BlasType::s8 || one->type == BlasType::i32)
                return BlasStatus::not_supported;
        const bool is_f32 = a->type == BlasType::f32;
        if (a->type != b->type || c->type != d->type || (d->type != a->type && d->type != BlasType::f32))
            return BlasStatus::not_supported;
        if (description->compute == BlasCompute::f32_as_tf32 && !is_f32) return BlasStatus::not_supported;
        if (description->compute != BlasCompute::f32 && description->compute != BlasCompute::f32_as_tf32)
            return BlasStatus::not_supported;
        return check_epilogue();
    }

    /// "To use IMMA kernels", as the library's documentation has it for layouts by columns: A transposed and
    /// B not, rows of D, terms and all leading dimensions multiples of 4. No epilogue goes with sums in i32,
    /// and batches are not offered.
    BlasStatus check_bytes() const {
        const bool types = a->type == BlasType::s8 && b->type == BlasType::s8 && c->type == BlasType::i32 &&
                           d->type == BlasType::i32;
        const bool in_fours =
            std::ranges::all_of(std::array{d->rows, terms(), a->leading, b->leading, c->leading, d->leading},
                                [](std::int64_t extent) { return extent % bytes_unit == 0; });
        const bool is_offered = types && in_fours && transposes_a() && !transposes_b() &&
                                description->epilogue == BlasEpilogue::none && d->batch == 1;
        return is_offered ? BlasStatus::success : BlasStatus::not_supported;
    }

    /// "To use FP8 kernels", as the library's documentation has it for layouts by columns: A transposed and B
    /// not, all extents and leading dimensions of 16 bytes, sums in FP32, not both operands in E5M2. Results
    /// in FP8 and FP16, GELU and batches are not offered, and a bias goes with results in BF16.
    BlasStatus check_fp8() const {
        using enum BlasEpilogue;
        const bool types = is_fp8(a->type) && is_fp8(b->type) &&
                           (a->type == BlasType::e4m3 || b->type == BlasType::e4m3) && c->type == d->type &&
                           (d->type == BlasType::bf16 || d->type == BlasType::f32);
        if (!types) return BlasStatus::not_supported;
        const bool whole = std::ranges::all_of(std::array{a, b, c, d}, [](const MatrixLayoutOf* one) {
            const auto size = static_cast<std::int64_t>(size_of(dtype_of(one->type)));
            return one->rows * size % fp8_unit == 0 && one->columns % fp8_unit == 0 &&
                   one->leading * size % fp8_unit == 0;
        });
        const bool takes_bias =
            d->type == BlasType::bf16 && description->bias_type.value_or(d->type) == d->type;
        const bool finish = description->epilogue == none || (description->epilogue == bias && takes_bias);
        const bool is_offered = whole && finish && transposes_a() && !transposes_b() && d->batch == 1 &&
                                description->compute == BlasCompute::f32;
        return is_offered ? BlasStatus::success : BlasStatus::not_supported;
    }

    /// Bias and kept input are of the output's type, and GELU's, too, of its operands'.
    BlasStatus check_epilogue() const {
        using enum BlasEpilogue;
        constexpr std::array offered = {none,      bias,           gelu,          gelu_bias,
                                        gelu_kept, gelu_kept_bias, gelu_gradient, gelu_and_bias_gradient};
        if (std::ranges::find(offered, description->epilogue) == offered.end())
            return BlasStatus::not_supported;
        if (description->epilogue == none) return BlasStatus::success;
        if (description->bias_type.value_or(d->type) != d->type) return BlasStatus::not_supported;
        const bool has_gelu = description->is_gelu() || description->is_gradient();
        if (has_gelu && (d->type != a->type || d->batch > 1)) return BlasStatus::not_supported;
        if (description->has_kept() &&
            (description->kept_leading % 8 != 0 || description->kept_leading < d->rows))
            return BlasStatus::invalid_value;
        return BlasStatus::success;
    }
};

/// Handles that were given out and not taken back.
template <class Of>
class Handles {
  public:
    Of* add(Of made) {
        auto held = std::make_unique<Of>(std::move(made));
        Of* const handle = held.get();
        all_[handle] = std::move(held);
        return handle;
    }
    bool has(const Of* handle) const { return all_.contains(handle); }
    BlasStatus remove(const Of* handle) {
        return all_.erase(handle) ? BlasStatus::success : BlasStatus::invalid_value;
    }

  private:
    std::map<const Of*, std::unique_ptr<Of>> all_;
};

template <class T>
BlasStatus take(T& to, const void* value, std::size_t bytes) {
    if (!value || bytes != sizeof to) return BlasStatus::invalid_value;
    std::memcpy(&to, value, bytes);
    return BlasStatus::success;
}

class EmulatedBlas {
  public:
    EmulatedBlas(RunMatmul run, int max_offered, bool has_fp8)
        : run_(std::move(run)), max_offered_(max_offered), has_fp8_(has_fp8) {}

    BlasStatus set(MatrixLayout layout, LayoutAttribute attribute, const void* value, std::size_t bytes) {
        if (!layouts.has(layout)) return BlasStatus::invalid_value;
        switch (attribute) {
            case LayoutAttribute::batch_count:
                return take(layout->batch, value, bytes);
            case LayoutAttribute::batch_stride:
                return take(layout->batch_stride, value, bytes);
        }
        return BlasStatus::not_supported;
    }

    BlasStatus set(MatmulDescription of, MatmulAttribute attribute, const void* value, std::size_t bytes) {
        if (!descriptions.has(of)) return BlasStatus::invalid_value;
        switch (attribute) {
            case MatmulAttribute::transpose_a:
                return take(of->a, value, bytes);
            case MatmulAttribute::transpose_b:
                return take(of->b, value, bytes);
            case MatmulAttribute::epilogue:
                return take(of->epilogue, value, bytes);
            case MatmulAttribute::bias_pointer:
                return take(of->bias, value, bytes);
            case MatmulAttribute::kept_pointer:
                return take(of->kept, value, bytes);
            case MatmulAttribute::kept_leading:
                return take(of->kept_leading, value, bytes);
            case MatmulAttribute::scale_of_a:
                return take(of->scale_of_a, value, bytes);
            case MatmulAttribute::scale_of_b:
                return take(of->scale_of_b, value, bytes);
            case MatmulAttribute::bias_type: {
                BlasType type = BlasType::f32;
                const BlasStatus status = take(type, value, bytes);
                of->bias_type = type;
                return status;
            }
        }
        return BlasStatus::not_supported;
    }

    BlasStatus set(MatmulPreference of, PreferenceAttribute attribute, const void* value, std::size_t bytes) {
        if (!preferences.has(of)) return BlasStatus::invalid_value;
        switch (attribute) {
            case PreferenceAttribute::max_workspace:
                return take(of->max_workspace, value, bytes);
            case PreferenceAttribute::reduction_schemes:
                return take(of->reduction_schemes, value, bytes);
            case PreferenceAttribute::min_alignment_a:
                return take(of->alignment[0], value, bytes);
            case PreferenceAttribute::min_alignment_b:
                return take(of->alignment[1], value, bytes);
            case PreferenceAttribute::min_alignment_c:
                return take(of->alignment[2], value, bytes);
            case PreferenceAttribute::min_alignment_d:
                return take(of->alignment[3], value, bytes);
        }
        return BlasStatus::not_supported;
    }

    /// Sums at once come first, then those in parts. Where more ways to add up parts are allowed than the one
    /// in FP32, those come first.
    BlasStatus find(const Matrices& matrices, MatmulPreference preference, std::span<MatmulHeuristic> results,
                    int* found) {
        *found = 0;
        if (!are_known(matrices) || !preferences.has(preference)) return BlasStatus::invalid_value;
        if (const BlasStatus status = check(matrices); status != BlasStatus::success) return status;
        Chosen chosen{.alignment = preference->alignment};
        chosen.in_place = (preference->reduction_schemes & ~reduce_in_f32) != 0;
        for (; chosen.parts <= std::min(max_parts, matrices.terms()); ++chosen.parts) {
            chosen.workspace = workspace_of(*matrices.d, matrices.terms(), chosen.parts);
            if (chosen.workspace > preference->max_workspace) continue;
            if (*found == max_offered_ || static_cast<std::size_t>(*found) == results.size()) break;
            results[static_cast<std::size_t>((*found)++)] = {.algorithm = chosen.packed(),
                                                             .workspace = chosen.workspace};
        }
        return *found > 0 ? BlasStatus::success : BlasStatus::not_supported;
    }

    BlasStatus multiply(const Matrices& matrices, const MatmulJob& asked, const MatmulAlgorithm* algorithm,
                        std::size_t workspace_bytes, Stream stream) {
        if (!are_known(matrices) || !algorithm) return BlasStatus::invalid_value;
        if (const BlasStatus status = check(matrices); status != BlasStatus::success) return status;
        const std::optional<Chosen> chosen = Chosen::of(*algorithm);
        if (!chosen) return BlasStatus::invalid_value;
        MatmulJob job = asked;
        job.parts = chosen->parts;
        job.in_place = chosen->in_place;
        job.workspace_bytes = workspace_of(job.d, matrices.terms(), job.parts);
        if (job.workspace_bytes != chosen->workspace || workspace_bytes < job.workspace_bytes ||
            (job.workspace_bytes > 0 && (job.workspace == 0 || job.workspace % 16 != 0)))
            return BlasStatus::not_supported;
        const auto is_aligned = [&](DevicePtr at, const MatrixLayoutOf& of, std::size_t which) {
            const auto size = static_cast<DevicePtr>(size_of(dtype_of(of.type)));
            const DevicePtr of_batch = of.batch > 1 ? static_cast<DevicePtr>(of.batch_stride) * size : 0;
            const DevicePtr least = job.description.is_of_bytes() ? bytes_unit
                                    : is_fp8(job.a.type)          ? fp8_unit
                                                                  : size;
            return at != 0 && at % least == 0 && (at | of_batch) % chosen->alignment[which] == 0;
        };
        if (!is_aligned(job.at_a, job.a, 0) || !is_aligned(job.at_b, job.b, 1) ||
            !is_aligned(job.at_d, job.d, 2) || !is_aligned(job.at_d, job.d, 3))
            return BlasStatus::not_supported;
        if ((job.description.adds_bias() || job.description.sums_gradient()) &&
            (job.description.bias == 0 || job.description.bias % size_of(dtype_of(job.d.type)) != 0))
            return BlasStatus::invalid_value;
        // The address must be as aligned as the one that the algorithm was asked for with.
        if (job.description.has_kept() &&
            (job.description.kept == 0 || job.description.kept % kept_alignment != 0))
            return BlasStatus::not_supported;
        return run_(stream, job) == Result::success ? BlasStatus::success : BlasStatus::execution_failed;
    }

    BlasStatus check(const Matrices& matrices) const {
        if (is_fp8(matrices.a->type) && !has_fp8_) return BlasStatus::not_supported;
        return matrices.check();
    }
    bool are_known(const Matrices& matrices) const {
        return descriptions.has(matrices.description) && layouts.has(matrices.a) && layouts.has(matrices.b) &&
               layouts.has(matrices.c) && layouts.has(matrices.d);
    }

    Handles<MatmulDescriptionOf> descriptions;
    Handles<MatrixLayoutOf> layouts;
    Handles<MatmulPreferenceOf> preferences;

  private:
    RunMatmul run_;
    int max_offered_;
    bool has_fp8_;
};

struct NamedStatus {
    BlasStatus status;
    const char* name;
    const char* text;
};

constexpr NamedStatus statuses[] = {
    {BlasStatus::success, "CUBLAS_STATUS_SUCCESS", "success"},
    {BlasStatus::invalid_value, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed"},
    {BlasStatus::not_supported, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the functionality requested is not supported"},
    {BlasStatus::execution_failed, "CUBLAS_STATUS_EXECUTION_FAILED", "the GPU program failed to execute"},
};

const char* word_of(BlasStatus status, const char* NamedStatus::*word) {
    const auto* const found = std::ranges::find(statuses, status, &NamedStatus::status);
    return found == std::end(statuses) ? "an unknown status" : (*found).*word;
}

void fill_descriptions(CublasLt& table, const std::shared_ptr<EmulatedBlas>& blas) {
    table.matrix_layout_create = [blas](MatrixLayout* layout, BlasType type, std::uint64_t rows,
                                        std::uint64_t columns, std::int64_t leading) {
        if (!is_known(type)) return BlasStatus::not_supported;
        *layout = blas->layouts.add({.type = type,
                                     .rows = static_cast<std::int64_t>(rows),
                                     .columns = static_cast<std::int64_t>(columns),
                                     .leading = leading});
        return BlasStatus::success;
    };
    table.matrix_layout_destroy = [blas](MatrixLayout layout) { return blas->layouts.remove(layout); };
    table.matrix_layout_set_attribute = [blas](MatrixLayout layout, LayoutAttribute attribute,
                                               const void* value, std::size_t bytes) {
        return blas->set(layout, attribute, value, bytes);
    };
    table.matmul_desc_create = [blas](MatmulDescription* description, BlasCompute compute, BlasType scale) {
        if ((scale == BlasType::i32) != (compute == BlasCompute::i32) ||
            (scale != BlasType::f32 && scale != BlasType::i32))
            return BlasStatus::not_supported;
        *description = blas->descriptions.add({.compute = compute});
        return BlasStatus::success;
    };
    table.matmul_desc_destroy = [blas](MatmulDescription of) { return blas->descriptions.remove(of); };
    table.matmul_desc_set_attribute = [blas](MatmulDescription of, MatmulAttribute attribute,
                                             const void* value, std::size_t bytes) {
        return blas->set(of, attribute, value, bytes);
    };
    table.matmul_preference_create = [blas](MatmulPreference* preference) {
        *preference = blas->preferences.add({});
        return BlasStatus::success;
    };
    table.matmul_preference_destroy = [blas](MatmulPreference of) { return blas->preferences.remove(of); };
    table.matmul_preference_set_attribute = [blas](MatmulPreference of, PreferenceAttribute attribute,
                                                   const void* value, std::size_t bytes) {
        return blas->set(of, attribute, value, bytes);
    };
}

}  // namespace

DType dtype_of(BlasType type) {
    switch (type) {
        case BlasType::f32:
            return DType::f32;
        case BlasType::f16:
            return DType::f16;
        case BlasType::bf16:
            return DType::bf16;
        case BlasType::s8:
            return DType::s8;
        case BlasType::i32:
            return DType::i32;
        case BlasType::e4m3:
        case BlasType::e5m2:
            return DType::u8;
    }
    throw InternalError("a type of cuBLASLt that is none");
}

CublasLt make_emulated_cublaslt(RunMatmul run, int max_offered, bool has_fp8) {
    const auto blas = std::make_shared<EmulatedBlas>(std::move(run), max_offered, has_fp8);
    CublasLt table;
    table.create = [blas](BlasHandle* handle) {
        *handle = reinterpret_cast<BlasHandle>(blas.get());
        return BlasStatus::success;
    };
    table.destroy = [](BlasHandle) { return BlasStatus::success; };
    table.get_version = [] { return std::size_t{120803}; };
    table.get_status_name = [](BlasStatus status) { return word_of(status, &NamedStatus::name); };
    table.get_status_string = [](BlasStatus status) { return word_of(status, &NamedStatus::text); };
    fill_descriptions(table, blas);
    table.matmul_algo_get_heuristic =
        [blas](BlasHandle, MatmulDescription description, MatrixLayout a, MatrixLayout b, MatrixLayout c,
               MatrixLayout d, MatmulPreference preference, int asked, MatmulHeuristic* results, int* found) {
            if (asked < 1 || !results || !found) return BlasStatus::invalid_value;
            return blas->find({description, a, b, c, d}, preference,
                              {results, static_cast<std::size_t>(asked)}, found);
        };
    table.matmul = [blas](BlasHandle, MatmulDescription description, const void* alpha, const void* a,
                          MatrixLayout layout_of_a, const void* b, MatrixLayout layout_of_b, const void* beta,
                          const void* c, MatrixLayout layout_of_c, void* d, MatrixLayout layout_of_d,
                          const MatmulAlgorithm* algorithm, void* workspace, std::size_t workspace_bytes,
                          Stream stream) {
        const Matrices matrices{description, layout_of_a, layout_of_b, layout_of_c, layout_of_d};
        if (!alpha || !beta || !blas->are_known(matrices)) return BlasStatus::invalid_value;
        const auto factor = [&](const void* of) {
            float number = 0;
            std::int32_t whole = 0;
            std::memcpy(&number, of, sizeof number);
            std::memcpy(&whole, of, sizeof whole);
            return description->is_of_bytes() ? static_cast<double>(whole) : static_cast<double>(number);
        };
        const double scale = factor(alpha), kept = factor(beta);
        // Sums that are added to are offered in FP32 alone.
        const bool adds = kept == 1 && layout_of_d->type == BlasType::f32;
        if (scale != 1 || (kept != 0 && !adds) || c != d) return BlasStatus::not_supported;
        const auto address = [](const void* of) { return reinterpret_cast<DevicePtr>(of); };
        const MatmulJob job{.description = *description,
                            .a = *layout_of_a,
                            .b = *layout_of_b,
                            .d = *layout_of_d,
                            .at_a = address(a),
                            .at_b = address(b),
                            .at_d = address(d),
                            .workspace = address(workspace),
                            .adds = adds};
        return blas->multiply(matrices, job, algorithm, workspace_bytes, stream);
    };
    return table;
}

}  // namespace mantissa::cuda
