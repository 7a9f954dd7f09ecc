// Inputs on their way to a device whose copies run beside its work: an input given while one run works is
// there when the next one begins. Two slots take turns, each in the host's memory and in the device's.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "mantissa/device/device.h"

namespace mantissa::inline v0 {

class InputStaging {
  public:
    static constexpr std::int64_t slots = 2;

    /// `inputs`: where the work reads them. `memory`: of the device, as large as `slots` times all of them,
    /// each filled up to the device's alignment. Both must outlive this.
    InputStaging(Device& device, std::vector<std::span<std::byte>> inputs, std::span<std::byte> memory);
    /// Waits for copies that are under way.
    ~InputStaging();
    InputStaging(const InputStaging&) = delete;
    InputStaging& operator=(const InputStaging&) = delete;

    /// Takes the value of an input for the next run, at once; the copy to the device begins.
    void give(std::size_t input, std::span<const std::byte> value);

    /// Queues, as work, the move of the values given since the last call to their places.
    void queue();

  private:
    struct Slot {
        std::vector<std::span<std::byte>> on_host, on_device;  // by input
        std::unique_ptr<Program> into_place;                   // a step an input
        std::unique_ptr<Event> copied;                         // to the device, of every input given last
        std::unique_ptr<Event> emptied;                        // into place
    };
    void begin(Slot& slot);

    Device& device_;
    std::unique_ptr<HostMemory> host_;
    std::array<Slot, slots> slots_;
    std::size_t current_ = 0;
    std::vector<bool> given_;  // by input, to the current slot
    bool begun_ = false;       // something was given to the current slot
};

}  // namespace mantissa
