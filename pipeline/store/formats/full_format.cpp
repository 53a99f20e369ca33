#include <algorithm>
#include <cmath>

#include "base/half_float.hpp"
#include "pipeline/store/formats/position_format.hpp"

namespace distilld {
namespace {

constexpr float kMaxHalf = 65504.0F;

/// logits F16 or F32 [V].
class FullFormat final : public PositionFormat {
  public:
    explicit FullFormat(const StoreManifest& manifest)
        : vocabulary_(static_cast<std::uint32_t>(manifest.vocabulary)),
          type_(manifest.values == StoreValues::f32 ? ElementType::f32 : ElementType::f16),
          streams_{{"logits", type_, vocabulary_}} {}

    Needs needs() const override { return Needs::logits; }
    const std::vector<StoreStream>& streams() const override { return streams_; }
    std::uint32_t width() const override { return vocabulary_; }
    ElementType value_type() const override { return type_; }

    void encode(const PositionTargets& position, StoredRow& row) const override {
        auto& stream = row.streams[0];
        if (position.raw.type == type_) {
            stream.insert(stream.end(), position.raw.bytes.begin(), position.raw.bytes.end());
            return;
        }
        const std::size_t before = stream.size();
        stream.resize(before + position.logits.size() * element_size(type_));
        std::byte* at = stream.data() + before;
        if (type_ == ElementType::f32) {
            std::memcpy(at, position.logits.data(), position.logits.size_bytes());
            return;
        }
        for (const float logit : position.logits) {
            // A finite logit stays finite; −inf marks a token that the teacher rules out.
            const float kept = std::isfinite(logit) ? std::clamp(logit, -kMaxHalf, kMaxHalf) : logit;
            const std::uint16_t half = float_to_half(kept);
            std::memcpy(at, &half, sizeof half);
            at += sizeof half;
        }
    }

    std::optional<std::string> find_defect(const StoredRowView& row) const override {
        return find_length_defect(streams_, row);
    }

    void decode(const StoredRowView& row, std::span<const TokenRun> runs, const TargetArrays& target) const override {
        const std::size_t bytes = vocabulary_ * element_size(type_);
        for (const TokenRun& run : runs) {
            std::memcpy(target.values + run.position * bytes, row.streams[0].data() + run.token * bytes,
                        run.count * bytes);
        }
    }

  private:
    std::uint32_t vocabulary_;
    ElementType type_;
    std::vector<StoreStream> streams_;
};

}  // namespace

std::unique_ptr<PositionFormat> make_full_format(const StoreManifest& manifest) {
    return std::make_unique<FullFormat>(manifest);
}

}  // namespace distilld
