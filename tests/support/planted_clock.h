// An emulated GPU whose events tell planted times: how long a product takes follows from which of the
// algorithms offered runs it.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "mantissa/device/cuda/cuda_device.h"
#include "mantissa/numerics/formats.h"
#include "tests/emulated_gpu/emulated_gpu.h"

namespace mantissa::testing {

class PlantedClock {
  public:
    /// `milliseconds`: of the first, the second and the third algorithm offered; 0: it does not run.
    explicit PlantedClock(std::vector<double> milliseconds, const cuda::EmulatedGpuOptions& options = {})
        : gpu_(with_three_algorithms(options)), state_(std::make_shared<State>()) {
        state_->milliseconds = std::move(milliseconds);
        libraries = {gpu_.driver(), gpu_.cublaslt(), gpu_.cudnn()};
        plant_events();
        plant_algorithms();
    }

    std::unique_ptr<Device> device(const CudaOptions& options = {}) const {
        return std::move(*make_cuda_device(libraries, options));
    }

    /// Products that were begun since the last call, by algorithm.
    std::vector<int> take_launches() const {
        return std::exchange(state_->launches, std::vector<int>(state_->milliseconds.size()));
    }
    void set(std::vector<double> milliseconds) const { state_->milliseconds = std::move(milliseconds); }
    /// The algorithm at this place stores a first element that is so much greater from now on, of this type.
    void falsify(std::size_t place, DType stored, double by) const {
        state_->faults.at(place) = {stored, by};
    }

    cuda::Libraries libraries;

  private:
    struct State {
        std::vector<double> milliseconds;
        std::vector<int> launches = std::vector<int>(3);
        std::vector<std::pair<DType, double>> faults = std::vector<std::pair<DType, double>>(3);
        double now = 0;
        std::map<cuda::Event, double> recorded;
        std::map<std::array<std::uint64_t, 8>, std::size_t> place;
    };

    static cuda::EmulatedGpuOptions with_three_algorithms(cuda::EmulatedGpuOptions options) {
        options.algorithms = 3;
        return options;
    }

    void plant_events() {
        cuda::Driver& driver = libraries.driver;
        driver.event_record = [record = driver.event_record, state = state_](cuda::Event event,
                                                                             cuda::Stream stream) {
            state->recorded[event] = state->now;
            return record(event, stream);
        };
        driver.event_elapsed_time = [state = state_](float* milliseconds, cuda::Event first,
                                                     cuda::Event second) {
            *milliseconds = static_cast<float>(state->recorded.at(second) - state->recorded.at(first));
            return cuda::Result::success;
        };
    }

    void plant_algorithms() {
        cuda::CublasLt& blas = libraries.blas;
        blas.matmul_algo_get_heuristic = [find = blas.matmul_algo_get_heuristic, state = state_](
                                             auto handle, auto product, auto a, auto b, auto c, auto d,
                                             auto preference, int asked, cuda::MatmulHeuristic* results,
                                             int* found) {
            const cuda::BlasStatus status =
                find(handle, product, a, b, c, d, preference, asked, results, found);
            for (int i = 0; i < *found; ++i)
                state->place[results[i].algorithm.data] = static_cast<std::size_t>(i);
            return status;
        };
        blas.matmul = [multiply = blas.matmul, driver = libraries.driver, state = state_](
                          auto handle, auto product, auto alpha, auto a, auto layout_of_a, auto b,
                          auto layout_of_b, auto beta, auto c, auto layout_of_c, auto d, auto layout_of_d,
                          const cuda::MatmulAlgorithm* algorithm, auto workspace, auto bytes, auto stream) {
            const std::size_t place = state->place.at(algorithm->data);
            ++state->launches.at(place);
            if (state->milliseconds.at(place) == 0) return cuda::BlasStatus::not_supported;
            state->now += state->milliseconds[place];
            const cuda::BlasStatus status =
                multiply(handle, product, alpha, a, layout_of_a, b, layout_of_b, beta, c, layout_of_c, d,
                         layout_of_d, algorithm, workspace, bytes, stream);
            const auto [stored, by] = state->faults.at(place);
            if (by != 0) add(driver, stream, reinterpret_cast<cuda::DevicePtr>(d), stored, by);
            return status;
        };
    }

    static void add(const cuda::Driver& driver, cuda::Stream stream, cuda::DevicePtr at, DType stored,
                    double by) {
        std::array<std::byte, sizeof(double)> element = {};
        driver.memcpy_dtoh_async(element.data(), at, size_of(stored), stream);
        driver.stream_synchronize(stream);
        store_from_f64(element.data(), stored, 0, load_as_f64(element.data(), stored, 0) + by);
        driver.memcpy_htod_async(at, element.data(), size_of(stored), stream);
        driver.stream_synchronize(stream);
    }

    cuda::EmulatedGpu gpu_;
    std::shared_ptr<State> state_;
};

}  // namespace mantissa::testing
