// The table of lane functions by name, those of the best instruction set that the CPU has.
#include <map>

#include "mantissa/device/cpu/isa.h"
#include "tests/emulated_gpu/lane_functions_body.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

struct Tables {
    std::map<std::string, LaneFunction, std::less<>> functions;
    std::map<std::string, LaneTest, std::less<>> tests;

    Tables() {
        const LaneSink sink{.to = this,
                            .function =
                                [](void* to, const char* op, const char* type, LaneFunction function) {
                                    auto& all = static_cast<Tables*>(to)->functions;
                                    all[std::string(op) + "." + type] = function;
                                },
                            .test =
                                [](void* to, const char* op, const char* type, LaneTest test) {
                                    auto& all = static_cast<Tables*>(to)->tests;
                                    all[std::string(op) + "." + type] = test;
                                }};
        if (on_cpu::best_isa() >= on_cpu::Isa::avx2)
            list_lane_functions_avx2(sink);
        else
            list_lane_functions_generic(sink);
        list_lane_approximations(sink);
        list_lane_halves(sink);
    }
};

const Tables& tables() {
    static const Tables all;
    return all;
}

}  // namespace

void list_lane_functions_generic(const LaneSink& sink) { list_all(sink); }

LaneFunction lane_function(const std::string& name) {
    const auto found = tables().functions.find(name);
    return found == tables().functions.end() ? nullptr : found->second;
}

LaneTest lane_test(const std::string& name) {
    const auto found = tables().tests.find(name);
    return found == tables().tests.end() ? nullptr : found->second;
}

}  // namespace mantissa::cuda::ptx
