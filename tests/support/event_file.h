// TensorBoard's event files read back, by code that shares nothing with the writer.
#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace mantissa::testing {

/// CRC-32C bit by bit, by its definition.
inline std::uint32_t bitwise_crc32c(std::string_view bytes) {
    std::uint32_t rest = 0xFFFFFFFF;
    for (const char byte : bytes)
        for (int bit = 0; bit < 8; ++bit) {
            const bool differs = ((rest ^ static_cast<std::uint32_t>(byte >> bit)) & 1) != 0;
            rest = (rest >> 1) ^ (differs ? 0x82F63B78 : 0);
        }
    return rest ^ 0xFFFFFFFF;
}

/// The fields of a message: the values of each field number, in order. Integers as their eight bytes.
class Message {
  public:
    explicit Message(std::string_view bytes) {
        while (!bytes.empty()) {
            const std::uint64_t key = varint(bytes);
            std::string value;
            switch (key & 7) {
                case 0: {
                    const std::uint64_t integer = varint(bytes);
                    value.assign(reinterpret_cast<const char*>(&integer), sizeof integer);
                    break;
                }
                case 1:
                    value = take(bytes, 8);
                    break;
                case 2:
                    value = take(bytes, varint(bytes));
                    break;
                case 5:
                    value = take(bytes, 4);
                    break;
                default:
                    throw std::runtime_error("a wire type that is none");
            }
            fields_[static_cast<int>(key >> 3)].push_back(value);
        }
    }

    bool has(int field) const { return fields_.contains(field); }
    const std::vector<std::string>& all(int field) const {
        static const std::vector<std::string> none;
        return has(field) ? fields_.at(field) : none;
    }
    const std::string& bytes(int field) const {
        if (all(field).size() != 1) throw std::runtime_error("a field is there once");
        return all(field)[0];
    }
    Message message(int field) const { return Message(bytes(field)); }
    template <class T>
    T as(int field) const {
        T value;
        if (bytes(field).size() != sizeof value) throw std::runtime_error("a field of another width");
        std::memcpy(&value, bytes(field).data(), sizeof value);
        return value;
    }
    std::vector<double> doubles(int field) const {
        std::vector<double> values(bytes(field).size() / sizeof(double));
        std::memcpy(values.data(), bytes(field).data(), values.size() * sizeof(double));
        return values;
    }

  private:
    static std::string take(std::string_view& bytes, std::uint64_t count) {
        if (bytes.size() < count) throw std::runtime_error("a field ends behind its message");
        const std::string taken(bytes.substr(0, count));
        bytes.remove_prefix(count);
        return taken;
    }
    static std::uint64_t varint(std::string_view& bytes) {
        std::uint64_t value = 0;
        for (int shift = 0;; shift += 7) {
            const auto byte = static_cast<std::uint8_t>(take(bytes, 1)[0]);
            value |= std::uint64_t{byte & 0x7FU} << shift;
            if (byte < 0x80) return value;
        }
    }

    std::map<int, std::vector<std::string>> fields_;
};

/// The events of a file. Throws if a record is incomplete or a checksum is wrong.
inline std::vector<Message> events_of(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    std::vector<Message> events;
    const auto check_crc = [&](std::size_t at, std::size_t size) {
        std::uint32_t masked = 0;
        if (at + size + 4 > text.size()) throw std::runtime_error("a record is cut off");
        std::memcpy(&masked, text.data() + at + size, sizeof masked);
        const std::uint32_t rotated = masked - 0xA282EAD8U;
        if (((rotated >> 17) | (rotated << 15)) != bitwise_crc32c(std::string_view(text).substr(at, size)))
            throw std::runtime_error("a checksum is wrong");
    };
    for (std::size_t at = 0; at < text.size();) {
        check_crc(at, 8);
        std::uint64_t length = 0;
        std::memcpy(&length, text.data() + at, sizeof length);
        check_crc(at + 12, length);
        events.emplace_back(std::string_view(text).substr(at + 12, length));
        at += 12 + length + 4;
    }
    return events;
}

/// The only event file of a directory.
inline std::filesystem::path event_file_in(const std::filesystem::path& directory) {
    std::vector<std::filesystem::path> found;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) found.push_back(entry.path());
    if (found.size() != 1) throw std::runtime_error("not one file");
    return found[0];
}

/// A tag's values in an event, as Summary.Value messages.
inline std::vector<Message> values_of(const Message& event, const std::string& tag) {
    std::vector<Message> found;
    if (!event.has(5)) return found;
    const Message summary = event.message(5);
    for (const std::string& bytes : summary.all(1))
        if (Message value(bytes); value.bytes(1) == tag) found.push_back(std::move(value));
    return found;
}

}  // namespace mantissa::testing
