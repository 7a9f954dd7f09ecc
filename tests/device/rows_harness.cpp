#include "tests/device/rows_harness.h"

#include <sys/mman.h>

#include <cmath>
#include <cstring>

#include "mantissa/base/random.h"
#include "mantissa/base/whole_units.h"
#include "mantissa/numerics/formats.h"

namespace mantissa::on_cpu {

namespace {

constexpr std::int64_t page = 4096;

}  // namespace

std::string Setting::text() const {
    return std::string(kernels.name) + ", threads " + std::to_string(pool.threads()) +
           (placement == Placement::starts_at_guard ? ", starts at guard" : ", ends at guard") +
           (stores == Stores::streaming ? ", streaming" : ", plain");
}

Guarded::Guarded(const Setting& setting, DType type, std::int64_t count) : type_(type), count_(count) {
    const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(type));
    const std::int64_t inside = align_up(bytes, page);
    mapped_ = inside + 2 * page;
    void* memory = ::mmap(nullptr, static_cast<std::size_t>(mapped_), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    mapping_ = static_cast<std::byte*>(memory);
    ::mprotect(mapping_, page, PROT_NONE);
    ::mprotect(mapping_ + page + inside, page, PROT_NONE);
    const bool first = setting.placement == Placement::starts_at_guard;
    data_ = mapping_ + page + (first ? 0 : inside - bytes);
    std::memset(mapping_ + page, 0xff, static_cast<std::size_t>(inside));
}

Guarded::~Guarded() { ::munmap(mapping_, static_cast<std::size_t>(mapped_)); }

void Guarded::assign(std::span<const double> values) {
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), count_);
    for (std::int64_t i = 0; i < count_; ++i)
        store_from_f64(data_, type_, i, values[static_cast<std::size_t>(i)]);
}

void Guarded::assign(std::span<const std::int32_t> values) {
    ASSERT_EQ(static_cast<std::int64_t>(values.size()), count_);
    std::memcpy(data_, values.data(), values.size_bytes());
}

std::vector<double> Guarded::values() const {
    std::vector<double> all(static_cast<std::size_t>(count_));
    for (std::int64_t i = 0; i < count_; ++i) all[static_cast<std::size_t>(i)] = load_as_f64(data_, type_, i);
    return all;
}

std::vector<std::byte> Guarded::bytes() const {
    return {data_, data_ + count_ * static_cast<std::int64_t>(size_of(type_))};
}

std::vector<const RowKernels*> levels() {
    std::vector<const RowKernels*> all = {&row_kernels(Isa::generic)};
    if (best_isa() >= Isa::avx2) all.push_back(&row_kernels(Isa::avx2));
    if (best_isa() >= Isa::avx512) all.push_back(&row_kernels_avx512());
    if (has_bf16_dot()) all.push_back(&row_kernels_avx512bf16());
    return all;
}

void check_everywhere(const std::function<std::vector<std::byte>(const Setting&)>& run) {
    static ThreadPool one(1);
    static ThreadPool two(2);
    static ThreadPool three(3);
    std::vector<std::byte> first;
    for (const RowKernels* kernels : levels())
        for (ThreadPool* pool : {&one, &two, &three})
            for (const Placement placement : {Placement::starts_at_guard, Placement::ends_at_guard})
                for (const Stores stores : {Stores::plain, Stores::streaming}) {
                    const Setting setting = {*kernels, *pool, placement, stores};
                    SCOPED_TRACE(setting.text());
                    const std::vector<std::byte> bytes = run(setting);
                    if (::testing::Test::HasFailure()) return;
                    if (first.empty()) first = bytes;
                    ASSERT_TRUE(bytes == first) << "other bits than the first run had";
                }
}

void expect_matches(const Guarded& got, std::span<const double> expected, const Tolerance& tolerance) {
    const std::int64_t shape[] = {got.count()};
    const Comparison comparison =
        compare({got.type(), got.as<void>(), {got.count()}}, expected, shape, tolerance);
    ASSERT_TRUE(comparison) << comparison.message;

    std::size_t greatest = 0;
    for (std::size_t i = 0; i < expected.size(); ++i)
        if (std::fabs(expected[i]) > std::fabs(expected[greatest])) greatest = i;
    const double value = expected[greatest];
    if (!std::isfinite(value) || value == 0) return;
    const double step = got.type() == DType::f32 ? std::fabs(value) * 1e-3 : 2 * ulp_at(value, got.type());
    std::vector<std::byte> spoilt = got.bytes();
    store_from_f64(spoilt.data(), got.type(), static_cast<std::int64_t>(greatest), value + step);
    EXPECT_FALSE(compare({got.type(), spoilt.data(), {got.count()}}, expected, shape, tolerance))
        << "an injected error of " << step << " at element " << greatest << " (" << value << ") passed";
}

std::vector<double> normal_values(std::int64_t count, DType type, double scale, std::uint32_t operation) {
    const RandomStream random{.seed = 11, .operation = operation};
    std::vector<double> values(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = rounded_to(scale * static_cast<double>(random.normal(i)), type);
    return values;
}

std::vector<std::byte> joined(std::initializer_list<const Guarded*> outputs) {
    std::vector<std::byte> all;
    for (const Guarded* output : outputs) {
        const std::vector<std::byte> bytes = output->bytes();
        all.insert(all.end(), bytes.begin(), bytes.end());
    }
    return all;
}

}  // namespace mantissa::on_cpu
