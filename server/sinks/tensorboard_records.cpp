#include "server/sinks/tensorboard_records.hpp"

#include <bit>
#include <span>

#include "base/crc32c.hpp"
#include "server/sinks/sink_records.hpp"

namespace distilld::sinks {

namespace {

template <class Integer>
void append_little_endian(std::string& bytes, Integer value) {
    for (std::size_t i = 0; i < sizeof(Integer); ++i) {
        bytes.push_back(static_cast<char>((value >> (8 * i)) & 0xFF));
    }
}

/// TFRecord's mask, because a CRC over bytes that hold CRCs is weak.
std::uint32_t masked_crc(std::string_view bytes) {
    return std::rotr(crc32c(std::as_bytes(std::span(bytes))), 15) + 0xA282EAD8U;
}

/// A protobuf message under construction.
class Message {
  public:
    Message& number(unsigned field, std::uint64_t value) {
        key(field, 0);
        varint(value);
        return *this;
    }
    Message& real(unsigned field, double value) {
        key(field, 1);
        append_little_endian(bytes_, std::bit_cast<std::uint64_t>(value));
        return *this;
    }
    Message& real(unsigned field, float value) {
        key(field, 5);
        append_little_endian(bytes_, std::bit_cast<std::uint32_t>(value));
        return *this;
    }
    Message& bytes(unsigned field, std::string_view value) {
        key(field, 2);
        varint(value.size());
        bytes_ += value;
        return *this;
    }
    Message& message(unsigned field, const Message& value) { return bytes(field, value.bytes_); }

    [[nodiscard]] const std::string& text() const noexcept { return bytes_; }

  private:
    void key(unsigned field, unsigned wire_type) { varint((std::uint64_t{field} << 3U) | wire_type); }
    void varint(std::uint64_t value) {
        for (; value >= 0x80; value >>= 7U) {
            bytes_.push_back(static_cast<char>((value & 0x7FU) | 0x80U));
        }
        bytes_.push_back(static_cast<char>(value));
    }

    std::string bytes_;
};

// Fields of tensorflow.Event and its parts.
constexpr unsigned kWallTime = 1;
constexpr unsigned kStep = 2;
constexpr unsigned kFileVersion = 3;
constexpr unsigned kSummary = 5;
constexpr unsigned kSessionLog = 7;
constexpr unsigned kSessionStatus = 1;
constexpr std::uint64_t kSessionStart = 1;
constexpr unsigned kSummaryValue = 1;
constexpr unsigned kTag = 1;
constexpr unsigned kSimpleValue = 2;
constexpr unsigned kTensor = 8;
constexpr unsigned kMetadata = 9;
constexpr unsigned kPluginData = 1;
constexpr unsigned kPluginName = 1;
constexpr unsigned kTensorType = 1;
constexpr std::uint64_t kTypeString = 7;
constexpr unsigned kTensorShape = 2;
constexpr unsigned kShapeDimension = 2;
constexpr unsigned kDimensionSize = 1;
constexpr unsigned kTensorStrings = 8;

Message event(TensorboardTime at, std::uint64_t step) {
    Message event;
    event.real(kWallTime, unix_seconds(at));
    return step == 0 ? event : event.number(kStep, step);  // protobuf omits default values
}

}  // namespace

std::string tensorboard_version(TensorboardTime at) {
    return event(at, 0).bytes(kFileVersion, "brain.Event:2").text();
}

std::string tensorboard_start(TensorboardTime at, std::uint64_t step) {
    return event(at, step).message(kSessionLog, Message().number(kSessionStatus, kSessionStart)).text();
}

std::string tensorboard_scalars(TensorboardTime at, std::uint64_t step, const std::vector<TensorboardScalar>& scalars) {
    Message summary;
    for (const TensorboardScalar& scalar : scalars) {
        summary.message(kSummaryValue,
                        Message().bytes(kTag, scalar.tag).real(kSimpleValue, static_cast<float>(scalar.value)));
    }
    return event(at, step).message(kSummary, summary).text();
}

std::string tensorboard_text(TensorboardTime at, std::uint64_t step, std::string_view tag, std::string_view text) {
    const Message shape = Message().message(kShapeDimension, Message().number(kDimensionSize, 1));
    const Message tensor =
        Message().number(kTensorType, kTypeString).message(kTensorShape, shape).bytes(kTensorStrings, text);
    const Message metadata = Message().message(kPluginData, Message().bytes(kPluginName, "text"));
    const Message value = Message().bytes(kTag, tag).message(kTensor, tensor).message(kMetadata, metadata);
    return event(at, step).message(kSummary, Message().message(kSummaryValue, value)).text();
}

std::string tfrecord(std::string_view record) {
    std::string frame;
    append_little_endian(frame, static_cast<std::uint64_t>(record.size()));
    append_little_endian(frame, masked_crc(frame));
    frame += record;
    append_little_endian(frame, masked_crc(record));
    return frame;
}

}  // namespace distilld::sinks
