// Loads and stores, and what is judged of them: inside an allocation that lives, aligned, written before it
// is read, no race.
#include "tests/emulated_gpu/run_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "tests/emulated_gpu/warp.h"

namespace mantissa::inline v0::cuda::ptx {

namespace {

const char* verb(Touch touch) {
    return touch == Touch::write ? "writes" : touch == Touch::atomic ? "changes atomically" : "reads";
}
bool reads(Touch touch) { return touch != Touch::write; }
bool writes(Touch touch) { return touch == Touch::write || touch == Touch::atomic; }

/// Calls `visit(address / 4, mask)` for each aligned four bytes of the access.
template <class Visit>
void each_word(std::uint64_t address, std::int64_t bytes, const Visit& visit) {
    const std::uint64_t end = address + static_cast<std::uint64_t>(bytes);
    for (std::uint64_t word = address / 4; word * 4 < end; ++word) {
        const std::uint64_t first = std::max(address, word * 4) - word * 4;
        const std::uint64_t last = std::min(end, word * 4 + 4) - word * 4;
        visit(word, static_cast<unsigned>((1u << last) - (1u << first)));
    }
}

constexpr std::uint64_t in_shared = std::uint64_t{1} << 62;

std::string in_words(std::int64_t bytes, Touch touch, std::uint64_t address) {
    return fmt::format("{} {} bytes at {:#x}", verb(touch), bytes, address);
}

}  // namespace

std::byte* Warp::global(std::uint64_t address, std::int64_t bytes, Touch touch, int lane) {
    const LaunchedKernel& launched = *block->launch;
    const Allocation*& hint = hints[pc % hints.size()];
    const auto inside = [&] {
        return hint && hint->live && address >= hint->address &&
               static_cast<std::int64_t>(address - hint->address) + bytes <= hint->size;
    };
    if (!inside()) {
        hint = launched.memory->at_or_before(address);
        if (!inside())
            fault(Result::illegal_address, lane,
                  in_words(bytes, touch, address) + ", " + launched.memory->fault(address, bytes));
    }
    if ((address & static_cast<std::uint64_t>(bytes - 1)) != 0)
        fault(Result::misaligned_address, lane,
              in_words(bytes, touch, address) +
                  fmt::format(", which is not aligned to them, in {}", name_of(*hint)));
    const auto offset = static_cast<std::int64_t>(address - hint->address);
    std::uint8_t* const written = hint->written() + offset;
    if (reads(touch) && !launched.sampled)
        for (std::int64_t i = 0; i < bytes; ++i)
            if (written[i] != byte_written)
                fault(Result::illegal_address, lane,
                      in_words(bytes, touch, address) +
                          fmt::format(", which nobody wrote, at byte {} of {}", offset + i, name_of(*hint)));
    if (writes(touch)) std::memset(written, byte_written, static_cast<std::size_t>(bytes));
    if (launched.races) {
        AccessCells* const cells = hint->cells();
        each_word(static_cast<std::uint64_t>(offset), bytes, [&](std::uint64_t word, unsigned mask) {
            std::uint32_t other = 0;
            const Clash clash =
                note_between_blocks(cells[word], mask, touch, {launched.number, block->index}, other);
            if (clash == Clash::read_only)
                fault(Result::launch_failed, lane,
                      in_words(bytes, touch, address) +
                          fmt::format(
                              " in {}: memory is read as what nobody writes (.nc) and written in one launch",
                              name_of(*hint)));
            if (clash != Clash::none)
                fault(Result::launch_failed, lane,
                      in_words(bytes, touch, address) +
                          fmt::format(" in {}, a race with block {}, which {} it", name_of(*hint), other,
                                      clash == Clash::write ? "writes" : "reads"));
            if (touch == Touch::read_only) return;
            const int with =
                block->accesses.note((hint->address >> 2) + word, mask, touch, {thread(lane), warp_interval});
            if (with >= 0)
                fault(
                    Result::launch_failed, lane,
                    in_words(bytes, touch, address) +
                        fmt::format(" in {}, a race with thread {} of the block: no barrier is between them",
                                    name_of(*hint), with));
        });
    }
    return hint->data() + offset;
}

std::byte* Warp::shared(std::uint64_t address, std::int64_t bytes, Touch touch, int lane) {
    const auto size = static_cast<std::uint64_t>(block->shared_bytes.size());
    if (address + static_cast<std::uint64_t>(bytes) > size)
        fault(
            Result::illegal_address, lane,
            in_words(bytes, touch, address) + fmt::format(" of shared memory, of which there are {}", size));
    if ((address & static_cast<std::uint64_t>(bytes - 1)) != 0)
        fault(Result::misaligned_address, lane,
              in_words(bytes, touch, address) + " of shared memory, which is not aligned to them");
    std::uint8_t* const written = block->shared_written.data() + address;
    if (reads(touch))
        for (std::int64_t i = 0; i < bytes; ++i)
            if (written[i] != byte_written)
                fault(Result::illegal_address, lane,
                      in_words(bytes, touch, address) + " of shared memory, " +
                          (written[i] == under_way ? "which a cp.async has yet to write"
                                                   : "which nobody wrote"));
    if (writes(touch)) std::memset(written, byte_written, static_cast<std::size_t>(bytes));
    if (writes(touch) && program->by_warpgroups) note_for_products(address, bytes, lane);
    if (block->launch->races)
        each_word(address, bytes, [&](std::uint64_t word, unsigned mask) {
            const int with =
                block->accesses.note(in_shared | word, mask, touch, {thread(lane), warp_interval});
            if (with >= 0)
                fault(Result::launch_failed, lane,
                      in_words(bytes, touch, address) +
                          fmt::format(" of shared memory, a race with thread {}: no barrier is between them",
                                      with));
        });
    return block->shared_bytes.data() + address;
}

std::byte* Warp::local_bytes(std::uint64_t address, std::int64_t bytes, bool is_write, int lane) {
    const std::int64_t each = block->launch->kernel->local;
    const Touch touch = is_write ? Touch::write : Touch::read;
    if (address + static_cast<std::uint64_t>(bytes) > static_cast<std::uint64_t>(each))
        fault(Result::illegal_address, lane,
              in_words(bytes, touch, address) + fmt::format(" of local memory, of which there are {}", each));
    if ((address & static_cast<std::uint64_t>(bytes - 1)) != 0)
        fault(Result::misaligned_address, lane,
              in_words(bytes, touch, address) + " of local memory, which is not aligned to them");
    const auto offset = static_cast<std::size_t>(lane * each) + address;
    for (std::size_t i = 0; i < static_cast<std::size_t>(bytes); ++i) {
        if (is_write)
            local_written[offset + i] = std::byte{1};
        else if (local_written[offset + i] == std::byte{0})
            fault(Result::illegal_address, lane,
                  in_words(bytes, touch, address) + " of local memory, which nobody wrote");
    }
    return local.data() + offset;
}

std::byte* Warp::parameter(std::uint64_t address, std::int64_t bytes, int lane) {
    const std::vector<std::byte>& all = block->launch->parameters;
    if (address > all.size() || all.size() - address < static_cast<std::size_t>(bytes))
        fault(Result::illegal_address, lane,
              in_words(bytes, Touch::read, address) +
                  fmt::format(" of the kernel's parameters, of which there are {}", all.size()));
    if ((address & static_cast<std::uint64_t>(bytes - 1)) != 0)
        fault(Result::misaligned_address, lane,
              in_words(bytes, Touch::read, address) + " of the parameters, which is not aligned to them");
    return const_cast<std::byte*>(all.data()) + address;
}

std::byte* Warp::generic(std::uint64_t address, std::int64_t bytes, Touch touch, int lane) {
    if (address - shared_window < window_bytes) return shared(address - shared_window, bytes, touch, lane);
    if (address - local_window < window_bytes)
        return local_bytes(address - local_window, bytes, writes(touch), lane);
    return global(address, bytes, touch, lane);
}

namespace {

std::uint64_t address_of(Warp& w, const Instruction& i, int lane) {
    const std::uint64_t base =
        i.a.width == 4 ? w.lane_of<std::uint32_t>(i.a, lane) : w.lane_of<std::uint64_t>(i.a, lane);
    return base + static_cast<std::uint64_t>(i.offset);
}

/// Where each lane that executes reads or writes `bytes`.
void locate(Warp& w, const Instruction& i, std::int64_t bytes, Touch touch, std::byte** places) {
    using Where = MemoryAccess::Where;
    std::uint64_t of_global[warp_lanes];
    int count = 0;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((w.executing >> lane & 1) == 0) continue;
        const std::uint64_t address = address_of(w, i, lane);
        switch (i.memory.where) {
            case Where::shared:
                places[lane] = w.shared(address, bytes, touch, lane);
                break;
            case Where::local:
                places[lane] = w.local_bytes(address, bytes, writes(touch), lane);
                break;
            case Where::parameters_at:
                places[lane] = w.parameter(address, bytes, lane);
                break;
            case Where::global:
            case Where::constants:
                places[lane] = w.global(address, bytes, touch, lane);
                of_global[count++] = address;
                break;
            default:
                places[lane] = w.generic(address, bytes, touch, lane);
                if (address >= local_window + window_bytes) of_global[count++] = address;
        }
    }
    if (w.block->counted && count > 0) w.block->sectors.note(of_global, count, bytes, writes(touch));
}

/// Parameters: of the kernel, the same for all lanes, or of a function, which has its own for each.
void locate_parameters(Warp& w, const Instruction& i, std::byte** places) {
    const bool own = i.memory.where == MemoryAccess::Where::own_parameters;
    for (int lane = 0; lane < warp_lanes; ++lane)
        places[lane] = own ? w.at(i.a) + lane * static_cast<std::int64_t>(i.number) + i.offset
                           : const_cast<std::byte*>(w.block->launch->parameters.data()) + i.offset;
}

bool of_parameters(const Instruction& i) {
    return i.memory.where == MemoryAccess::Where::parameters ||
           i.memory.where == MemoryAccess::Where::own_parameters;
}

void move_all(Warp& w, const Instruction& i, Touch touch) {
    std::byte* places[warp_lanes] = {};
    const auto bytes = static_cast<std::int64_t>(i.memory.bytes * i.many.size());
    if (of_parameters(i))
        locate_parameters(w, i, places);
    else
        locate(w, i, bytes, touch, places);
    std::int64_t offset = 0;
    for (const Place& one : i.many) {
        i.memory.move(w.at(one), places, offset, w.executing);
        offset += i.memory.bytes;
    }
    ++w.pc;
}

template <class Memory, class Register>
void load_lanes(std::byte* lanes, std::byte* const* places, std::int64_t offset, std::uint32_t mask) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        Memory value;
        std::memcpy(&value, places[lane] + offset, sizeof value);
        const auto wide = static_cast<Register>(value);
        std::memcpy(lanes + sizeof wide * static_cast<std::size_t>(lane), &wide, sizeof wide);
    }
}

template <class Memory, class Register>
void store_lanes(std::byte* lanes, std::byte* const* places, std::int64_t offset, std::uint32_t mask) {
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((mask >> lane & 1) == 0) continue;
        Register value;
        std::memcpy(&value, lanes + sizeof value * static_cast<std::size_t>(lane), sizeof value);
        const auto narrow = static_cast<Memory>(value);
        std::memcpy(places[lane] + offset, &narrow, sizeof narrow);
    }
}

template <class Memory>
ElementMove load_into(int width) {
    if (width == 2) return load_lanes<Memory, std::uint16_t>;
    if (width == 4) return load_lanes<Memory, std::uint32_t>;
    return load_lanes<Memory, std::uint64_t>;
}

template <class Memory>
ElementMove store_from(int width) {
    if (width == 2) return store_lanes<Memory, std::uint16_t>;
    if (width == 4) return store_lanes<Memory, std::uint32_t>;
    return store_lanes<Memory, std::uint64_t>;
}

}  // namespace

ElementMove load_move(int bytes, int width, bool is_signed) {
    if (bytes == 1) return is_signed ? load_into<std::int8_t>(width) : load_into<std::uint8_t>(width);
    if (bytes == 2) return is_signed ? load_into<std::int16_t>(width) : load_into<std::uint16_t>(width);
    if (bytes == 4) return is_signed ? load_into<std::int32_t>(width) : load_into<std::uint32_t>(width);
    return load_into<std::uint64_t>(width);
}

ElementMove store_move(int bytes, int width) {
    if (bytes == 1) return store_from<std::uint8_t>(width);
    if (bytes == 2) return store_from<std::uint16_t>(width);
    if (bytes == 4) return store_from<std::uint32_t>(width);
    return store_from<std::uint64_t>(width);
}

void run_load(Warp& w, const Instruction& i) { move_all(w, i, i.memory.touch); }
void run_store(Warp& w, const Instruction& i) { move_all(w, i, i.memory.touch); }

// Atomics: lane after lane, each exactly once.
namespace {

template <class T>
T as(std::uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
template <class T>
std::uint64_t bits_in_word(T value) {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class T>
std::uint64_t added(std::uint64_t m, std::uint64_t x, std::uint64_t) {
    if constexpr (std::is_floating_point_v<T>)
        return bits_in_word(as<T>(m) + as<T>(x));
    else
        return bits_in_word(static_cast<T>(m + x));
}
template <class T>
std::uint64_t smaller(std::uint64_t m, std::uint64_t x, std::uint64_t) {
    return bits_in_word(std::min(as<T>(m), as<T>(x)));
}
template <class T>
std::uint64_t larger(std::uint64_t m, std::uint64_t x, std::uint64_t) {
    return bits_in_word(std::max(as<T>(m), as<T>(x)));
}

struct NamedAtomic {
    const char* name;
    AtomicFunction function;
};

using U = std::uint64_t;

constexpr NamedAtomic atomics[] = {
    {"add.u32", added<std::uint32_t>},
    {"add.s32", added<std::uint32_t>},
    {"add.u64", added<std::uint64_t>},
    {"add.s64", added<std::uint64_t>},
    {"add.f32", added<float>},
    {"add.f64", added<double>},
    {"min.u32", smaller<std::uint32_t>},
    {"min.s32", smaller<std::int32_t>},
    {"min.u64", smaller<std::uint64_t>},
    {"min.s64", smaller<std::int64_t>},
    {"max.u32", larger<std::uint32_t>},
    {"max.s32", larger<std::int32_t>},
    {"max.u64", larger<std::uint64_t>},
    {"max.s64", larger<std::int64_t>},
    {"and.b32", [](U m, U x, U) { return m & x; }},
    {"and.b64", [](U m, U x, U) { return m & x; }},
    {"or.b32", [](U m, U x, U) { return m | x; }},
    {"or.b64", [](U m, U x, U) { return m | x; }},
    {"xor.b32", [](U m, U x, U) { return m ^ x; }},
    {"xor.b64", [](U m, U x, U) { return m ^ x; }},
    {"exch.b32", [](U, U x, U) { return x; }},
    {"exch.b64", [](U, U x, U) { return x; }},
    {"cas.b16", [](U m, U x, U y) { return m == x ? y : m; }},
    {"cas.b32", [](U m, U x, U y) { return m == x ? y : m; }},
    {"cas.b64", [](U m, U x, U y) { return m == x ? y : m; }},
    {"inc.u32", [](U m, U x, U) { return m >= x ? U{0} : m + 1; }},
    {"dec.u32", [](U m, U x, U) { return m == 0 || m > x ? x : m - 1; }},
};

std::uint64_t operand(Warp& w, const Place& place, int lane) {
    switch (place.width) {
        case 2:
            return w.lane_of<std::uint16_t>(place, lane);
        case 4:
            return w.lane_of<std::uint32_t>(place, lane);
        case 8:
            return w.lane_of<std::uint64_t>(place, lane);
        default:
            return 0;
    }
}

}  // namespace

AtomicFunction atomic_function(const std::string& name) {
    for (const NamedAtomic& one : atomics)
        if (name == one.name) return one.function;
    return nullptr;
}

std::uint32_t number_of_atomic(const std::string& name) {
    std::uint32_t number = 0;
    while (name != atomics[number].name) ++number;
    return number;
}

void run_atomic(Warp& w, const Instruction& i) {
    const std::int64_t bytes = i.memory.bytes;
    for (int lane = 0; lane < warp_lanes; ++lane) {
        if ((w.executing >> lane & 1) == 0) continue;
        const std::uint64_t address = address_of(w, i, lane);
        std::byte* const at = i.memory.where == MemoryAccess::Where::shared
                                  ? w.shared(address, bytes, Touch::atomic, lane)
                                  : w.generic(address, bytes, Touch::atomic, lane);
        if (w.block->counted && address >= local_window + window_bytes)
            w.block->sectors.note(&address, 1, bytes, true);
        std::uint64_t before = 0;
        std::memcpy(&before, at, static_cast<std::size_t>(bytes));
        const std::uint64_t after =
            atomics[i.number].function(before, operand(w, i.b, lane), operand(w, i.c, lane));
        std::memcpy(at, &after, static_cast<std::size_t>(bytes));
        if (i.d.base != Place::nowhere) std::memcpy(w.at(i.d) + i.d.width * lane, &before, i.d.width);
    }
    ++w.pc;
}

}  // namespace mantissa::cuda::ptx
