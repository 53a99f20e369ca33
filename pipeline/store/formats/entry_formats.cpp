// Code shared by the formats, and the topk format.
#include <algorithm>

#include "base/half_float.hpp"
#include "pipeline/store/formats/position_format.hpp"

namespace distilld {
namespace {

/// ids I32 [k], logprobs F16 or F32 [k], tail F32: the layout of targets, so that reading is copying.
class TopkFormat final : public PositionFormat {
  public:
    explicit TopkFormat(const StoreManifest& manifest)
        : k_(manifest.k),
          vocabulary_(manifest.vocabulary),
          wide_(manifest.values == StoreValues::f32),
          streams_{{"ids", ElementType::i32, k_}, {"logprobs", value_type(), k_}, {"tail", ElementType::f32, 1}} {}

    Needs needs() const override { return Needs::entries; }
    const std::vector<StoreStream>& streams() const override { return streams_; }
    std::uint32_t width() const override { return k_; }
    ElementType value_type() const override { return wide_ ? ElementType::f32 : ElementType::f16; }

    void encode(const PositionTargets& position, StoredRow& row) const override {
        for (const std::int32_t id : position.ids) {
            append_value(row.streams[0], id);
        }
        for (const float value : position.values) {
            if (wide_) {
                append_value(row.streams[1], value);
            } else {
                append_value(row.streams[1], float_to_half(value));
            }
        }
        append_value(row.streams[2], position.tail);
    }

    std::optional<std::string> find_defect(const StoredRowView& row) const override {
        if (auto defect = find_length_defect(streams_, row)) {
            return defect;
        }
        std::uint32_t max = 0;
        const std::size_t count = std::size_t{row.tokens} * k_;
        for (std::size_t i = 0; i < count; ++i) {
            max = std::max(max, load_value<std::uint32_t>(row.streams[0], i));
        }
        if (max >= vocabulary_) {
            return "token id " + std::to_string(max) + " is outside the vocabulary";
        }
        return std::nullopt;
    }

    void decode(const StoredRowView& row, std::span<const TokenRun> runs, const TargetArrays& target) const override {
        const std::size_t value_bytes = k_ * element_size(value_type());
        const std::size_t id_bytes = k_ * sizeof(std::int32_t);
        for (const TokenRun& run : runs) {
            const std::size_t place = run.position;
            std::memcpy(target.ids + place * k_, row.streams[0].data() + run.token * id_bytes, run.count * id_bytes);
            std::memcpy(target.values + place * value_bytes, row.streams[1].data() + run.token * value_bytes,
                        run.count * value_bytes);
            std::memcpy(target.tail + place, row.streams[2].data() + run.token * sizeof(float),
                        run.count * sizeof(float));
        }
    }

  private:
    std::uint32_t k_;
    std::uint64_t vocabulary_;
    bool wide_;
    std::vector<StoreStream> streams_;
};

}  // namespace

std::optional<std::string> find_length_defect(const std::vector<StoreStream>& streams, const StoredRowView& row) {
    if (row.streams.size() != streams.size()) {
        return "it has " + std::to_string(row.streams.size()) + " streams, not " + std::to_string(streams.size());
    }
    for (std::size_t i = 0; i < streams.size(); ++i) {
        const std::uint64_t bytes = row.tokens * streams[i].width * element_size(streams[i].type);
        if (streams[i].width != 0 && row.streams[i].size() != bytes) {
            return streams[i].name + " has " + std::to_string(row.streams[i].size()) + " bytes, not " +
                   std::to_string(bytes);
        }
    }
    return std::nullopt;
}

std::uint32_t max_id(const BitUnpacker& unpacker, std::span<const std::byte> bytes,
                     std::span<std::int32_t> ids) noexcept {
    unpacker.unpack(bytes, ids);
    std::uint32_t max = 0;
    for (const std::int32_t id : ids) {
        max = std::max(max, static_cast<std::uint32_t>(id));
    }
    return max;
}

FillerIds::FillerIds(std::uint64_t vocabulary, std::uint32_t width)
    : vocabulary_(vocabulary), highest_(width), taken_(width) {
    for (std::uint32_t i = 0; i < width; ++i) {
        highest_[i] = static_cast<std::int32_t>(vocabulary - 1 - i);
    }
}

void FillerIds::fill(std::span<const std::int32_t> named, std::span<std::int32_t> ids) {
    // At most named.size() of the `width` highest ids are taken, which leaves enough.
    const std::uint64_t lowest = vocabulary_ - taken_.size();
    bool any = false;
    for (const std::int32_t id : named) {
        any |= static_cast<std::uint32_t>(id) >= lowest;
    }
    if (!any) {  // the common case
        std::memcpy(ids.data(), highest_.data(), ids.size_bytes());
        return;
    }
    std::fill(taken_.begin(), taken_.end(), false);
    for (const std::int32_t id : named) {
        if (static_cast<std::uint64_t>(id) >= lowest) {
            taken_[static_cast<std::uint64_t>(id) - lowest] = true;
        }
    }
    std::size_t place = taken_.size();
    for (std::int32_t& id : ids) {
        do {
            --place;
        } while (taken_[place]);
        id = static_cast<std::int32_t>(lowest + place);
    }
}

std::unique_ptr<PositionFormat> make_topk_format(const StoreManifest& manifest) {
    return std::make_unique<TopkFormat>(manifest);
}

std::unique_ptr<PositionFormat> make_position_format(const StoreManifest& manifest) {
    switch (manifest.format) {
        case StoreFormat::full:
            return make_full_format(manifest);
        case StoreFormat::topk:
            return make_topk_format(manifest);
        case StoreFormat::packed:
        case StoreFormat::topp:
            return make_packed_format(manifest);
        case StoreFormat::sampled:
            return make_sampled_format(manifest);
        case StoreFormat::tensors:
            break;
    }
    return nullptr;
}

}  // namespace distilld
