#include "mantissa/formats/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <vector>

#include "mantissa/base/atomic_file.h"
#include "mantissa/base/checksum.h"
#include "mantissa/base/error.h"

namespace mantissa::inline v0 {

template <class T>
std::string little_endian(T value) {
    std::string bytes;
    for (std::size_t i = 0; i < sizeof value; ++i) bytes += static_cast<char>((value >> 8 * i) & 0xFF);
    return bytes;
}

template std::string little_endian(std::uint32_t);
template std::string little_endian(std::uint64_t);

void ProtobufMessage::add_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7F) | 0x80);
    bytes_ += static_cast<char>(value);
}

void ProtobufMessage::add_key(int field, Wire wire) {
    add_varint((static_cast<std::uint64_t>(field) << 3) | static_cast<std::uint64_t>(wire));
}

void ProtobufMessage::add_integer(int field, std::uint64_t value) {
    add_key(field, Wire::varint);
    add_varint(value);
}

void ProtobufMessage::add_double(int field, double value) {
    add_key(field, Wire::fixed64);
    bytes_ += little_endian(std::bit_cast<std::uint64_t>(value));
}

void ProtobufMessage::add_float(int field, float value) {
    add_key(field, Wire::fixed32);
    bytes_ += little_endian(std::bit_cast<std::uint32_t>(value));
}

void ProtobufMessage::add_bytes(int field, std::string_view bytes) {
    add_key(field, Wire::length);
    add_varint(bytes.size());
    bytes_ += bytes;
}

void ProtobufMessage::add_doubles(int field, std::span<const double> values) {
    std::string packed;
    for (const double value : values) packed += little_endian(std::bit_cast<std::uint64_t>(value));
    add_bytes(field, packed);
}

namespace {

namespace fs = std::filesystem;

/// Field numbers; one enumeration per message, with its name.
namespace event {
enum : int { wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7 };
}
namespace session_log {
enum : int { status = 1 };
constexpr std::uint64_t start = 1;  // SessionStatus.START
}  // namespace session_log
namespace summary {
enum : int { value = 1 };
}
namespace value {
enum : int { tag = 1, simple_value = 2, histo = 5, tensor = 8, metadata = 9 };
}
namespace histogram {
enum : int { min = 1, max = 2, num = 3, sum = 4, sum_squares = 5, bucket_limit = 6, bucket = 7 };
}
namespace metadata {
enum : int { plugin_data = 1 };
}
namespace plugin_data {
enum : int { plugin_name = 1 };
}
namespace tensor {
enum : int { dtype = 1, tensor_shape = 2, string_val = 8 };
constexpr std::uint64_t dt_string = 7;  // DataType.DT_STRING
}  // namespace tensor
namespace tensor_shape {
enum : int { dim = 2 };
}
namespace dim {
enum : int { size = 1 };
}

/// TFRecord masks checksums, since a plain checksum of data that contains its own checksum is of little use.
std::uint32_t masked_crc(std::string_view bytes) {
    const std::uint32_t crc = crc32c(bytes);
    return ((crc >> 15) | (crc << 17)) + 0xA282EAD8U;
}

double seconds_since_1970() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
    std::array<char, 256> name = {};
    return ::gethostname(name.data(), name.size() - 1) == 0 && name[0] ? name.data() : "localhost";
}

/// A tensor of one string, for the text dashboard.
ProtobufMessage text_tensor(const std::string& text) {
    ProtobufMessage extent, shape, tensor;
    extent.add_integer(dim::size, 1);
    shape.add_message(tensor_shape::dim, extent);
    tensor.add_integer(tensor::dtype, tensor::dt_string);
    tensor.add_message(tensor::tensor_shape, shape);
    tensor.add_bytes(tensor::string_val, text);
    return tensor;
}

/// Names the dashboard that shows a tensor.
ProtobufMessage shown_by(const std::string& plugin) {
    ProtobufMessage data, metadata;
    data.add_bytes(plugin_data::plugin_name, plugin);
    metadata.add_message(metadata::plugin_data, data);
    return metadata;
}

}  // namespace

void require_event_directory(const fs::path& directory) {
    std::error_code ignored;
    fs::path there = fs::absolute(directory, ignored).lexically_normal();
    while (!fs::exists(there, ignored) && there.has_parent_path() && there != there.parent_path())
        there = there.parent_path();
    if (directory.empty() || !fs::is_directory(there, ignored))
        throw UserError(fmt::format("'{}': {} is no folder; name one for the event files", directory.string(),
                                    directory.empty() ? "that" : there.string()));
    const AtomicFile probe(there / "events.out.tfevents");  // removed again, since nothing commits it
}

EventFile::EventFile(const fs::path& directory, std::int64_t step) {
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) throw UserError(fmt::format("{}: cannot be made: {}", directory.string(), error.message()));
    path_ = directory /
            fmt::format("events.out.tfevents.{:.0f}.{}.{}", seconds_since_1970(), host_name(), ::getpid());
    file_.reset(std::fopen(path_.c_str(), "wbx"));
    if (!file_)
        throw UserError(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
    ProtobufMessage version, log, start;
    version.add_bytes(event::file_version, "brain.Event:2");
    write_event(std::move(version));
    log.add_integer(session_log::status, session_log::start);
    start.add_integer(event::step, static_cast<std::uint64_t>(step));
    start.add_message(event::session_log, log);
    write_event(std::move(start));
}

void EventFile::add_scalar(const std::string& tag, double number) {
    ProtobufMessage entry;
    entry.add_bytes(value::tag, tag);
    entry.add_float(value::simple_value, static_cast<float>(number));
    summary_.add_message(summary::value, entry);
}

void EventFile::add_histogram(const std::string& tag, const ValueHistogram& numbers, double scale) {
    std::vector<double> limits, counts;
    for (const ValueHistogram::Bucket& bucket : numbers.buckets()) {
        limits.push_back(bucket.limit / scale);
        counts.push_back(static_cast<double>(bucket.count));
    }
    ProtobufMessage message, entry;
    message.add_double(histogram::min, numbers.least() / scale);
    message.add_double(histogram::max, numbers.greatest() / scale);
    message.add_double(histogram::num, static_cast<double>(numbers.numbers()));
    message.add_double(histogram::sum, numbers.sum() / scale);
    message.add_double(histogram::sum_squares, numbers.sum_of_squares() / scale / scale);
    message.add_doubles(histogram::bucket_limit, limits);
    message.add_doubles(histogram::bucket, counts);
    entry.add_bytes(value::tag, tag);
    entry.add_message(value::histo, message);
    summary_.add_message(summary::value, entry);
}

void EventFile::add_text(const std::string& tag, const std::string& text) {
    ProtobufMessage entry;
    entry.add_bytes(value::tag, tag);
    entry.add_message(value::tensor, text_tensor(text));
    entry.add_message(value::metadata, shown_by("text"));
    summary_.add_message(summary::value, entry);
}

void EventFile::write(std::int64_t step) {
    ProtobufMessage message;
    message.add_integer(event::step, static_cast<std::uint64_t>(step));
    message.add_message(event::summary, summary_);
    summary_ = {};
    write_event(std::move(message));
}

/// A record: the length of the data, its checksum, the data, its checksum.
void EventFile::write_event(ProtobufMessage message) {
    message.add_double(event::wall_time, seconds_since_1970());
    const std::string& data = message.bytes();
    const std::string length = little_endian(std::uint64_t{data.size()});
    const std::string record =
        length + little_endian(masked_crc(length)) + data + little_endian(masked_crc(data));
    if (std::fwrite(record.data(), 1, record.size(), file_.get()) != record.size() ||
        std::fflush(file_.get()) != 0)
        throw UserError(fmt::format("{}: cannot be written: {}", path_.string(), std::strerror(errno)));
}

}  // namespace mantissa
