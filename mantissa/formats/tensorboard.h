// Event files, which TensorBoard reads while they grow: records of TensorFlow's (TFRecord), each an Event.
// Field numbers are those of tensorboard/compat/proto/event.proto and summary.proto.
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

/// A message of Protocol Buffers, written field by field: as much of the wire format as event files need.
/// https://protobuf.dev/programming-guides/encoding
/// Fields follow one another in the order in which they are added; `field` is the number of the .proto file.
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

/// A number of 4 or 8 bytes in the order of files, the least significant first.
template <class T>
std::string little_endian(T value);

/// Throws UserError unless `directory` is one that files can be written to, or can be made. Makes nothing.
void require_event_directory(const std::filesystem::path& directory);

class EventFile {
  public:
    /// Makes the directory if there is none, and in it events.out.tfevents.SECONDS.HOST.PID, a new file for
    /// each run. `step`: the first that will be written; what TensorBoard read from it on, of a run that was
    /// resumed from before, it forgets. Throws UserError if it cannot be written.
    EventFile(const std::filesystem::path& directory, std::int64_t step);

    const std::filesystem::path& path() const { return path_; }

    // Values of one step. A tag such as "loss/training" is a chart in the group "loss".
    void add_scalar(const std::string& tag, double value);
    /// Its numbers divided by `scale`.
    void add_histogram(const std::string& tag, const ValueHistogram& histogram, double scale = 1);
    void add_text(const std::string& tag, const std::string& text);

    /// Writes what was added, as of this step and now, for all to see. Throws UserError where that fails, as
    /// on a full disk.
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
