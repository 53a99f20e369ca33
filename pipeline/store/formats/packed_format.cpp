// packed and topp: ids of as many bits as the vocabulary needs; log-probabilities in 16 or 8 bits.
#include <algorithm>
#include <cmath>

#include "base/half_float.hpp"
#include "pipeline/store/formats/position_format.hpp"

namespace distilld {
namespace {

/// Lower bound of 8-bit log-probabilities, so that an entry without probability does not stretch their range.
constexpr float kMinCoded = -64.0F;
constexpr float kSteps = 255.0F;

[[gnu::always_inline]] inline void decode_each(float first, float step, const std::byte* codes,
                                               std::span<float> values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = first - step * static_cast<float>(codes[i]);
    }
}

#if defined(__x86_64__)
/// The same loop for wider vectors, without fused multiply-add, so the bits are the same.
__attribute__((target("avx2"))) void decode_by_eight(float first, float step, const std::byte* codes,
                                                     std::span<float> values) {
    decode_each(first, step, codes, values);
}
#endif

void decode_steps(float first, float step, const std::byte* codes, std::span<float> values) {
#if defined(__x86_64__)
    static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
    if (has_avx2) {
        decode_by_eight(first, step, codes, values);
        return;
    }
#endif
    decode_each(first, step, codes, values);
}

class PackedFormat final : public PositionFormat {
  public:
    explicit PackedFormat(const StoreManifest& manifest)
        : k_(manifest.k),
          vocabulary_(manifest.vocabulary),
          bits_(id_bits(manifest.vocabulary)),
          unpacker_(bits_),
          p_(manifest.p),
          ragged_(manifest.format == StoreFormat::topp),
          coded_(manifest.values == StoreValues::u8) {
        const std::uint64_t entries = ragged_ ? 0 : k_;
        streams_.push_back({"ids", ElementType::u8, ragged_ ? 0 : packed_bytes(k_, bits_)});
        if (coded_) {
            streams_.push_back({"codes", ElementType::u8, entries});
            streams_.push_back({"tail", ElementType::f16, 1});
            streams_.push_back({"range", ElementType::f16, 2});
        } else {
            streams_.push_back({"logprobs", ElementType::f16, entries});
            streams_.push_back({"tail", ElementType::f32, 1});
        }
        if (ragged_) {
            counts_ = streams_.size();
            streams_.push_back({"counts", ElementType::u8, 1});
            const auto rest = static_cast<double>(vocabulary_ - k_);
            for (std::uint32_t count = 0; count < k_; ++count) {
                const auto others = static_cast<double>(vocabulary_ - count);
                shares_.push_back({std::log(others), std::log(rest / others)});
            }
        }
    }

    Needs needs() const override { return Needs::entries; }
    const std::vector<StoreStream>& streams() const override { return streams_; }
    std::uint32_t width() const override { return k_; }
    ElementType value_type() const override { return coded_ ? ElementType::f32 : ElementType::f16; }

    void encode(const PositionTargets& position, StoredRow& row) const override {
        std::size_t count = position.ids.size();
        double tail = position.tail;
        if (ragged_) {
            count = entries_reaching_p(position.values);
            double outside = std::exp(tail);
            for (const float value : position.values.subspan(count)) {
                outside += std::exp(static_cast<double>(value));
            }
            tail = count == position.values.size() ? tail : std::log(outside);
            row.streams[counts_].push_back(static_cast<std::byte>(count));
        }
        append_packed(row.streams[kIds], position.ids.first(count), bits_);
        const auto values = position.values.first(count);
        if (coded_) {
            encode_codes(values, row);
            append_value(row.streams[kTail], float_to_half(static_cast<float>(tail)));
            return;
        }
        for (const float value : values) {
            append_value(row.streams[kValues], float_to_half(value));
        }
        append_value(row.streams[kTail], static_cast<float>(tail));
    }

    std::optional<std::string> find_defect(const StoredRowView& row) const override {
        if (auto defect = find_length_defect(streams_, row)) {
            return defect;
        }
        const std::size_t value_bytes = coded_ ? 1 : 2;
        std::uint64_t id_bytes = 0;
        std::uint64_t entries = 0;
        for (std::uint32_t i = 0; i < row.tokens; ++i) {
            const std::uint32_t count = count_of(row, i);
            if (count < 1 || count > k_) {
                return "a position has " + std::to_string(count) + " entries";
            }
            id_bytes += packed_bytes(count, bits_);
            entries += count;
        }
        if (row.streams[kIds].size() != id_bytes || row.streams[kValues].size() != entries * value_bytes) {
            return "its streams do not have the bytes that its entries need";
        }
        std::vector<std::int32_t> ids(k_);
        std::size_t at = 0;
        for (std::uint32_t i = 0; i < row.tokens; ++i) {
            const std::uint32_t count = count_of(row, i);
            const std::uint32_t max = max_id(unpacker_, row.streams[kIds].subspan(at), std::span(ids).first(count));
            if (max >= vocabulary_) {
                return "token id " + std::to_string(max) + " is outside the vocabulary";
            }
            at += packed_bytes(count, bits_);
        }
        return std::nullopt;
    }

    void decode(const StoredRowView& row, std::span<const TokenRun> runs, const TargetArrays& target) const override {
        if (ragged_) {
            decode_ragged(row, runs, target);
            return;
        }
        const std::size_t id_bytes = packed_bytes(k_, bits_);
        for (const TokenRun& run : runs) {
            const std::size_t place = std::size_t{run.position} * k_;
            const std::size_t entry = std::size_t{run.token} * k_;
            const auto packed = row.streams[kIds].subspan(run.token * id_bytes);
            // If the ids of a position fill whole bytes, consecutive positions form one bit string.
            const std::size_t at_once = k_ * std::size_t{bits_} % 8 == 0 ? run.count : 1;
            for (std::size_t i = 0; i < run.count; i += at_once) {
                unpacker_.unpack(packed.subspan(i * id_bytes), {target.ids + place + i * k_, at_once * k_});
            }
            if (!coded_) {
                std::memcpy(target.values + place * 2, row.streams[kValues].data() + entry * 2,
                            std::size_t{run.count} * k_ * 2);
                std::memcpy(target.tail + run.position, row.streams[kTail].data() + run.token * sizeof(float),
                            run.count * sizeof(float));
                continue;
            }
            float* const values = reinterpret_cast<float*>(target.values) + place;
            for (std::uint32_t i = 0; i < run.count; ++i) {
                decode_codes(row, run.token + i, entry + std::size_t{i} * k_, {values + std::size_t{i} * k_, k_});
                target.tail[run.position + i] =
                    half_to_float(load_value<std::uint16_t>(row.streams[kTail], run.token + i));
            }
        }
    }

  private:
    static constexpr std::size_t kIds = 0;
    static constexpr std::size_t kValues = 1;
    static constexpr std::size_t kTail = 2;
    static constexpr std::size_t kRange = 3;

    std::uint32_t count_of(const StoredRowView& row, std::uint32_t token) const {
        return ragged_ ? static_cast<std::uint32_t>(row.streams[counts_][token]) : k_;
    }

    void decode_ragged(const StoredRowView& row, std::span<const TokenRun> runs, const TargetArrays& target) const {
        FillerIds filler(vocabulary_, k_);
        std::size_t id_at = 0;
        std::size_t entry = 0;
        for (const TokenRun& run : runs) {
            for (std::uint32_t i = 0; i < run.count; ++i) {
                const std::uint32_t token = run.token + i;
                const std::uint32_t count = count_of(row, token);
                const std::size_t place = (std::size_t{run.position} + i) * k_;
                const std::span ids(target.ids + place, k_);
                unpacker_.unpack(row.streams[kIds].subspan(id_at), ids.first(count));
                float tail = 0;
                if (coded_) {
                    const std::span values(reinterpret_cast<float*>(target.values) + place, k_);
                    decode_codes(row, token, entry, values.first(count));
                    tail = half_to_float(load_value<std::uint16_t>(row.streams[kTail], token));
                    std::fill(values.begin() + count, values.end(), fill_rest(count, tail, ids, filler));
                } else {
                    const std::span values(reinterpret_cast<std::uint16_t*>(target.values) + place, k_);
                    std::memcpy(values.data(), row.streams[kValues].data() + entry * 2, std::size_t{count} * 2);
                    tail = load_value<float>(row.streams[kTail], token);
                    const float share = fill_rest(count, tail, ids, filler);
                    std::fill(values.begin() + count, values.end(), float_to_half(share));
                }
                target.tail[run.position + i] = tail;
                id_at += packed_bytes(count, bits_);
                entry += count;
            }
        }
    }

    std::size_t entries_reaching_p(std::span<const float> values) const {
        double mass = 0;
        std::size_t count = 0;
        while (count < values.size() && (count == 0 || mass < p_)) {
            mass += std::exp(static_cast<double>(values[count]));
            ++count;
        }
        return count;
    }

    /// Stores the first and last log-probability in 16 bits, and the place of each one between them in steps of 1/255.
    static void encode_codes(std::span<const float> values, StoredRow& row) {
        const float first = half_to_float(float_to_half(std::max(values.front(), kMinCoded)));
        const float last = half_to_float(float_to_half(std::max(values.back(), kMinCoded)));
        append_value(row.streams[kRange], float_to_half(first));
        append_value(row.streams[kRange], float_to_half(last));
        const float step = (first - last) / kSteps;
        for (const float value : values) {
            const float steps = step > 0 ? std::round((first - std::max(value, kMinCoded)) / step) : 0.0F;
            row.streams[kValues].push_back(static_cast<std::byte>(std::clamp(steps, 0.0F, kSteps)));
        }
    }

    static void decode_codes(const StoredRowView& row, std::uint32_t token, std::size_t entry,
                             std::span<float> values) {
        const float first = half_to_float(load_value<std::uint16_t>(row.streams[kRange], std::size_t{token} * 2));
        const float last = half_to_float(load_value<std::uint16_t>(row.streams[kRange], std::size_t{token} * 2 + 1));
        decode_steps(first, (first - last) / kSteps, row.streams[kValues].data() + entry, values);
    }

    /// Fills the missing entries of a position with ids that it does not name. Returns the log of the even share of the
    /// tail that each takes; `tail` keeps the rest.
    float fill_rest(std::uint32_t count, float& tail, std::span<std::int32_t> ids, FillerIds& filler) const {
        if (count == k_) {
            return 0;
        }
        filler.fill(ids.first(count), ids.subspan(count));
        const double share = tail - shares_[count].log_others;
        tail = static_cast<float>(tail + shares_[count].log_rest);
        return static_cast<float>(share);
    }

    std::uint32_t k_;
    std::uint64_t vocabulary_;
    std::uint32_t bits_;
    BitUnpacker unpacker_;
    double p_;
    bool ragged_;
    bool coded_;
    std::size_t counts_ = 0;
    struct Share {
        double log_others = 0;  ///< log of the number of ids in the tail
        double log_rest = 0;    ///< log of the share of these outside the k entries
    };
    std::vector<Share> shares_;  ///< indexed by the number of entries of a position
    std::vector<StoreStream> streams_;
};

}  // namespace

std::unique_ptr<PositionFormat> make_packed_format(const StoreManifest& manifest) {
    return std::make_unique<PackedFormat>(manifest);
}

}  // namespace distilld
