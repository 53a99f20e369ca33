#include <algorithm>
#include <cmath>

#include "base/half_float.hpp"
#include "pipeline/store/position_format.hpp"

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
        for (const float logit : position.logits) {
            if (type_ == ElementType::f32) {
                append_value(stream, logit);
            } else {
                // A finite logit stays finite; −inf is a token that the teacher rules out.
                append_value(stream,
                             float_to_half(std::isfinite(logit) ? std::clamp(logit, -kMaxHalf, kMaxHalf) : logit));
            }
        }
    }

    std::optional<std::string> find_defect(const StoredRowView& row) const override {
        return find_length_defect(streams_, row);
    }

    void decode(const StoredRowView& row, std::span<const std::uint32_t> positions,
                const TargetArrays& target) const override {
        const std::size_t bytes = vocabulary_ * element_size(type_);
        for_each_run(positions, [&](std::size_t first, std::size_t position, std::size_t count) {
            std::memcpy(target.values + position * bytes, row.streams[0].data() + first * bytes, count * bytes);
        });
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
