// Event files, which TensorBoard reads while they grow: TensorFlow's records (TFRecord), each an Event. Field
// numbers follow tensorboard/compat/proto/event.proto and summary.proto.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "mantissa/numerics/value_histogram.h"

namespace mantissa::inline v0 {

/// A message of Protocol Buffers, written field by field in call order: the part of the wire format that
/// event files need. https://protobuf.dev/programming-guides/encoding. `field` is the number in the .proto
/// file.
class ProtobufMessage {
  public:
    /// int32, int64, enum: not negative.
    void add_integer(int field, std::uint64_t value);
    void add_double(int field, double value);
    void add_float(int field, float value);
    /// string, bytes, or a message within.
    void add_bytes(int field, std::string_view bytes);
    void add_message(int field, const ProtobufMessage& message) { add_bytes(field, message.bytes()); }
    /// repeated double, packed.
    void add_doubles(int field, std::span<const double> values);

    const std::string& bytes() const { return bytes_; }

  private:
    enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, length = 2, fixed32 = 5 };
    void add_key(int field, Wire wire);
    void add_varint(std::uint64_t value);

    std::string bytes_;
};

/// A number of 4 or 8 bytes in file order, the least significant byte first.
template <class T>
std::string little_endian(T value);

/// Throws UserError unless `directory` is writable or can be made. Makes nothing.
void require_event_directory(const std::filesystem::path& directory);

class EventFile {
  public:
    /// Makes the directory if needed, and a new file for each run, events.out.tfevents.SECONDS.HOST.PID.
    /// `step`: the first to be written; TensorBoard drops later steps that it read from the run before a
    /// resume. Throws UserError if it cannot be written.
    EventFile(const std::filesystem::path& directory, std::int64_t step);

    const std::filesystem::path& path() const { return path_; }

    // Values of one step. A tag such as "loss/training" is a chart in the group "loss".
    void add_scalar(const std::string& tag, double value);
    /// A histogram with its numbers divided by `scale`.
    void add_histogram(const std::string& tag, const ValueHistogram& histogram, double scale = 1);
    void add_text(const std::string& tag, const std::string& text);

    /// Writes the added values with this step and the present time, visible to readers. Throws UserError on
    /// failure, as on a full disk.
    void write(std::int64_t step);

  private:
    struct Close {
        void operator()(std::FILE* file) const { std::fclose(file); }
    };
    void write_event(ProtobufMessage event);

    std::filesystem::path path_;
    std::unique_ptr<std::FILE, Close> file_;
    ProtobufMessage summary_;
};

}  // namespace mantissa
