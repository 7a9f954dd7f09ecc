#include "tests/emulated_gpu/races.h"

#include <atomic>

namespace mantissa::inline v0::cuda::ptx {

namespace {

constexpr std::uint16_t several = 0x7fff, atomically = 0x8000;
constexpr std::size_t max_entries = std::size_t{1} << 21;

}  // namespace

BlockAccesses::Entry& BlockAccesses::entry(std::uint64_t key) {
    const std::size_t mask = table_.size() - 1;
    for (std::size_t at = (key * 0x9e3779b97f4a7c15u) >> 20 & mask;; at = (at + 1) & mask) {
        Entry& found = table_[at];
        if (found.interval == interval_ && found.key == key) return found;
        if (found.interval == interval_) continue;
        found = {.key = key, .interval = interval_};
        ++held_;
        return found;
    }
}

void BlockAccesses::make_room() {
    if (2 * held_ < table_.size()) return;
    if (table_.size() >= max_entries) return next_interval();  // what was noted is forgotten
    std::vector<Entry> before(2 * table_.size());
    before.swap(table_);
    held_ = 0;
    for (const Entry& one : before)
        if (one.interval == interval_) entry(one.key) = one;
}

int BlockAccesses::note(std::uint64_t key, unsigned byte_mask, Touch touch, const Who& who) {
    make_room();
    Entry& there = entry(key);
    const auto self = static_cast<std::uint16_t>(who.thread + 1);
    const bool writes = touch == Touch::write || touch == Touch::atomic;
    const bool strong = touch == Touch::atomic || touch == Touch::strong_read;
    int other = -1;
    const auto ordered = [&](std::uint16_t thread) {  // by bar.warp.sync, as far as it is noted
        return (thread - 1) / 32 == who.thread / 32 && there.warp_interval != who.warp_interval;
    };
    for (int byte = 0; byte < 4; ++byte) {
        if ((byte_mask >> byte & 1) == 0) continue;
        const std::uint16_t writer = there.writer[byte] & static_cast<std::uint16_t>(~atomically);
        const bool was_atomic = (there.writer[byte] & atomically) != 0;
        if (writer != 0 && writer != self && !(was_atomic && strong) && !ordered(writer)) other = writer - 1;
        const std::uint16_t reader = there.reader[byte];
        if (writes && reader != 0 && reader != self && (reader == several || !ordered(reader)))
            other = reader == several ? who.thread : reader - 1;
        if (writes)
            there.writer[byte] = static_cast<std::uint16_t>(self | (touch == Touch::atomic ? atomically : 0));
        else if (touch == Touch::read)
            there.reader[byte] = reader == 0 || reader == self || ordered(reader) ? self : several;
    }
    there.warp_interval = who.warp_interval;
    return other;
}

namespace {

// A cell: launch 24 bits | block 32 bits | bytes 4 bits | 4 bits of what kind.
constexpr std::uint64_t is_atomic = 1, is_several = 2, is_read_only = 4;

std::uint64_t packed(const BlockOfLaunch& who, unsigned bytes, std::uint64_t kind) {
    return std::uint64_t{who.launch & 0xffffff} << 40 | std::uint64_t{who.block} << 8 | bytes << 4 | kind;
}
bool same_launch(std::uint64_t cell, const BlockOfLaunch& who) {
    return cell != 0 && (cell >> 40) == (who.launch & 0xffffff);
}
std::uint32_t block_of(std::uint64_t cell) { return static_cast<std::uint32_t>(cell >> 8); }
unsigned bytes_of(std::uint64_t cell) { return cell >> 4 & 15; }

/// Adds the access to the cell, which keeps one block, or that there were several. Gives what was there.
std::uint64_t note(std::atomic_ref<std::uint64_t> cell, const BlockOfLaunch& who, unsigned bytes,
                   std::uint64_t kind, bool keeps_several) {
    std::uint64_t before = cell.load(std::memory_order_relaxed), after = 0;
    do {
        after = packed(who, bytes, kind);
        if (same_launch(before, who)) {
            const std::uint64_t kinds =
                (kind & before & is_atomic) | ((kind | before) & (is_several | is_read_only));
            if (block_of(before) == who.block)
                after = packed(who, bytes | bytes_of(before), kinds);
            else if (keeps_several)
                after = packed({who.launch, block_of(before)}, bytes | bytes_of(before), kinds | is_several);
        }
        if (after == before) return before;
    } while (!cell.compare_exchange_weak(before, after));
    return before;
}

/// Two bytes of four.
Clash note_half(std::uint64_t& write_cell, std::uint64_t& read_cell, unsigned byte_mask, Touch touch,
                const BlockOfLaunch& who, std::uint32_t& other) {
    const std::atomic_ref<std::uint64_t> write(write_cell), read(read_cell);
    const bool writes = touch == Touch::write || touch == Touch::atomic;
    // First noted, then looked at: of two at a time, one sees the other.
    if (writes) {
        const std::uint64_t before =
            note(write, who, byte_mask, touch == Touch::atomic ? is_atomic : 0, false);
        if (same_launch(before, who) && block_of(before) != who.block &&
            (bytes_of(before) & byte_mask) != 0 && !((before & is_atomic) && touch == Touch::atomic)) {
            other = block_of(before);
            return Clash::write;
        }
        const std::uint64_t reads = read.load();
        if (!same_launch(reads, who) || (bytes_of(reads) & byte_mask) == 0) return Clash::none;
        other = block_of(reads);
        if (reads & is_read_only) return Clash::read_only;
        return other != who.block || (reads & is_several) ? Clash::read : Clash::none;
    }
    if (touch != Touch::strong_read)
        note(read, who, byte_mask, touch == Touch::read_only ? is_read_only : 0, true);
    const std::uint64_t writer = write.load();
    if (!same_launch(writer, who) || (bytes_of(writer) & byte_mask) == 0) return Clash::none;
    other = block_of(writer);
    if (touch == Touch::read_only) return Clash::read_only;
    if (other == who.block || (touch == Touch::strong_read && (writer & is_atomic))) return Clash::none;
    return Clash::write;
}

}  // namespace

Clash note_between_blocks(AccessCells& cells, unsigned byte_mask, Touch touch, const BlockOfLaunch& who,
                          std::uint32_t& other) {
    for (const unsigned half : {0u, 1u}) {
        const unsigned mask = byte_mask & 3u << 2 * half;
        if (mask == 0) continue;
        const Clash clash = note_half(cells.write[half], cells.read[half], mask, touch, who, other);
        if (clash != Clash::none) return clash;
    }
    return Clash::none;
}

}  // namespace mantissa::cuda::ptx
